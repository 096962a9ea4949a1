"""Measure how fast training sets reach the device, and whether a step waits for them.

    python -m benchmarks.feeds --root=DIR [--split=val] [--size=224] [--seeds=3]

`--root` is a folder of images by split and class. Streamed sets: images per second that
arrive on the device for one seed and for several, cropped on the host and cropped on the
device from windows, compared with threads that only decode and crop; all take turns. A
window holds a quarter of a turn's steps, so the set must be larger than a window. Sets in
memory: steps of a small network with and without taking each batch from the set, in turns;
if both take as long, no step waits for data. Ratios are medians of the ratios within a
round. Writes benchmarks/results/feeds-<backend>.json and .md.

Takes about five minutes on two cores.
"""

import argparse
import pathlib
import statistics
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import jax

from benchmarks import result_files, timing
from jbias import run_spec
from jbias.data import loader
from jbias.runtime import mesh
from jbias.training import input_plan, prng, samplers, setup, stages


def config(options: argparse.Namespace, num_seeds: int, **train: Any) -> dict[str, Any]:
    """Return the config of a small network on the folder `options.root`.

    train: further entries of the config's `train`.
    """
    from jbias.configs import erm

    c = erm.get_config(f"data=folder,root={options.root},seeds={num_seeds}")
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


def build_stage(config: Mapping[str, Any]) -> stages.Stage:
    """Return the only stage of a config, on all devices."""
    spec = run_spec.RunSpec.from_config(config)
    (train_set,) = setup.open_train_sets(spec)
    images = {}
    if "crop" not in config["train"]:
        reading = stages.reader_options(spec.run.loading, mesh.make())
        images = {
            name: loader.decode_all(source, workers=reading.threads)
            for name, source in train_set.named(0).items()
        }
    plans = input_plan.plan_stages(spec.stages, [train_set])
    (stage,) = stages.build_stages(spec, plans, images, mesh.make())
    return stage


def make_stream(stage: stages.Stage, seeds: tuple[int, ...], steps: int) -> Callable:
    """Return a function that brings `steps` batches of each seed onto the device.

    The function returns the number of images. Each call opens the stream anew, so that
    nothing is read ahead in another variant's turn.
    """

    def stream() -> int:
        for step in range(steps):
            stored = stage.feed.shared(step)["train"]
            for seed in seeds:
                batch = stage.feed.batch(seed, step)["train"]
                # In windows a batch is indices into `stored`.
                jax.block_until_ready(batch if isinstance(batch, dict) else stored)
        stage.feed.close()
        return steps * len(seeds) * stage.order.batch

    return stream


def make_decoding(stage: stages.Stage, steps: int, threads: int) -> Callable:
    """Return a function that decodes and crops `steps` batches of one seed in threads.

    The images are not moved to the device. The function returns their number.
    """
    read = stage.feed.pipelines["train"].read

    def decode() -> int:
        requests = [
            (step, slice(row, row + 1))
            for step in range(steps)
            for row in range(stage.order.batch)
        ]
        with futures.ThreadPoolExecutor(threads) as pool:
            images = pool.map(lambda request: read(request[0], 0, request[1]), requests)
            return len(list(images))

    return decode


def measure_rates(
    variants: Mapping[str, Callable], rounds: int
) -> dict[str, list[float]]:
    """Return images per second of each variant in each round.

    variants: functions that return the number of images of a turn.
    """
    images = {name: variant() for name, variant in variants.items()}
    seconds = timing.in_turns(variants, rounds, warm=1)
    return {
        name: [images[name] / second for second in turns]
        for name, turns in seconds.items()
    }


class Training:
    """Training of a small network on a set in memory.

    reuse_batch: train every step on the first batch, instead of taking one from the set.
    """

    def __init__(self, stage: stages.Stage, *, reuse_batch: bool):
        self.stage, self.step = stage, 0
        self.step_once = jax.jit(stage.program.step, static_argnums=3, donate_argnums=0)
        self.state, self.key = stage.init_state(0), prng.key(0)
        self.batch = None
        if reuse_batch:
            stored, indices = (
                stage.feed.shared(0)["train"],
                stage.feed.batch(0, 0)["train"],
            )
            rows = {name: column[indices] for name, column in stored.items()}
            self.batch = {"train": {**rows, "index": jax.numpy.asarray(indices)}}

    def run(self, steps: int = 8) -> int:
        """Take `steps` training steps; return the number of their images."""
        stored = {"train": {}} if self.batch else self.stage.feed.shared(self.step)
        for i in range(steps):
            batch = self.batch or self.stage.feed.batch(0, self.step + i)
            self.state, _ = self.step_once(self.state, (self.key, batch), stored, None)
        jax.block_until_ready(self.state)
        self.step += steps
        return steps * self.stage.order.batch


def measure_streams(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return images per second of all streamed variants, in each round."""
    seeds, steps = tuple(range(options.seeds)), options.steps
    host = build_stage(config(options, 1, crop="host"))
    host_seeds = build_stage(config(options, options.seeds, crop="host"))
    window = steps // 4 * options.batch
    device = build_stage(config(options, options.seeds, crop="device", window=window))
    if not isinstance(device.order, samplers.WindowSampler):
        raise SystemExit("benchmarks.feeds: the set must be larger than a window")
    loading = run_spec.RunSpec.from_config(config(options, 1)).run.loading
    threads = stages.reader_options(loading, mesh.make()).threads
    decoding = make_decoding(host, steps, threads)
    variants = {
        f"decoding and cropping alone, {threads} threads": decoding,
        'crop="host", 1 seed': make_stream(host, (0,), steps),
        f'crop="host", {options.seeds} seeds': make_stream(host_seeds, seeds, steps),
        f'crop="device", {options.seeds} seeds': make_stream(device, seeds, steps),
    }
    return measure_rates(variants, options.rounds)


def measure_memory(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return images per second of training steps with a set in memory, in each round."""
    from jbias.configs import erm

    stage = build_stage(erm.get_config("seeds=1").to_dict())
    variants = {
        "steps, from a set in memory": Training(stage, reuse_batch=False).run,
        "steps, on one batch that is there": Training(stage, reuse_batch=True).run,
    }
    return measure_rates(variants, 3 * options.rounds)


def table(rates_by_part: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return rates, and their ratios to the first of each part, as Markdown."""
    rows = []
    for rates in rates_by_part.values():
        for name, rate_by_round in rates.items():
            rate = statistics.median(rate_by_round)
            ratio = ratio_to_first(rates, name)
            rows.append((name, f"{rate:,.0f}", f"{ratio:.2f}"))
    return result_files.markdown(("variant", "images/s", "of the first"), rows)


def ratio_to_first(rates: Mapping[str, list[float]], name: str) -> float:
    """Return the median over rounds of a variant's rate divided by the first variant's."""
    first = next(iter(rates.values()))
    return statistics.median(a / b for a, b in zip(rates[name], first, strict=True))


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--root",
        required=True,
        metavar="DIR",
        help="folder of images, by split and class",
    )
    add("--split", default="val", help="split to read (default: %(default)s)")
    add(
        "--size",
        type=int,
        default=224,
        help="image side in pixels (default: %(default)s)",
    )
    add("--batch", type=int, default=32, help="images per batch (default: %(default)s)")
    add("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    add(
        "--steps",
        type=int,
        default=16,
        help="batches of each seed in a turn (default: %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        default=7,
        help="rounds in which all variants take a turn (default: %(default)s)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder for the results (default: benchmarks/results)",
    )
    options = parser.parse_args()
    rates_by_part = {
        "streams": measure_streams(options),
        "memory": measure_memory(options),
    }
    ratios = {
        f"{name} / {next(iter(rates))}": ratio_to_first(rates, name)
        for rates in rates_by_part.values()
        for name in rates
    }
    written_options = {
        name: value
        for name, value in vars(options).items()
        if name not in ("root", "out")
    }
    result_files.write(
        f"feeds-{jax.default_backend()}",
        rates_by_part,
        table(rates_by_part),
        ratios=ratios,
        out=options.out,
        options=written_options,
    )


if __name__ == "__main__":
    main()
