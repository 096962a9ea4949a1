"""GPU hours that the four papers' experiments in full would take: computed, not measured.

    python -m benchmarks.gpu_hours [--device=h200]

Hours are passes of images over a rate; the rate is a share of the roofline
(benchmarks/roofline.py) in bfloat16: from 15 to 40 %. ResNet-50 on an A100 has 2,470
images a second in NVIDIA's own measurement, 19 % of the same roofline
(https://github.com/NVIDIA/DeepLearningExamples, resnet50v1.5 for PyTorch); 40 % is what
jbias aims at. Reading and decoding images is taken to keep up. Prints a table as Markdown.
"""

import argparse
import functools
import json
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from benchmarks import cost, prose, roofline
from jbias import models
from jbias.training import targets

SHARES = (0.15, 0.40)
SUITE = pathlib.Path(__file__).parent / "results" / "suite-resnet50-224-cpu.json"
IMAGENET, CIFAR, TINY = 1_281_167, 49_000, 98_000  # Training images, in an epoch.


class Job(NamedTuple):
    """Runs that cost alike; `passes` is in trainings of ERM, lowest and highest."""

    what: str
    model: str
    size: int
    images: float  # That one run is shown.
    runs: int
    passes: tuple[float, float] = (1.0, 1.0)
    train: bool = True


def jobs() -> Iterable[Job]:
    """What BiasBed, the two small-image studies and the suite of biases ask for."""
    epochs = 100 * IMAGENET
    for name in ("erm", "stylized_erm", "padain", "infodrop", "sagnet"):
        passes = cost.PREDICTED.get(name, (1.0, 1.0))
        yield Job(f"BiasBed: {name}", "resnet50", 256, epochs, 10, passes)
    # Two passes of the classifier; the style network costs two or three as much.
    yield Job("BiasBed: debiased", "resnet50", 256, epochs, 10, (4.0, 5.0))
    # Half of each batch is of the second source: an epoch has twice the steps.
    yield Job("BiasBed: deepaugment, both", "resnet50", 256, 2 * epochs, 20)
    yield Job("48 models: the suite", "resnet50", 224, shown(), 48, train=False)
    net = "preact_resnet18"
    yield Job("Distortion: both CIFAR, five methods", net, 32, 200 * CIFAR, 50)
    yield Job("Distortion: Tiny ImageNet, four", net, 64, 200 * TINY, 20)


def shown() -> float:
    """Forward passes of one model in the suite of biases; an attack's step is three."""
    measures = json.loads(SUITE.read_text())["results"]["measures"].values()
    return sum(one["study_images"] * one["passes"] for one in measures)


@functools.cache
def least(model: str, size: int, train: bool, device: str) -> float:
    """Seconds an image that the roofline allows, in batches of 128."""
    classes = 1000 if model == "resnet50" else 10
    options = {"stem": "imagenet"} if model == "resnet50" else {}
    net = models.MODELS[model](classes=classes, dtype=jnp.bfloat16, **options)
    of = roofline.training if train else roofline.evaluation
    work, limits = of(net, size, 128), targets.KINDS[device]
    return max(work.flops / limits.flops, work.bytes / limits.bytes) / 128


def hours(job: Job, device: str = "h200") -> tuple[float, float]:
    """Of one run, lowest and highest."""
    one = job.images * least(job.model, job.size, job.train, device) / 3600
    return one * job.passes[0] / SHARES[1], one * job.passes[1] / SHARES[0]


def table(device: str = "h200") -> str:
    """The hours as Markdown."""
    rows = []
    total = [0.0, 0.0]
    for job in jobs():
        low, high = hours(job, device)
        total[0], total[1] = total[0] + low * job.runs, total[1] + high * job.runs
        rows.append((job.what, str(job.runs), _told(low, high), _told(low, high, job)))
    rows.append(("all", "", "", f"{total[0]:,.0f} to {total[1]:,.0f}"))
    return prose.markdown(("what", "runs", "hours a run", "hours"), rows)


def _told(low: float, high: float, job: Job | None = None) -> str:
    times = job.runs if job else 1
    return " to ".join(
        f"{x * times:,.{1 if x * times < 20 else 0}f}" for x in (low, high)
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="h200", choices=targets.KINDS)
    print(table(parser.parse_args().device))


if __name__ == "__main__":
    main()
