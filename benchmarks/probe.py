"""Time training steps on host and device, by seeds, strategy and scanned steps.

    python -m benchmarks.probe --setting=cifar16 --ways=alone,uc10,alone+scan8,uc10+scan8
        [--batch=N] [--precision=bfloat16] [--steps=32] [--rounds=5] [--out=DIR --name=NAME]

A way is `alone` (one seed), or a strategy and a number of seeds: ucN
(unrolled_convolutions), vmN (vmapped), loN (looped), unN (unrolled). +scanK makes K steps
one program. Printed for each way: milliseconds per step until the last dispatch has
returned (host) and until all is computed (step), images per second of all seeds (medians of
rounds that take turns), and what runs as CUDA graphs. If host is close to step, the host
limits the rate. The exit code is 1 if a capture failed. XLA_FLAGS are used as they are.
Writes DIR/NAME.json and .md.

Takes one or two minutes per way on a GPU, most of them for compilation.
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys
import time
from typing import NamedTuple

import jax

from benchmarks import common, result_files, settings
from jbias.runtime import cuda_graphs, mesh, xla
from jbias.training import placement

STRATEGIES = {
    "uc": "unrolled_convolutions",
    "vm": "vmapped",
    "lo": "looped",
    "un": "unrolled",
}
DISPATCHED = 8  # Steps a dispatch, as runs have it by default.


class Way(NamedTuple):
    """A way to train: number of seeds, strategy, and steps in one program (0: no loop)."""

    name: str
    seeds: int
    strategy: str
    scanned: int


def parse_way(text: str) -> Way:
    """Return the way with a name such as alone+scan8 or uc10; ValueError if it has none."""
    head, _, scan = text.partition("+scan")
    try:
        if head == "alone":
            return Way(text, 1, "looped", int(scan or 0))
        return Way(text, int(head[2:]), STRATEGIES[head[:2]], int(scan or 0))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"--ways: must be alone or {', '.join(STRATEGIES)} with a number, and +scanK, "
            f"got {text!r}"
        ) from error


class Probe:
    """A training run of ERM by one way, with the times of its rounds.

    seconds: per round, the seconds until the last dispatch and until all is computed.
    """

    def __init__(self, way: Way, setting: settings.Setting, precision: str):
        self.way = way
        seeds = tuple(range(way.seeds))
        stage = common.stage_of("erm", setting, which=seeds, precision=precision)
        self.placed = placement.fit_to_devices(
            common.with_seeds(stage, seeds),
            mesh.make(1),
            strategy=way.strategy,
            scanned=way.scanned,
        )
        self.states = self.placed.start()
        self.step = 0
        self.seconds: list[tuple[float, float]] = []

    def run(self, steps: int) -> tuple[float, float]:
        """Take steps; return the seconds until the last dispatch, and until all is computed."""
        laid = self.placed
        steps_per_dispatch = self.way.scanned or DISPATCHED
        began = time.perf_counter()
        last = self.step + steps
        for step in range(self.step, last, steps_per_dispatch):
            steps = laid.take(step, min(steps_per_dispatch, last - step))
            self.states, _ = laid.advance(self.states, steps)
        dispatched = time.perf_counter() - began
        jax.block_until_ready(self.states)
        self.step += steps
        return dispatched, time.perf_counter() - began


def describe(probe: Probe, steps: int, batch: int) -> dict[str, float | str]:
    """Return the medians of a probe's rounds, in milliseconds per step."""
    host_seconds, all_seconds = zip(*probe.seconds, strict=True)
    host = 1e3 * statistics.median(host_seconds) / steps
    step = 1e3 * statistics.median(all_seconds) / steps
    return {
        "way": probe.way.name,
        "host_ms": round(host, 3),
        "step_ms": round(step, 3),
        "images_per_second": round(1e3 * probe.way.seeds * batch / step),
        "graphs": cuda_graphs.describe(),
    }


def main() -> int:
    """Time all ways in turn; print and write a table. Return 1 if a capture failed, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--setting", default="cifar16", choices=settings.SETTINGS)
    add("--ways", default="alone,uc10,alone+scan8,uc10+scan8")
    add("--steps", type=int, default=32)
    add("--rounds", type=int, default=5)
    add("--precision", default="bfloat16")
    add("--batch", type=int)
    add("--torch", help="taken for the sake of benchmarks.gpu, and not used")
    add("--out", type=pathlib.Path, default=result_files.RESULTS)
    add("--name", default="probe")
    args = parser.parse_args()
    xla.set_flags()
    setting = settings.SETTINGS[args.setting]
    if args.batch:
        setting = dataclasses.replace(setting, batch=args.batch)
    probes = []
    for way in map(parse_way, args.ways.split(",")):
        began = time.perf_counter()
        probe = Probe(way, setting, args.precision)
        for _ in range(2):  # Compiles, then warms up.
            probe.run(args.steps)
        print(
            f"{way.name}: ready after {time.perf_counter() - began:.1f} s", flush=True
        )
        probes.append(probe)
    for _ in range(args.rounds):
        for probe in probes:
            probe.seconds.append(probe.run(args.steps))
    rows = [describe(probe, args.steps, setting.batch) for probe in probes]
    table = result_files.markdown(
        tuple(rows[0]), (map(str, row.values()) for row in rows)
    )
    result_files.write(args.name, rows, table, ratios={}, out=args.out)
    return int(bool(cuda_graphs.failures))


if __name__ == "__main__":
    sys.exit(main())
