"""iOcclusion by Grad-CAM of one network, for benchmarks.distortion.

Measured as jbias.evaluate does, by the suite of configs/suites/distortion.py.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath
from flax import linen as nn

from benchmarks import measured
from benchmarks.settings import Setting
from jbias import data
from jbias.configs.suites import distortion
from jbias.evals import inference, networks, prepared_sets, probe, runner, suites

SHOWN = sum(data.DATASETS["cifar10"].images.values())
PLAIN = "as they are"


def measure(
    net: nn.Module, options: argparse.Namespace, setting: Setting
) -> dict[str, Any]:
    """Seconds of all, and rates beside that of images as they are."""
    c = distortion.get_config(f"data=cifar10,root={options.root},train=train")
    with c.unlocked():
        c.measures.occlusion.update(masks=("grad_cam",), orders=("most",))
        c.run.update(precision=options.precision, devices=1)
    asked = suites.open_suite(c, _say, only=("occlusion",))
    classes = tuple(asked.sources["test"].classes)
    seconds = []
    for number in range(2):
        subject, began = _subject(net, classes, number), time.perf_counter()
        if lacking := runner.run_suite(
            subject, asked, epath.Path(options.folder), _say
        ):
            raise SystemExit(f"benchmarks: not measured: {lacking[0]}")
        seconds.append(time.perf_counter() - began)
    ways, stimuli = _ways(subject, asked, options.steps * setting.batch)
    turns = measured.in_turns(ways, options.rounds, warm=1)
    images = sum(map(len, asked.sources.values()))
    longer, whole = max(seconds[0] - seconds[1], 0), seconds[1] / images * SHOWN
    return {
        "images": images,
        "conditions": len(asked.make_probe(asked.measures[0], "test").conditions),
        "seconds": seconds,
        "projected": {
            "compile": longer / 60,
            "measure": whole / 60,
            "all": (longer + whole) / 60,
        },
        "rates": measured.against(turns, PLAIN, dict.fromkeys(turns, stimuli)),
    }


def _ways(
    subject: networks.FlaxNetwork, asked: suites.Suite, images: int
) -> tuple[dict[str, Callable[[], None]], int]:
    """Ways to show so many test images under all conditions, and how many stimuli."""
    network = subject.bind(asked.dtype, asked.devices)
    given = prepared_sets.subsample(
        prepared_sets.prepare(subject, asked, "test", _say), images
    )
    batches = [*prepared_sets.device_batches(asked, given)]
    rules = {"": given.rules["mean_prob"]}
    made = asked.make_probe(asked.measures[0], "test", given.classes)

    def decide(*probes: probe.Probe) -> Callable[[], None]:
        def way() -> None:
            for one in probes:
                inference.run_probe(network, one, batches, rules)

        return way

    alone = (made._replace(conditions={k: v}) for k, v in made.conditions.items())
    ways = {
        PLAIN: decide(probe.Probe(made.conditions, probe.identity, made.numbers)),
        "a map an image": decide(made),
        "a map a condition": decide(*alone),
    }
    return ways, len(given.index) * len(made.conditions)


def _subject(
    net: nn.Module, classes: tuple[str, ...], number: int
) -> networks.FlaxNetwork:
    """A network that nobody has trained."""
    name, key = f"drawn-{number}", jax.random.key(number)
    fields = dict(run=name, algorithm="basic", variant="", model="preact_resnet18")
    fields |= dict(train_data="cifar10", stage=0, seed=number, step=0, epoch=0.0)
    return networks.FlaxNetwork(
        name=name,
        net=net,
        variables=jax.jit(net.init)(key, jnp.zeros((1, 32, 32, 3))),
        classes=classes,
        space="names",
        digest=name,
        fields=fields,
        about={},
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
