"""Compute the GPU or TPU hours of three papers' full experiments; nothing is measured.

    python -m studies.gpu_hours
    python -m studies.gpu_hours --device=v5e

Prints a table as Markdown. The papers are BiasBed (CVPR 2023), 48 ImageNet models (CVPR 2024) and
Distortion (ICML 2022), see docs/reproduction.md. Hours = images shown x passes per image /
images per second. In training, passes per image are relative to ERM; in the suite of biases they
are forward passes. Images per second are 15 to 40 % of the device's roofline in bfloat16
(benchmarks/roofline.py). Reading and decoding images are assumed not to limit the speed.

Takes about ten seconds on two cores.
"""

import functools
import json
from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from benchmarks import cost, result_files, roofline
from jbias import models
from jbias.training.tuning import targets
from studies import command, prose

SHARES = (0.15, 0.40)
SUITE = result_files.RESULTS / "suite-resnet50-224-cpu.json"
IMAGENET, CIFAR, TINY = 1_281_167, 49_000, 98_000  # Training images, in an epoch.


class Job(NamedTuple):
    """Runs of equal cost.

    images: images shown in a run. passes: lowest and highest cost of a run, as a multiple
    of ERM. train: False for an evaluation.
    """

    name: str
    model: str
    size: int
    images: float
    runs: int
    passes: tuple[float, float] = (1.0, 1.0)
    train: bool = True


def jobs() -> Iterable[Job]:
    """Yield the runs of BiasBed, of the two small-image studies and of the suite of biases."""
    epochs = 100 * IMAGENET
    for name in ("erm", "stylized_erm", "padain", "infodrop", "sagnet"):
        passes = cost.PREDICTED.get(name, (1.0, 1.0))
        yield Job(f"BiasBed: {name}", "resnet50", 256, epochs, 10, passes)
    # Two passes of the classifier; the style network costs as much as two or three passes.
    yield Job("BiasBed: debiased", "resnet50", 256, epochs, 10, (4.0, 5.0))
    # Half of each batch comes from the second source: an epoch has twice the steps.
    yield Job("BiasBed: deepaugment, both", "resnet50", 256, 2 * epochs, 20)
    yield Job("48 models: the suite", "resnet50", 224, suite_passes(), 48, train=False)
    net = "preact_resnet18"
    yield Job("Distortion: both CIFAR, five methods", net, 32, 200 * CIFAR, 50)
    yield Job("Distortion: Tiny ImageNet, four", net, 64, 200 * TINY, 20)


def suite_passes() -> float:
    """Return the forward passes of one model in the suite of biases.

    A step of an attack counts as three passes.
    """
    measures = json.loads(SUITE.read_text())["results"]["measures"].values()
    return sum(measure["study_images"] * measure["passes"] for measure in measures)


@functools.cache
def min_seconds(model: str, size: int, train: bool, device: str) -> float:
    """Return the fewest seconds per image that the roofline allows, in batches of 128.

    size: image side in pixels. train: False for an evaluation.
    """
    classes = 1000 if model == "resnet50" else 10
    options = {"stem": "imagenet"} if model == "resnet50" else {}
    net = models.MODELS[model](classes=classes, dtype=jnp.bfloat16, **options)
    count_work = roofline.training if train else roofline.evaluation
    work, limits = count_work(net, size, 128), targets.KINDS[device]
    return max(work.flops / limits.flops, work.bytes / limits.bytes) / 128


def hours(job: Job, device: str = "h200") -> tuple[float, float]:
    """Return the lowest and highest number of hours of one run."""
    image_seconds = min_seconds(job.model, job.size, job.train, device)
    at_roofline = job.images * image_seconds / 3600
    lowest, highest = job.passes
    return at_roofline * lowest / SHARES[1], at_roofline * highest / SHARES[0]


def table(device: str = "h200") -> str:
    """Return the hours of all jobs as Markdown."""
    rows, total_low, total_high = [], 0.0, 0.0
    for job in jobs():
        low, high = hours(job, device)
        total_low += low * job.runs
        total_high += high * job.runs
        run_hours = _format_range(low, high)
        job_hours = _format_range(low * job.runs, high * job.runs)
        rows.append((job.name, str(job.runs), run_hours, job_hours))
    rows.append(("all", "", "", f"{total_low:,.0f} to {total_high:,.0f}"))
    return prose.markdown(("what", "runs", "hours a run", "hours"), rows)


def _format_range(low: float, high: float) -> str:
    """Return "low to high", with a decimal below 20."""
    return " to ".join(f"{x:,.{1 if x < 20 else 0}f}" for x in (low, high))


def main() -> None:
    """Print the table."""
    parser = command.parser("gpu_hours", __doc__)
    parser.add_argument(
        "--device",
        default="h200",
        choices=targets.KINDS,
        help="GPU or TPU to compute the hours for (default: %(default)s)",
    )
    print(table(parser.parse_args().device))


if __name__ == "__main__":
    main()
