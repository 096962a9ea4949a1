"""What most benchmarks share: their options, trainers in a setting, and the peer."""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from benchmarks import measured, peer
from benchmarks.settings import SETTINGS, Setting
from jbias import algos, augment, run_spec
from jbias import config as jc
from jbias.data import loader
from jbias.runtime import mesh
from jbias.training import input_plan, setup, stages

TORCH = "PyTorch"


def configured(
    algorithm: str,
    setting: Setting | None,
    *,
    which: Sequence[int],
    precision: str,
    devices: int,
) -> dict[str, Any]:
    """A config of configs/ in a setting, on the embedded set; None is its own.

    What does not mix in groups that a device has whole mixes all that it has.
    """
    c = importlib.import_module(f"jbias.configs.{algorithm}").get_config("seeds=1")
    c.seeds, c.precision = tuple(which), precision
    if setting is not None:
        stem = {"stem": setting.stem} if setting.stem else {}
        c.model = dict(name=setting.model, width=setting.width, **stem)
        c.size, c.train.batch = setting.size, setting.batch
        c.train.n = max(2 * setting.batch, 64)
    share = c.train.batch // devices
    for one, known in (
        (c.algo, algos.ALGOS),
        *((x, augment.AUGMENTS) for x in c.inputs),
    ):
        group = inspect.signature(known[one["name"]]).parameters.get("mix_group")
        if group and share % one.get("mix_group", group.default):
            with c.unlocked():
                one["mix_group"] = share
    return jc.to_dict(c)


def stage_of(
    algorithm: str = "erm",
    setting: Setting | None = None,
    *,
    which: Sequence[int] = (0,),
    precision: str = "auto",
    devices: int = 1,
) -> stages.Stage:
    """The first stage of `configured`, its images drawn and on the devices."""
    config = configured(
        algorithm, setting, which=which, precision=precision, devices=devices
    )
    return built(config, mesh.make(devices))


def built(config: dict[str, Any], devices: jax.sharding.Mesh) -> stages.Stage:
    """The first stage of a config, its images in memory and on the devices."""
    alone = {**config, **jc.stage_configs(config)[0], "stages": []}
    spec = run_spec.RunSpec.from_config(alone)
    (train,) = setup.open_train_sets(spec)
    images = {
        key: loader.decode_all(source, workers=1)
        for key, source in train.named(0).items()
    }
    plans = input_plan.plan_stages(spec.stages, [train])
    return stages.build_stages(spec, plans, images, devices)[0]


def with_seeds(stage: stages.Stage, which: Sequence[int]) -> stages.Stage:
    """The stage with other seeds to train, of the first branch."""
    members = run_spec.members(which, [stage.members[0].branch])
    return dataclasses.replace(stage, members=members)


class Trainer:
    """Trains some seeds of a stage with one strategy."""

    def __init__(
        self,
        stage: stages.Stage,
        which: Sequence[int] = (0,),
        strategy: str = "auto",
        devices: jax.sharding.Mesh | None = None,
    ):
        self.devices = devices or mesh.make(1)
        self.which, self.step = which, 0
        self.stage = stages.fit_to_devices(
            with_seeds(stage, which), self.devices, strategy=strategy
        )
        self.layout, self.packed = self.stage.layout, self.stage.start()

    @property
    def images(self) -> int:
        """Of all seeds, in one step."""
        return self.stage.order.batch * len(self.which)

    def run(self, steps: int) -> None:
        """Takes `steps` steps, and waits for them."""
        ahead = range(self.step, self.step + steps)
        for static, same in itertools.groupby(ahead, self.stage.static):
            first, *more = same
            args = self.stage.batches(first, 1 + len(more))
            held = self.stage.shared(self.step)
            self.packed, _ = self.stage.advance(self.packed, args, held, static)
        self.step += steps
        jax.block_until_ready(self.packed)

    @property
    def states(self) -> tuple:
        """One a seed."""
        return self.layout.unpack(self.packed)


def parser(doc: str, **defaults: Any) -> argparse.ArgumentParser:
    """A command line with the options that most benchmarks have."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = made.add_argument
    add("--setting", choices=("own", *SETTINGS), default="shapes")
    add("--model", help="instead of the setting's, likewise the next")
    add("--width", type=int)
    add("--size", type=int, help="pixels")
    add("--batch", type=int)
    add("--precision", default="auto")
    add("--steps", type=int, default=8, help="in one turn")
    add("--rounds", type=int, default=7)
    add("--torch", help="the Python that has PyTorch, if not this one; no: none")
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    add("--name", help="of the results, if not the benchmark's, setting's and device's")
    made.set_defaults(**defaults)
    return made


def setting_of(options: argparse.Namespace) -> Setting | None:
    """The setting that the command line asks for; None is each config's own."""
    named = ("model", "width", "size", "batch")
    own = {key: value for key in named if (value := getattr(options, key)) is not None}
    if options.setting == "own":
        if own:
            raise SystemExit(f"benchmarks: {min(own)} needs a --setting")
        return None
    return dataclasses.replace(SETTINGS[options.setting], **own)


def told(options: argparse.Namespace, setting: Setting | None) -> dict[str, Any]:
    """What was asked for, for the results."""
    return {
        "setting": setting and dataclasses.asdict(setting),
        "precision": "bfloat16" if is_half(options.precision) else "float32",
    }


def name_of(options: argparse.Namespace, benchmark: str) -> str:
    """What its results are called."""
    backend = jax.default_backend()
    kind = "" if options.setting == "own" else f"-{options.setting}"
    return options.name or f"{benchmark}{kind}-{backend}"


@contextlib.contextmanager
def peer_of(
    options: argparse.Namespace, setting: Setting | None, *, seeds: int
) -> Iterator[peer.Peer | None]:
    """PyTorch's part in a benchmark; None where it is not there, or without setting."""
    python = options.torch or sys.executable
    missing = not options.torch and importlib.util.find_spec("torch") is None
    if options.torch == "no" or missing or setting is None:
        yield None
        return
    half = is_half(options.precision)
    made = peer.Peer(
        python, setting, seeds=seeds, precision="bfloat16" if half else "float32"
    )
    try:
        yield made
    finally:
        made.close()


def is_half(precision: str) -> bool:
    """Whether convolutions compute in bfloat16."""
    return mesh.dtype(precision) == jax.numpy.bfloat16


def same_size(trainer: Trainer, facts: Mapping[str, Any]) -> None:
    """Refuses to compare networks of different sizes."""
    ours = sum(x.size for x in jax.tree.leaves(trainer.states[0].params["net"]))
    if ours != facts["parameters"]:
        raise SystemExit(
            f"benchmarks: our network has {ours} parameters, PyTorch's "
            f"{facts['parameters']}"
        )


def repeated(run: Callable[[int], Any], steps: int) -> Callable[[], Any]:
    """A turn of that many steps."""
    return functools.partial(run, steps)
