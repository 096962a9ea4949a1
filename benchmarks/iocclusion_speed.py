"""Measure iOcclusion by Grad-CAM of one network, for benchmarks.distortion_speed.

Runs the suite of configs/suites/distortion.py, as jbias.evaluate does.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath
from flax import linen as nn

from benchmarks import timing
from benchmarks.settings import Setting
from jbias import data
from jbias.configs.suites import distortion
from jbias.evals import inference, networks, runner, set_batches, suites
from jbias.stimuli import shown

NUM_IMAGES = sum(data.DATASETS["cifar10"].images.values())
PLAIN = "as they are"


def measure(
    net: nn.Module, options: argparse.Namespace, setting: Setting
) -> dict[str, Any]:
    """Return seconds of the suite, and rates compared with images that are not occluded.

    options: command line of benchmarks.distortion_speed. `seconds` is of a first network, which
    compiles, and of a second. `projected` is in minutes, for all images of CIFAR-10.
    """
    c = distortion.get_config(f"data=cifar10,root={options.root},train=train")
    with c.unlocked():
        c.measures.occlusion.update(masks=("grad_cam",), orders=("most",))
        c.run.update(precision=options.precision, devices=1)
    suite = suites.open_suite(c, _print_progress, only=("occlusion",))
    classes = tuple(suite.sources["test"].classes)
    seconds = []
    for number in range(2):
        subject = _random_network(net, classes, number)
        start = time.perf_counter()
        missing = runner.run_suite(
            subject, suite, epath.Path(options.folder), _print_progress
        )
        if missing:
            raise SystemExit(f"benchmarks: not measured: {missing[0]}")
        seconds.append(time.perf_counter() - start)
    variants, num_stimuli = _variants(subject, suite, options.steps * setting.batch)
    turns = timing.in_turns(variants, options.rounds, warm=1)
    images = sum(map(len, suite.sources.values()))
    compile_seconds = max(seconds[0] - seconds[1], 0)
    measure_seconds = seconds[1] / images * NUM_IMAGES
    return {
        "images": images,
        "conditions": len(suite.make_probe(suite.measures[0], "test").conditions),
        "seconds": seconds,
        "projected": {
            "compile": compile_seconds / 60,
            "measure": measure_seconds / 60,
            "all": (compile_seconds + measure_seconds) / 60,
        },
        "rates": timing.against(turns, PLAIN, dict.fromkeys(turns, num_stimuli)),
    }


def _variants(
    subject: networks.FlaxNetwork, suite: suites.Suite, num_images: int
) -> tuple[dict[str, Callable[[], None]], int]:
    """Return functions that show test images under all conditions, and the stimuli of each.

    num_images: upper bound of the test images shown.
    """
    network = subject.bind(suite.dtype, suite.devices)
    prepared = set_batches.subsample(
        set_batches.prepare(subject, suite, "test", _print_progress), num_images
    )
    batches = [*set_batches.device_batches(suite, prepared)]
    rules = {"": prepared.rules["mean_prob"]}
    occlusion = suite.make_probe(suite.measures[0], "test", prepared.classes)

    def run_all(probes: Sequence[shown.Stimuli]) -> Callable[[], None]:
        def run() -> None:
            for each_probe in probes:
                inference.run_probe(network, each_probe, batches, rules)

        return run

    identity = shown.Stimuli(occlusion.conditions, shown.identity, occlusion.numbers)
    per_condition = [
        occlusion._replace(conditions={name: condition})
        for name, condition in occlusion.conditions.items()
    ]
    variants = {
        PLAIN: run_all([identity]),
        "a map an image": run_all([occlusion]),
        "a map a condition": run_all(per_condition),
    }
    return variants, len(prepared.index) * len(occlusion.conditions)


def _random_network(
    net: nn.Module, classes: tuple[str, ...], number: int
) -> networks.FlaxNetwork:
    """Return a network with random weights; number: seed of the weights."""
    name, key = f"drawn-{number}", jax.random.key(number)
    return networks.FlaxNetwork(
        name=name,
        net=net,
        variables=jax.jit(net.init)(key, jnp.zeros((1, 32, 32, 3))),
        classes=classes,
        space="names",
        digest=name,
        fields={
            "run": name,
            "algorithm": "basic",
            "variant": "",
            "model": "preact_resnet18",
            "train_data": "cifar10",
            "stage": 0,
            "seed": number,
            "step": 0,
            "epoch": 0.0,
        },
        about={},
    )


def _print_progress(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)
