"""Measure how training steps scale over devices: bytes between them, times, a model of a pod.

    python -m benchmarks.scaling [--setting=shapes] [--algorithms=erm,sagnet] [--devices=8]
        [--steps=4] [--rounds=3] [--seconds=0.085] [--count-only]

First, for every algorithm of configs/: bytes of all collectives in the step that XLA
compiles for `--devices` devices (emulated on a CPU, in a process of its own), divided by
the bytes of the gradients; see benchmarks/collectives.py. Second, ERM's step on 1, 2, 4 and
8 emulated devices in turns, with the same batch: the devices share the cores of one CPU, so
the times show the overhead of distribution there, and nothing about separate devices.
Third, a model of a pod in which each chip has the setting's batch. With a step of `t`
seconds on one chip (--seconds, measured there; default: measured here), `c` bytes of
collectives, and a link of `w` bytes per second each way,

    efficiency = t / (t + 2 (n - 1) / n c / w)     if nothing overlaps,
    efficiency = t / max(t, 2 (n - 1) / n c / w)   if everything does,

since a ring moves each byte of a sum twice. The model leaves out the latency of collectives
and input from the host. Writes benchmarks/results/scaling-<setting>-<backend>.json and .md.

Takes about ten minutes on two cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import types
from collections.abc import Mapping
from typing import Any

import jax

from benchmarks import collectives, common, result_files, timing
from jbias.runtime import mesh

# Bytes per second that a chip sends, over all links. It receives as many.
LINKS: Mapping[str, float] = types.MappingProxyType(
    {
        "TPU v4": 150e9,
        "TPU v5e": 100e9,
        "TPU v5p": 300e9,
        "NVLink 4 (H100, H200)": 450e9,
        "InfiniBand NDR, one port a GPU": 50e9,
    }
)
CHIPS = (8, 64, 256)
COUNTS = (1, 2, 4, 8)
# Files of configs/ that are no config, or whose data set is not embedded.
NOT_MEASURED = {
    "__init__",
    "common",
    "datasets",
    "deepaugment",
    "sin_in",
}


def count_bytes(algorithm: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the bytes of a step's collectives, in total and by role, and of its gradients."""
    setting, devices = common.setting_of(options), mesh.make(options.devices)
    stage = common.stage_of(
        algorithm, setting, precision=options.precision, devices=options.devices
    )
    traced = collectives.trace_step(
        stage.program.step,
        stage.program.draw,
        stage.feed.shared(0),
        stage.order.batch,
        stage.static(0),
        devices,
    )
    text = traced.lower().compile(collectives.QUICKLY).as_text()
    outputs = collectives.collective_outputs(text)
    params = jax.eval_shape(stage.program.draw, jax.random.key(0), None).params
    gradients = collectives.gradient_bytes(stage.algo, params)
    total = sum(output.bytes for output in outputs)
    return {
        "bytes": total,
        "gradients": gradients,
        "of_gradients": total / gradients,
        "collectives": sum(output.times or 1 for output in outputs),
        **collectives.by_role(outputs),
    }


def time_steps(options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds of ERM's step on 1, 2, 4, ... devices, in each round."""
    setting, variants = common.setting_of(options), {}
    for count in COUNTS:
        if count <= options.devices:
            stage = common.stage_of(
                "erm", setting, precision=options.precision, devices=count
            )
            trainer = common.Trainer(stage, devices=mesh.make(count), strategy="looped")
            variants[str(count)] = common.repeated(trainer.run, options.steps)
    seconds = timing.in_turns(variants, options.rounds)
    return {
        name: [turn / options.steps for turn in turns]
        for name, turns in seconds.items()
    }


def run_child(part: str) -> Any:
    """Run a part in a new process with emulated devices; return its result."""
    flags = collectives.HOST_DEVICES.format(8)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", *sys.argv[1:], f"--part={part}"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def model_pod(seconds: float, num_bytes: int) -> dict[str, dict[str, list[float]]]:
    """Return efficiencies [without overlap, with overlap] by link and number of chips.

    seconds: time of a step on one chip. num_bytes: bytes of its collectives.
    """
    efficiencies = {}
    for link, rate in LINKS.items():
        efficiencies[link] = {}
        for chips in CHIPS:
            transfer_seconds = 2 * (chips - 1) / chips * num_bytes / rate
            efficiencies[link][str(chips)] = [
                seconds / (seconds + transfer_seconds),
                seconds / max(seconds, transfer_seconds),
            ]
    return efficiencies


def tables(results: Mapping[str, Any]) -> str:
    """Return all results as Markdown."""
    names = ("bytes", "gradients", "of_gradients", "norm", "scalars", "collectives")
    rows = [
        (name, *(f"{r[k]:.3f}" if k == "of_gradients" else f"{r[k]:,}" for k in names))
        for name, r in results["moved"].items()
    ]
    head = (
        "bytes of a step",
        "of all",
        "gradients",
        "ratio",
        "norms",
        "scalars",
        "number",
    )
    text = result_files.markdown(head, rows)
    if results["steps"]:
        medians = {n: statistics.median(turns) for n, turns in results["steps"].items()}
        rows = [
            (n, f"{1000 * seconds:.1f}", f"{medians['1'] / seconds:.2f}")
            for n, seconds in medians.items()
        ]
        text += "\n" + result_files.markdown(("devices", "ms a step", "of one"), rows)
    if results["pod"]:
        rows = []
        for link, by_chips in results["pod"].items():
            ranges = [[f"{e:.3f}" for e in by_chips[str(n)]] for n in CHIPS]
            rows.append((link, *map(" to ".join, ranges)))
        head = ("modelled efficiency", *(f"{n} chips" for n in CHIPS))
        text += "\n" + result_files.markdown(head, rows)
    return text


def main() -> None:
    """Measure each part in a process of its own, print and write the results."""
    parser = common.parser(__doc__, steps=4, rounds=3)
    known = {
        path.stem for path in (result_files.RESULTS.parents[1] / "configs").glob("*.py")
    }
    parser.add_argument(
        "--algorithms",
        default=",".join(sorted(known - NOT_MEASURED)),
        help="configs to count bytes of, with commas (default: all algorithms)",
    )
    parser.add_argument(
        "--devices", type=int, default=8, help="emulated devices (default: 8)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="seconds of a step on one chip, for the model (default: measured here)",
    )
    parser.add_argument(
        "--count-only", action="store_true", help="count bytes, do not time steps"
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)  # moved:NAME, or steps.
    options = parser.parse_args()
    if options.part:
        part, _, name = options.part.partition(":")
        is_count = part == "moved"
        result = count_bytes(name, options) if is_count else time_steps(options)
        print(json.dumps(result))
        return
    counts = {}
    for name in options.algorithms.split(","):
        counts[name] = run_child(f"moved:{name}")
        ratio = counts[name]["of_gradients"]
        print(f"{name}: {ratio:.3f} of the gradients", flush=True)
    step_seconds = {} if options.count_only else run_child("steps")
    seconds = options.seconds
    if step_seconds and not seconds:
        seconds = statistics.median(step_seconds["1"])
    first = next(iter(counts.values()))
    pod = {}
    if seconds:
        pod = model_pod(seconds, counts.get("erm", first)["bytes"])
    results = {
        "moved": counts,
        "steps": step_seconds,
        "pod": pod,
        "seconds": seconds,
    }
    result_files.write(
        common.name_of(options, "scaling"),
        results,
        tables(results),
        ratios={f"gradients / {k}": 1 / r["of_gradients"] for k, r in counts.items()},
        out=options.out,
        **common.describe_options(options, common.setting_of(options)),
    )


if __name__ == "__main__":
    main()
