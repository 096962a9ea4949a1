"""How fast training sets reach the device, and whether a step waits for them.

    python -m benchmarks.feeds --root=DIR [--split=val] [--size=224] [--seeds=3]

`--root` is a folder of images by split and class. Streams: images a second that arrive
on the device for one seed and for several, cut on the host and by windows, beside the
rate at which the same threads only decode and cut; all take turns. A window holds a
quarter of a turn's steps, so that the set must have several. In memory: the step of a
small network with and without taking each batch from the set, in turns; where both take
as long, nothing waits. Ratios are medians of those within a round. Writes benchmarks/results/feeds-<device>.json and .md.
"""

import argparse
import pathlib
import statistics
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import jax

from benchmarks import measured
from jbias import run_spec
from jbias.data import loader
from jbias.runtime import mesh
from jbias.training import input_plan, prng, samplers, setup, stages


def config(options: argparse.Namespace, count: int, **train: Any) -> dict[str, Any]:
    """A run of a small network on the folder."""
    from jbias.configs import erm

    c = erm.get_config(f"data=folder,root={options.root},seeds={count}")
    c.size, c.epochs = options.size, 1000.0
    c.model = dict(name="cnn", width=8)
    with c.unlocked():
        c.train = dict(
            data="folder",
            root=options.root,
            split=options.split,
            batch=options.batch,
            **train,
        )
    return c.to_dict()


def stage(config: Mapping[str, Any]) -> stages.Stage:
    """Its only stage, on all devices."""
    spec = run_spec.RunSpec.from_config(config)
    (opened,) = setup.open_train_sets(spec)
    images = {}
    if "crop" not in config["train"]:
        reading = stages.reader_options(config["run"]["loading"], mesh.make())
        images = {
            name: loader.decode_all(one, workers=reading.threads)
            for name, one in opened.named(0).items()
        }
    plans = input_plan.plan_stages(spec.stages, [opened])
    (built,) = stages.build_stages(spec, plans, images, mesh.make())
    return built


def arriving(built: stages.Stage, which: tuple[int, ...], steps: int) -> Callable:
    """Brings some steps' batches of all seeds onto the device; returns how many.

    Begins anew each time, so that nothing is read ahead in another's turn.
    """

    def bring() -> int:
        for step in range(steps):
            held = built.shared(step)["train"]
            for seed in which:
                taken = built.batch(seed, step)["train"]
                jax.block_until_ready(taken if isinstance(taken, dict) else held)
        built.close()
        return steps * len(which) * built.order.batch

    return bring


def decoding(built: stages.Stage, steps: int, threads: int) -> Callable:
    """Decodes and cuts as many images by bare threads, and brings them nowhere."""
    reader = built.pipelines["train"].read

    def bring() -> int:
        with futures.ThreadPoolExecutor(threads) as pool:
            rows = [
                (step, 0, slice(row, row + 1))
                for step in range(steps)
                for row in range(built.order.batch)
            ]
            return len(list(pool.map(lambda one: reader(*one), rows)))

    return bring


def in_turns(ways: Mapping[str, Callable], rounds: int) -> dict[str, list[float]]:
    """Images a second of each way, in each round."""
    images = {name: way() for name, way in ways.items()}
    seconds = measured.in_turns(ways, rounds, warm=1)
    return {name: [images[name] / s for s in each] for name, each in seconds.items()}


class Training:
    """Steps of a small network on a set in memory, and the same on given batches."""

    def __init__(self, built: stages.Stage, *, given: bool):
        self.built, self.step = built, 0
        self.step_once = jax.jit(built.program.step, static_argnums=3, donate_argnums=0)
        self.state, self.key = built.init_state(0), prng.key(0)
        self.given = None
        if given:
            held, taken = built.shared(0)["train"], built.batch(0, 0)["train"]
            rows = {name: column[taken] for name, column in held.items()}
            self.given = {"train": {**rows, "index": jax.numpy.asarray(taken)}}

    def run(self, steps: int = 8) -> int:
        """Takes some steps; returns their images."""
        held = {"train": {}} if self.given else self.built.shared(self.step)
        for i in range(steps):
            arg = self.key, self.given or self.built.batch(0, self.step + i)
            self.state, _ = self.step_once(self.state, arg, held, None)
        jax.block_until_ready(self.state)
        self.step += steps
        return steps * self.built.order.batch


def streams(options: argparse.Namespace) -> dict[str, list[float]]:
    """Rates of everything that streams, in turns."""
    several, steps = tuple(range(options.seeds)), options.steps
    window = dict(crop="device", window=steps // 4 * options.batch)
    host, host_several, device = (
        stage(config(options, count, **cut))
        for count, cut in (
            (1, dict(crop="host")),
            (options.seeds, dict(crop="host")),
            (options.seeds, window),
        )
    )
    if not isinstance(device.order, samplers.WindowSampler):
        raise SystemExit("benchmarks.feeds: the set must be larger than a window")
    threads = stages.reader_options(
        config(options, 1)["run"]["loading"], mesh.make()
    ).threads
    ways = {
        f"decoding and cropping alone, {threads} threads": decoding(
            host, steps, threads
        ),
        'crop="host", 1 seed': arriving(host, (0,), steps),
        f'crop="host", {options.seeds} seeds': arriving(host_several, several, steps),
        f'crop="device", {options.seeds} seeds': arriving(device, several, steps),
    }
    return in_turns(ways, options.rounds)


def memory(options: argparse.Namespace) -> dict[str, list[float]]:
    """Rates of steps that take their batches from memory, and that have them."""
    from jbias.configs import erm

    c = erm.get_config("seeds=1").to_dict()
    (built,) = (stage(c),)
    ways = {
        "steps, from a set in memory": Training(built, given=False).run,
        "steps, on one batch that is there": Training(built, given=True).run,
    }
    return in_turns(ways, 3 * options.rounds)


def table(found: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Rates and their ratios to the first of each part, as Markdown."""
    rows = []
    for rates in found.values():
        for name, several in rates.items():
            rate, ratio = statistics.median(several), against_first(rates, name)
            rows.append((name, f"{rate:,.0f}", f"{ratio:.2f}"))
    return measured.markdown(("what", "images/s", "of the first"), rows)


def against_first(rates: Mapping[str, list[float]], name: str) -> float:
    """The median ratio within a round."""
    first = next(iter(rates.values()))
    return statistics.median(a / b for a, b in zip(rates[name], first))


def main() -> None:
    """Measures, prints and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--root", required=True)
    add("--split", default="val")
    add("--size", type=int, default=224)
    add("--batch", type=int, default=32)
    add("--seeds", type=int, default=3)
    add("--steps", type=int, default=16, help="batches of each seed in a turn")
    add("--rounds", type=int, default=7)
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    found = {"streams": streams(options), "memory": memory(options)}
    ratios = {
        f"{name} / {next(iter(rates))}": against_first(rates, name)
        for rates in found.values()
        for name in rates
    }
    told = {k: v for k, v in vars(options).items() if k not in ("root", "out")}
    measured.write(
        f"feeds-{jax.default_backend()}",
        found,
        table(found),
        ratios=ratios,
        out=options.out,
        options=told,
    )


if __name__ == "__main__":
    main()
