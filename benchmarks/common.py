"""Shared code of benchmarks: command lines, trainers, and the PyTorch peer."""

import argparse
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from benchmarks import peer, result_files
from benchmarks.settings import SETTINGS, Setting
from jbias import algos, augment, run_spec
from jbias import config as jc
from jbias.data import loader
from jbias.runtime import mesh
from jbias.training import input_plan, placement, setup, stages

TORCH = "PyTorch"


def configured(
    algorithm: str,
    setting: Setting | None,
    *,
    which: Sequence[int],
    precision: str,
    devices: int,
) -> dict[str, Any]:
    """Return a config of configs/ with a setting's network, image size and batch.

    The data set is the embedded one. An algorithm or input whose group size does not divide
    a device's share of the batch mixes the whole share.

    setting: None keeps the config's own. which: seeds. devices: number of devices.
    """
    c = importlib.import_module(f"jbias.configs.{algorithm}").get_config("seeds=1")
    c.seeds, c.precision = tuple(which), precision
    if setting is not None:
        network = dict(name=setting.model, width=setting.width)
        if setting.stem:
            network["stem"] = setting.stem
        c.model = network
        c.size, c.train.batch = setting.size, setting.batch
        c.train.n = max(2 * setting.batch, 64)
    share = c.train.batch // devices
    for entry, functions in (
        (c.algo, algos.ALGOS),
        *((x, augment.AUGMENTS) for x in c.inputs),
    ):
        parameters = inspect.signature(functions[entry["name"]]).parameters
        group = parameters.get("mix_group")
        if group and share % entry.get("mix_group", group.default):
            with c.unlocked():
                entry["mix_group"] = share
    return jc.to_dict(c)


def stage_of(
    algorithm: str = "erm",
    setting: Setting | None = None,
    *,
    which: Sequence[int] = (0,),
    precision: str = "auto",
    devices: int = 1,
) -> stages.Stage:
    """Return the first stage of the config that `configured` makes of these arguments."""
    config = configured(
        algorithm, setting, which=which, precision=precision, devices=devices
    )
    return built(config, mesh.make(devices))


def built(config: dict[str, Any], devices: jax.sharding.Mesh) -> stages.Stage:
    """Return the first stage of a config with its images on the devices."""
    first_stage = {**config, **jc.stage_configs(config)[0], "stages": []}
    spec = run_spec.RunSpec.from_config(first_stage)
    (train,) = setup.open_train_sets(spec)
    images = {
        key: loader.decode_all(source, workers=1)
        for key, source in train.named(0).items()
    }
    plans = input_plan.plan_stages(spec.stages, [train])
    return stages.build_stages(spec, plans, images, devices)[0]


def with_seeds(stage: stages.Stage, which: Sequence[int]) -> stages.Stage:
    """Return the stage with the seeds `which` of the first branch."""
    members = run_spec.members(which, [stage.members[0].branch])
    return dataclasses.replace(stage, members=members)


class Trainer:
    """A trainer of some seeds of a stage with one strategy."""

    def __init__(
        self,
        stage: stages.Stage,
        which: Sequence[int] = (0,),
        strategy: str = "auto",
        devices: jax.sharding.Mesh | None = None,
    ):
        self.devices = devices or mesh.make(1)
        self.which, self.step = which, 0
        self.stage = with_seeds(stage, which)
        self.placed = placement.fit_to_devices(
            self.stage, self.devices, strategy=strategy
        )
        self.layout, self.packed = self.placed.layout, self.placed.start()

    @property
    def images(self) -> int:
        """Number of images in a step of all seeds."""
        return self.stage.order.batch * len(self.which)

    def run(self, steps: int) -> None:
        """Run `steps` training steps and wait for their end."""
        numbers = range(self.step, self.step + steps)
        for static, group in itertools.groupby(numbers, self.stage.static):
            group_steps = list(group)
            args = self.placed.batches(group_steps[0], len(group_steps))
            stored = self.stage.feed.shared(self.step)
            self.packed, _ = self.placed.step(self.packed, args, stored, static)
        self.step += steps
        jax.block_until_ready(self.packed)

    @property
    def states(self) -> tuple:
        """Training states, one per seed."""
        return self.layout.unpack(self.packed)


def parser(doc: str, **defaults: Any) -> argparse.ArgumentParser:
    """Return a command line with the options that most benchmarks have.

    doc: description. defaults: values that replace the options' defaults.
    """
    result = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add(
        "--setting",
        choices=("own", *SETTINGS),
        default="shapes",
        help="network, image size and batch; own: as in the config (default: %(default)s)",
    )
    add("--model", help="name of the network (default: the setting's)")
    add("--width", type=int, help="width of the network (default: the setting's)")
    add("--size", type=int, help="image size in pixels (default: the setting's)")
    add("--batch", type=int, help="images per step and seed (default: the setting's)")
    add(
        "--precision",
        default="auto",
        help="auto, float32 or bfloat16 (default: %(default)s)",
    )
    add("--steps", type=int, default=8, help="steps in a turn (default: %(default)s)")
    add(
        "--rounds",
        type=int,
        default=7,
        help="rounds in which all variants take a turn (default: %(default)s)",
    )
    add(
        "--torch",
        help="Python with PyTorch; no: do not measure PyTorch (default: this Python)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    add("--name", help="name of the results (default: from benchmark and setting)")
    result.set_defaults(**defaults)
    return result


def setting_of(options: argparse.Namespace) -> Setting | None:
    """Return the setting of the command line; None means each config's own."""
    names = ("model", "width", "size", "batch")
    changes = {
        name: getattr(options, name)
        for name in names
        if getattr(options, name) is not None
    }
    if options.setting == "own":
        if changes:
            raise SystemExit(f"benchmarks: {min(changes)} needs a --setting")
        return None
    return dataclasses.replace(SETTINGS[options.setting], **changes)


def describe_options(
    options: argparse.Namespace, setting: Setting | None
) -> dict[str, Any]:
    """Return the setting and the precision, to write them with the results."""
    return {
        "setting": setting and dataclasses.asdict(setting),
        "precision": "bfloat16" if is_half(options.precision) else "float32",
    }


def name_of(options: argparse.Namespace, benchmark: str) -> str:
    """Return the name of a benchmark's results."""
    backend = jax.default_backend()
    kind = "" if options.setting == "own" else f"-{options.setting}"
    return options.name or f"{benchmark}{kind}-{backend}"


@contextlib.contextmanager
def peer_of(
    options: argparse.Namespace, setting: Setting | None, *, seeds: int
) -> Iterator[peer.Peer | None]:
    """Yield the PyTorch peer of a benchmark, which is closed after the context.

    None if PyTorch is missing or switched off, or without a setting.
    """
    python = options.torch or sys.executable
    is_missing = not options.torch and importlib.util.find_spec("torch") is None
    if options.torch == "no" or is_missing or setting is None:
        yield None
        return
    precision = "bfloat16" if is_half(options.precision) else "float32"
    torch_peer = peer.Peer(python, setting, seeds=seeds, precision=precision)
    try:
        yield torch_peer
    finally:
        torch_peer.close()


def is_half(precision: str) -> bool:
    """Return True if convolutions compute in bfloat16."""
    return mesh.dtype(precision) == jax.numpy.bfloat16


def check_same_size(trainer: Trainer, num_parameters: int) -> None:
    """Raise SystemExit unless the trainer's network has as many parameters as PyTorch's."""
    ours = sum(x.size for x in jax.tree.leaves(trainer.states[0].params["net"]))
    if ours != num_parameters:
        raise SystemExit(
            f"benchmarks: our network has {ours} parameters, PyTorch's {num_parameters}"
        )


def repeated(run: Callable[[int], Any], steps: int) -> Callable[[], Any]:
    """Return a function without arguments that calls `run` with `steps`."""
    return functools.partial(run, steps)
