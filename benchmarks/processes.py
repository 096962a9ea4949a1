"""Steps of one training by 1, 2 and 4 processes side by side, and bytes between them.

    python -m benchmarks.processes [--setting=shapes] [--algorithm=erm] [--counts=1,2,4]
        [--steps=4] [--rounds=5]

Each count is a group of processes that meet on the loopback interface as those of
`python -m jbias.main --coordinator=... --processes=N --process=I` do, each with one CPU
device and its share of the same batch. All groups stay up and take turns. They share the
cores of one machine: so this tells what processes cost there, and nothing of machines of
their own. Bytes are counted twice: those of all collectives in the compiled step
(benchmarks/collectives.py), of which n processes that sum in rings send 2 (n - 1) times
as many in all, and those that the loopback interface saw while a group had its turn, with
whatever else used it then. Writes benchmarks/results/processes-<setting>-<backend>.json
and .md.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

from benchmarks import collectives, common, measured
from jbias import config as jc
from jbias.runtime import mesh, processes

DEVICES = pathlib.Path("/proc/net/dev")


class Group:
    """Processes that train together, step by step when they are told."""

    def __init__(self, count: int, options: argparse.Namespace):
        self.steps, self.sent = options.steps, []
        command = [sys.executable, "-m", "benchmarks.processes", *sys.argv[1:]]
        address = f"localhost:{processes.free_port()}"
        self._all = [
            subprocess.Popen(
                [*command, f"--part={address},{count},{number}"],
                env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]
        words = [self._word(one) for one in self._all]
        self.facts = words[0]

    def turn(self) -> None:
        """Takes some steps, and counts what passed between the processes."""
        before = _looped()
        for one in self._all:
            print(self.steps, file=one.stdin, flush=True)
        for one in self._all:
            self._word(one)
        self.sent.append((_looped() - before) / self.steps)

    def close(self) -> None:
        """Ends them."""
        for one in self._all:
            one.stdin.close()
        for one in self._all:
            one.wait()

    @staticmethod
    def _word(one: subprocess.Popen) -> Any:
        for line in one.stdout:
            if line.startswith("told "):
                return json.loads(line.removeprefix("told "))
        raise SystemExit("benchmarks.processes: a process ended; see what it said")


def _looped() -> int:
    """Bytes that the loopback interface has sent."""
    for line in DEVICES.read_text().splitlines() if DEVICES.exists() else ():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def child(options: argparse.Namespace) -> None:
    """One process of a group: steps as its standard input says, until that ends."""
    address, count, number = options.part.split(",")
    where = processes.ProcessId(address, int(count), int(number))

    def tell(line: str, code: int) -> None:
        print(line, code, file=sys.stderr)

    with processes.join(where, dict, tell, describe_differences=jc.diff):
        setting, devices = common.setting_of(options), mesh.make()
        config = common.configured(
            options.algorithm,
            setting,
            which=(0,),
            precision="auto",
            devices=where.count,
        )
        stage = common.built(config, devices)
        trainer = common.Trainer(stage, devices=devices, strategy="looped")
        traced = collectives.trace_step(
            *(
                stage.program.step,
                stage.program.draw,
                stage.shared(0),
                stage.order.batch,
                stage.static(0),
            ),
            devices,
        )
        moved = collectives.collective_outputs(
            traced.lower().compile(collectives.QUICKLY).as_text()
        )
        _say({"images": trainer.images, "bytes": sum(one.bytes for one in moved)})
        for line in sys.stdin:
            trainer.run(int(line))
            _say(None)


def _say(word: Any) -> None:
    print(f"told {json.dumps(word)}", flush=True)


def main() -> None:
    """Measures, prints and writes."""
    parser = common.parser(__doc__, steps=4, rounds=5)
    parser.add_argument("--algorithm", default="erm")
    parser.add_argument("--counts", default="1,2,4", help="of processes")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return child(options)
    counts = [int(count) for count in options.counts.split(",")]
    groups = {str(count): Group(count, options) for count in counts}
    ways = {name: group.turn for name, group in groups.items()}
    seconds = measured.in_turns(ways, options.rounds)
    images = {
        name: group.facts["images"] * options.steps for name, group in groups.items()
    }
    base = str(counts[0])
    found, rows = measured.against(seconds, base, images), []
    for name, group in groups.items():
        group.close()
        one, counted = found[name], group.facts["bytes"]
        sent = statistics.median(group.sent[-options.rounds :])
        found[name] |= {"collectives": counted, "sent": sent}
        rows.append(
            (
                *(name, f"{one['images_per_second']:,.1f}", f"{one['ratio']:.2f}"),
                f"{one['lowest']:.2f} to {one['highest']:.2f}",
                *(f"{counted / 1e6:.2f}", f"{2 * (int(name) - 1) * counted / 1e6:.2f}"),
                f"{sent / 1e6:.2f}",
            )
        )
    head = ("processes", "images/s", f"of {base}", "within a round")
    head += ("MB summed a step", "MB sent by rings", "MB seen on loopback")
    setting = common.setting_of(options)
    measured.write(
        common.name_of(options, "processes"),
        {"seconds": seconds, "against": found},
        measured.markdown(head, rows),
        ratios={f"{name} / {base}": one["ratio"] for name, one in found.items()},
        out=options.out,
        algorithm=options.algorithm,
        **common.describe_options(options, setting),
    )
    return None


if __name__ == "__main__":
    main()
