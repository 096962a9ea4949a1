"""Where a step's time goes, the host or the device, by seeds, strategy and scanned steps.

    python -m benchmarks.probe --setting=cifar16 --ways=alone,uc10,alone+scan8,uc10+scan8
        [--batch=N] [--precision=bfloat16] [--steps=32] [--rounds=5] [--out=DIR --name=NAME]

A way is `alone` (one seed), or a strategy and seeds: ucN (unrolled_convolutions), vmN
(vmapped), loN (looped), unN (unrolled). +scanK makes K steps one program. Printed for each:
milliseconds a step until the last dispatch has returned (host) and until all is computed
(step), medians of rounds that take turns, and images a second of all seeds. Where host is
near step, the host's launches bound it. XLA_FLAGS are taken as they are. Takes a minute or
two a way, most of it compiling.
"""

import argparse
import dataclasses
import pathlib
import statistics
import time
from typing import NamedTuple

import jax

from benchmarks import common, measured, settings
from jbias.runtime import mesh, xla
from jbias.training import stages

STRATEGIES = {
    "uc": "unrolled_convolutions",
    "vm": "vmapped",
    "lo": "looped",
    "un": "unrolled",
}
DISPATCHED = 8  # Steps a dispatch, as runs have it by default.


class Way(NamedTuple):
    """How seeds are trained: their number, a strategy, and steps that are one program."""

    name: str
    seeds: int
    strategy: str
    scanned: int


def parse_way(text: str) -> Way:
    """Return the way of a name such as alone+scan8 or uc10; ValueError for another."""
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
    """Trains the seeds of a way, and times it."""

    def __init__(self, way: Way, setting: settings.Setting, precision: str):
        self.way, which = way, tuple(range(way.seeds))
        stage = common.stage_of("erm", setting, which=which, precision=precision)
        self.stage = stages.fit_to_devices(
            common.with_seeds(stage, which),
            mesh.make(1),
            strategy=way.strategy,
            scanned=way.scanned,
        )
        self.states, self.step = self.stage.start(), 0
        self.seconds: list[tuple[float, float]] = []  # A round: host, and all.

    def run(self, steps: int) -> tuple[float, float]:
        """Take steps; return the seconds of the host's dispatches, and until all is done."""
        stage, at_once = self.stage, self.way.scanned or DISPATCHED
        began = time.perf_counter()
        last = self.step + steps
        for step in range(self.step, last, at_once):
            args = stage.batches(step, min(at_once, last - step))
            held, static = stage.shared(step), stage.static(step)
            self.states, _ = stage.advance(self.states, args, held, static)
        dispatched = time.perf_counter() - began
        jax.block_until_ready(self.states)
        self.step += steps
        return dispatched, time.perf_counter() - began


def describe(probe: Probe, steps: int, batch: int) -> dict[str, float | str]:
    """Return the medians of a probe's rounds, in milliseconds a step."""
    host, step = (
        1e3 * statistics.median(x) / steps for x in zip(*probe.seconds, strict=True)
    )
    return {
        "way": probe.way.name,
        "host_ms": round(host, 3),
        "step_ms": round(step, 3),
        "images_per_second": round(1e3 * probe.way.seeds * batch / step),
    }


def main() -> None:
    """Time all ways in turn; print and write a table."""
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
    add("--out", type=pathlib.Path, default=measured.RESULTS)
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
    found = [describe(probe, args.steps, setting.batch) for probe in probes]
    table = measured.markdown(
        tuple(found[0]), (map(str, row.values()) for row in found)
    )
    measured.write(args.name, found, table, ratios={}, out=args.out)


if __name__ == "__main__":
    main()
