"""Images a second of every measure of a suite, and how long a study of 48 models takes.

    python -m benchmarks.suite [--model=resnet50] [--side=224] [--batch=0] [--images=64]
        [--precision=auto] [--rounds=3] [--only=spectral,pgd] [--out=DIR]

Noise is shown in the place of images: what it takes depends on sizes alone. Measures take
turns; of each, every condition is shown once to compile, and then as many times as there
are rounds. A study shows each measure as many images as the published ones have
(ImageNet's 50,000 and so on), and its attack takes 40 steps; the projection is the sum of
measured seconds an image. Reading and decoding images is not in it, nor are measures that
look inside a network (decoding, receptive_field), which the study has not, nor those that
count the decisions of `accuracy` (calibration, classes). Writes
benchmarks/results/suite-<model>-<side>-<backend>.json and .md.
"""

import argparse
import functools
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import measured
from jbias import models
from jbias.configs.suites import biases
from jbias.evals import inference, networks, probe, suites
from jbias.runtime import mesh

# Images of each published set, by measure. That of accuracy is all sets together:
# ImageNet, ReaL, V2, A, R, Sketch, stylized (1,000 classes and 16), edges, silhouettes
# and cue conflict.
FULL = {
    "accuracy": 50_000 + 46_837 + 10_000 + 7_500 + 30_000 + 50_889 + 50_800 + 1_600,
    "shape_bias": 1_280,
    "critical_band_original": 1_060,
}
VALIDATION, MODELS = 50_000, 48


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", default="resnet50", choices=tuple(models.MODELS))
    add("--side", type=int, default=224)
    add("--batch", type=int, default=0, help="0: 256 on accelerators, 32 on CPU")
    add("--images", type=int, default=64)
    add("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    add("--rounds", type=int, default=3)
    add("--only", default="", help="measures, separated by commas")
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    add("--name", help="of the files; suite-<model>-<side>-<backend> if not given")
    options = parser.parse_args()
    config = biases.get_config("data=imagenet,root=.,stimuli=.").to_dict()
    network = _network(options)
    batches = _batches(options)
    rows, total = {}, 0.0
    for name, entry in config["measures"].items():
        if options.only and name not in options.only.split(","):
            continue
        listed = suites.read_measure(name, entry, config["sets"])
        if listed.looks_inside:
            continue
        made = suites.build_probe(listed, {"side": options.side})
        if name != "accuracy" and _decided_before(listed, made):
            continue
        rows[name] = _measured(network, made, batches, options)
        rows[name]["study_images"] = FULL.get(name, VALIDATION)
        seconds = rows[name]["seconds_an_image"] * rows[name]["study_images"]
        rows[name]["study_minutes"] = seconds / 60
        total += seconds / 60
    _write(options, rows, total)


def _decided_before(listed: suites.Measure, made: probe.Probe) -> bool:
    """Whether it asks for the decisions that `accuracy` has made of its sets."""
    plain = made.show is probe.identity and set(made.conditions) == {""}
    return plain and listed.aggregates == ("mean_prob",)


def _network(options: argparse.Namespace) -> inference.BoundJaxNetwork:
    net = models.MODELS[options.model](1000, dtype=mesh.dtype(options.precision))
    image = jnp.zeros((1, options.side, options.side, 3))
    variables = jax.jit(net.init)(jax.random.key(0), image)
    return inference.BoundJaxNetwork(networks.make_apply(net), variables)


def _batches(options: argparse.Namespace) -> list[inference.Batch]:
    on_cpu = jax.default_backend() == "cpu"
    size = min(options.batch or (32 if on_cpu else 256), options.images)
    draw, side = np.random.default_rng(0), options.side
    made = []
    for first in range(0, options.images, size):
        index = np.arange(first, first + size, dtype=np.int32)
        label = jnp.asarray(index % 1000)
        image = draw.integers(0, 256, (size, side, side, 3), np.uint8)
        count = min(size, options.images - first)
        made.append(inference.Batch(jnp.asarray(image), index, label, label, count))
    return made


def _measured(network, made: probe.Probe, batches, options) -> dict:
    """Seconds an image under all conditions; of each condition the median of rounds."""
    rules, seconds = {"": inference.DecisionRule(options.images)}, {}
    for condition in made.conditions:
        one = made._replace(conditions={condition: made.conditions[condition]})
        run = functools.partial(inference.run_probe, network, one, batches, rules)
        run()
        times = []
        for _ in range(options.rounds):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        seconds[condition] = statistics.median(times)
    each = sum(seconds.values()) / options.images
    passes = sum(1 + 3 * made.steps.get(name, 0) for name in made.conditions)
    return {
        "conditions": len(made.conditions),
        "passes": passes,
        "seconds_an_image": each,
        "images_per_second": len(made.conditions) / each,
        "by_condition": seconds,
    }


def _write(options: argparse.Namespace, rows: dict, total: float) -> None:
    head = (
        *("measure", "conditions", "forward passes an image", "stimuli/s"),
        *("study's images", "minutes a model"),
    )
    lines = [
        (
            name,
            row["conditions"],
            row["passes"],
            f"{row['images_per_second']:,.1f}",
            f"{row['study_images']:,}",
            f"{row['study_minutes']:,.1f}",
        )
        for name, row in rows.items()
    ]
    lines.append(("all", "", "", "", "", f"{total:,.1f}"))
    text = measured.markdown(head, lines) + (
        f"\nOne model in {total:,.0f} minutes, {MODELS} models in "
        f"{total * MODELS / 60:,.0f} hours on this device; a step of an attack counts as "
        "three forward passes.\n"
    )
    measured.write(
        options.name or f"suite-{options.model}-{options.side}-{jax.default_backend()}",
        {"measures": rows, "minutes_a_model": total},
        text,
        ratios={},
        out=options.out,
        images=options.images,
        batch=len(_batches(options)[0].image),
        precision=str(jnp.dtype(mesh.dtype(options.precision))),
    )


if __name__ == "__main__":
    main()
