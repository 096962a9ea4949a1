"""Time every measure of the suite of biases, and project the hours of a study of 48 models.

    python -m benchmarks.suite [--model=resnet50] [--side=224] [--batch=0] [--images=64]
        [--precision=auto] [--rounds=3] [--only=spectral,pgd] [--out=DIR]

Images are noise: times depend on sizes only. Every condition of a measure is shown once to
compile, and then in each round. A study shows each measure as many images as the published
study does (ImageNet's 50,000 and so on), and its attack takes 40 steps; the projection sums
the measured seconds per image. It leaves out reading and decoding images, measures of
features inside a network (decoding, receptive_field), which the study does not have, and
measures that only count the decisions of `accuracy` (calibration, classes). Writes
benchmarks/results/suite-<model>-<side>-<backend>.json and .md.

Takes about an hour and a half on two cores, and about seven minutes on a GPU.
"""

import argparse
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import result_files
from jbias import models
from jbias.configs.suites import biases
from jbias.evals import inference, networks, suites
from jbias.measures import counting
from jbias.runtime import mesh
from jbias.stimuli import shown

# Number of images by measure, as published; default: VALIDATION. Accuracy is measured on
# several sets: ImageNet, ReaL, V2, A, R, Sketch, stylized (1,000 classes and 16), edges, silhouettes
# and cue conflict.
STUDY_IMAGES = {
    "accuracy": 50_000 + 46_837 + 10_000 + 7_500 + 30_000 + 50_889 + 50_800 + 1_600,
    "shape_bias": 1_280,
    "critical_band_original": 1_060,
}
VALIDATION, MODELS = 50_000, 48


def main() -> None:
    """Measure, print and write the results."""
    options = _options()
    config = biases.get_config("data=imagenet,root=.,stimuli=.").to_dict()
    network = _random_network(options)
    batches = _noise_batches(options)
    rows, total = {}, 0.0
    for name, entry in config["measures"].items():
        if options.only and name not in options.only.split(","):
            continue
        measure = suites.read_measure(name, entry, config["sets"])
        if measure.looks_inside:
            continue
        built = suites.build_probe(measure, {"side": options.side})
        if name != "accuracy" and _reuses_decisions(measure, built):
            continue
        probe = suites.as_stimuli(built)
        rows[name] = _time_probe(network, probe, batches, options)
        rows[name]["study_images"] = STUDY_IMAGES.get(name, VALIDATION)
        seconds = rows[name]["seconds_an_image"] * rows[name]["study_images"]
        rows[name]["study_minutes"] = seconds / 60
        total += seconds / 60
    _write(options, rows, total)


def _options() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--model",
        default="resnet50",
        choices=tuple(models.MODELS),
        metavar="NAME",
        help="network, with random weights (default: %(default)s)",
    )
    add(
        "--side",
        type=int,
        default=224,
        help="image side in pixels (default: %(default)s)",
    )
    add(
        "--batch",
        type=int,
        default=0,
        help="images per batch (default: 256 on accelerators, 32 on a CPU)",
    )
    add("--images", type=int, default=64, help="images in all (default: %(default)s)")
    add(
        "--precision",
        default="auto",
        choices=("auto", "float32", "bfloat16"),
        help="dtype of convolutions (default: %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        default=3,
        help="timed repetitions of each condition (default: %(default)s)",
    )
    add("--only", default="", help="measures, with commas (default: all)")
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder for the results (default: benchmarks/results)",
    )
    add("--name", help="name of the results (default: suite-<model>-<side>-<backend>)")
    return parser.parse_args()


def _reuses_decisions(measure: suites.Measure, built: suites.Built) -> bool:
    """Return True if a measure only needs the decisions of `accuracy` on its sets."""
    is_counting = isinstance(built, counting.Counting)
    return is_counting and measure.aggregates == ("mean_prob",)


def _random_network(options: argparse.Namespace) -> inference.BoundJaxNetwork:
    """Return the network with random weights."""
    net = models.MODELS[options.model](1000, dtype=mesh.dtype(options.precision))
    image = jnp.zeros((1, options.side, options.side, 3))
    variables = jax.jit(net.init)(jax.random.key(0), image)
    return inference.BoundJaxNetwork(networks.make_apply(net), variables)


def _noise_batches(options: argparse.Namespace) -> list[inference.Batch]:
    """Return all images, which are noise, in batches on the device."""
    is_cpu = jax.default_backend() == "cpu"
    size = min(options.batch or (32 if is_cpu else 256), options.images)
    rng, side = np.random.default_rng(0), options.side
    batches = []
    for first in range(0, options.images, size):
        index = np.arange(first, first + size, dtype=np.int32)
        label = jnp.asarray(index % 1000)
        image = rng.integers(0, 256, (size, side, side, 3), np.uint8)
        count = min(size, options.images - first)
        batch = inference.Batch(jnp.asarray(image), index, label, label, count)
        batches.append(batch)
    return batches


def _time_probe(
    network: inference.BoundJaxNetwork,
    built: shown.Stimuli,
    batches: list[inference.Batch],
    options: argparse.Namespace,
) -> dict:
    """Return seconds per image over all conditions, and medians of rounds by condition."""
    rules, seconds = {"": inference.DecisionRule(options.images)}, {}
    counts = inference.step_counts(built)
    for name, condition in built.conditions.items():
        single = built._replace(conditions={name: condition})
        inference.run_probe(network, single, batches, rules)
        times = []
        for _ in range(options.rounds):
            start = time.perf_counter()
            inference.run_probe(network, single, batches, rules)
            times.append(time.perf_counter() - start)
        seconds[name] = statistics.median(times)
    image_seconds = sum(seconds.values()) / options.images
    passes = sum(1 + 3 * counts.get(name, 0) for name in built.conditions)
    return {
        "conditions": len(built.conditions),
        "passes": passes,
        "seconds_an_image": image_seconds,
        "images_per_second": len(built.conditions) / image_seconds,
        "by_condition": seconds,
    }


def _write(options: argparse.Namespace, rows: dict, total: float) -> None:
    """Write the results; rows: by measure. total: minutes of the study of one model."""
    head = (
        "measure",
        "conditions",
        "forward passes an image",
        "stimuli/s",
        "study's images",
        "minutes a model",
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
    text = result_files.markdown(head, lines) + (
        f"\nOne model in {total:,.0f} minutes, {MODELS} models in "
        f"{total * MODELS / 60:,.0f} hours on this device; a step of an attack counts as "
        "three forward passes.\n"
    )
    result_files.write(
        options.name or f"suite-{options.model}-{options.side}-{jax.default_backend()}",
        {"measures": rows, "minutes_a_model": total},
        text,
        ratios={},
        out=options.out,
        images=options.images,
        batch=len(_noise_batches(options)[0].image),
        precision=str(jnp.dtype(mesh.dtype(options.precision))),
    )


if __name__ == "__main__":
    main()
