"""Measure one training's steps with 1, 2 and 4 processes, and the bytes between them.

    python -m benchmarks.processes [--setting=shapes] [--algorithm=erm] [--counts=1,2,4]
        [--steps=4] [--rounds=5]

Each count is a group of processes that meet on the loopback interface, as the processes of
`jbias train --coordinator=... --processes=N --process=I` do. Each process has one CPU
device and its share of the same batch. All groups stay alive and take turns. They share the
cores of one machine, so the times show the overhead of processes there, and nothing about
separate machines. Bytes are counted twice: those of all collectives in the compiled step
(benchmarks/collectives.py), of which n processes that sum in rings send 2 (n - 1) times as
many in total, and those that the loopback interface sent during a group's turn, including
other traffic. Writes benchmarks/results/processes-<setting>-<backend>.json and .md.

Takes about three minutes on two cores.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any

from benchmarks import collectives, common, result_files, timing
from jbias import config as jc
from jbias.runtime import mesh, processes

NETWORK_COUNTERS = pathlib.Path("/proc/net/dev")
PREFIX = "result: "  # Begins a line of JSON on a child's standard output.


class Group:
    """Processes that train together and wait for a line of input before each turn.

    sent: bytes per step on the loopback interface, for each turn. child_facts: images of a
    step, and bytes of its collectives, as the first process reports them.
    """

    def __init__(self, count: int, options: argparse.Namespace):
        self.steps, self.sent = options.steps, []
        command = [sys.executable, "-m", "benchmarks.processes", *sys.argv[1:]]
        address = f"localhost:{processes.free_port()}"
        self._children = [
            subprocess.Popen(
                [*command, f"--part={address},{count},{number}"],
                env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(count)
        ]
        replies = [self._read_reply(child) for child in self._children]
        self.child_facts = replies[0]

    def turn(self) -> None:
        """Take the steps of a turn, and count the bytes between the processes."""
        start_bytes = _loopback_bytes()
        for child in self._children:
            print(self.steps, file=child.stdin, flush=True)
        for child in self._children:
            self._read_reply(child)
        self.sent.append((_loopback_bytes() - start_bytes) / self.steps)

    def close(self) -> None:
        """End the processes."""
        for child in self._children:
            child.stdin.close()
        for child in self._children:
            child.wait()

    @staticmethod
    def _read_reply(child: subprocess.Popen) -> Any:
        """Return the next result that a child prints."""
        for line in child.stdout:
            if line.startswith(PREFIX):
                return json.loads(line.removeprefix(PREFIX))
        raise SystemExit(
            "benchmarks.processes: a process ended; see its messages above"
        )


def _loopback_bytes() -> int:
    """Return the bytes that the loopback interface has sent; 0 if unknown."""
    if not NETWORK_COUNTERS.exists():
        return 0
    for line in NETWORK_COUNTERS.read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def run_child(options: argparse.Namespace) -> None:
    """Train as a process of a group: read numbers of steps until standard input ends."""
    address, count, number = options.part.split(",")
    process_id = processes.ProcessId(address, int(count), int(number))

    def report_failure(line: str, code: int) -> None:
        print(line, code, file=sys.stderr)

    with processes.join(process_id, dict, report_failure, describe_differences=jc.diff):
        setting, devices = common.setting_of(options), mesh.make()
        config = common.configured(
            options.algorithm,
            setting,
            which=(0,),
            precision="auto",
            devices=process_id.count,
        )
        stage = common.built(config, devices)
        trainer = common.Trainer(stage, devices=devices, strategy="looped")
        traced = collectives.trace_step(
            stage.program.step,
            stage.program.draw,
            stage.feed.shared(0),
            stage.order.batch,
            stage.static(0),
            devices,
        )
        outputs = collectives.collective_outputs(
            traced.lower().compile(collectives.QUICKLY).as_text()
        )
        num_bytes = sum(output.bytes for output in outputs)
        _print_result({"images": trainer.images, "bytes": num_bytes})
        for line in sys.stdin:
            trainer.run(int(line))
            _print_result(None)


def _print_result(value: Any) -> None:
    """Print a line that `Group` reads."""
    print(f"{PREFIX}{json.dumps(value)}", flush=True)


def main() -> None:
    """Measure, print and write the results."""
    parser = common.parser(__doc__, steps=4, rounds=5)
    parser.add_argument(
        "--algorithm", default="erm", help="algorithm to train (default: erm)"
    )
    parser.add_argument(
        "--counts",
        default="1,2,4",
        help="numbers of processes, with commas (default: 1,2,4)",
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return run_child(options)
    counts = [int(count) for count in options.counts.split(",")]
    groups = {str(count): Group(count, options) for count in counts}
    variants = {name: group.turn for name, group in groups.items()}
    seconds = timing.in_turns(variants, options.rounds)
    images = {
        name: group.child_facts["images"] * options.steps
        for name, group in groups.items()
    }
    base = str(counts[0])
    rates, rows = timing.against(seconds, base, images), []
    for name, group in groups.items():
        group.close()
        rate, collective_bytes = rates[name], group.child_facts["bytes"]
        sent = statistics.median(group.sent[-options.rounds :])
        rate |= {"collectives": collective_bytes, "sent": sent}
        ring_bytes = 2 * (int(name) - 1) * collective_bytes
        row = (
            name,
            f"{rate['images_per_second']:,.1f}",
            f"{rate['ratio']:.2f}",
            f"{rate['lowest']:.2f} to {rate['highest']:.2f}",
            f"{collective_bytes / 1e6:.2f}",
            f"{ring_bytes / 1e6:.2f}",
            f"{sent / 1e6:.2f}",
        )
        rows.append(row)
    head = (
        "processes",
        "images/s",
        f"of {base}",
        "within a round",
        "MB summed a step",
        "MB sent by rings",
        "MB seen on loopback",
    )
    setting = common.setting_of(options)
    result_files.write(
        common.name_of(options, "processes"),
        {"seconds": seconds, "against": rates},
        result_files.markdown(head, rows),
        ratios={f"{name} / {base}": rate["ratio"] for name, rate in rates.items()},
        out=options.out,
        algorithm=options.algorithm,
        **common.describe_options(options, setting),
    )
    return None


if __name__ == "__main__":
    main()
