"""How steps spread over devices: bytes between them, steps on 1 to 8, a model of a pod.

    python -m benchmarks.scaling [--setting=shapes] [--algorithms=erm,sagnet] [--devices=8]
        [--steps=4] [--rounds=3] [--seconds=0.085] [--count-only]

Bytes of all collectives in the step that XLA compiles for `--devices` devices (emulated
on a CPU, by a process of its own), over those of the gradients, for every algorithm of
configs/; see benchmarks/collectives.py. Plain training's step on 1, 2, 4 and 8 emulated
devices then takes turns, the batch in all the same: they share the cores of one CPU, so
it tells what spreading costs there and nothing of devices of their own. Last, a model of a pod in which each chip has the
setting's batch: with a step of `t` seconds on one chip (--seconds, measured there; else
those measured here), `c` bytes of collectives and a link of `w` bytes a second each way,

    efficiency = t / (t + 2 (n - 1) / n c / w)     if nothing overlaps,
    efficiency = t / max(t, 2 (n - 1) / n c / w)   if everything does,

since a ring moves each byte of a sum twice. It leaves out the latency of collectives and
input from the host. Writes benchmarks/results/scaling-<setting>-<backend>.json and .md.
"""

import json
import os
import statistics
import subprocess
import sys
import types
from collections.abc import Mapping
from typing import Any

import jax

from benchmarks import collectives, common, measured
from jbias.runtime import mesh

# Bytes a second that a chip sends, and as many that it receives, on all links together.
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
WITHOUT = {
    "__init__",
    "common",
    "datasets",
    "deepaugment",
    "sin_in",
}  # No set, no config.


def moved(algorithm: str, options) -> dict[str, Any]:
    """Bytes of one step's collectives, by role, and of its gradients."""
    setting, devices = common.setting_of(options), mesh.make(options.devices)
    stage = common.stage_of(
        algorithm, setting, precision=options.precision, devices=options.devices
    )
    traced = collectives.trace_step(
        stage.program.step,
        stage.program.draw,
        stage.shared(0),
        stage.order.batch,
        stage.static(0),
        devices,
    )
    text = traced.lower().compile(collectives.QUICKLY).as_text()
    found = collectives.collective_outputs(text)
    params = jax.eval_shape(stage.program.draw, jax.random.key(0), None).params
    gradients = collectives.gradient_bytes(stage.algo, params)
    total = sum(one.bytes for one in found)
    return {
        "bytes": total,
        "gradients": gradients,
        "of_gradients": total / gradients,
        "collectives": sum(one.times or 1 for one in found),
        **collectives.by_role(found),
    }


def steps(options) -> dict[str, list[float]]:
    """Seconds of plain training's step on 1, 2, 4 ... devices, in turns."""
    setting, ways = common.setting_of(options), {}
    for count in COUNTS:
        if count <= options.devices:
            stage = common.stage_of(
                "erm", setting, precision=options.precision, devices=count
            )
            trainer = common.Trainer(stage, devices=mesh.make(count), strategy="looped")
            ways[str(count)] = common.repeated(trainer.run, options.steps)
    seconds = measured.in_turns(ways, options.rounds)
    return {name: [s / options.steps for s in each] for name, each in seconds.items()}


def in_child(part: str) -> Any:
    """What a part says in a process that has the devices."""
    flags = collectives.HOST_DEVICES.format(8)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", *sys.argv[1:], f"--part={part}"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def pod(seconds: float, size: int) -> dict[str, dict[str, list[float]]]:
    """Efficiency by link and number of chips: without overlap, and with."""
    found = {}
    for link, rate in LINKS.items():
        found[link] = {}
        for chips in CHIPS:
            moving = 2 * (chips - 1) / chips * size / rate
            found[link][str(chips)] = [
                seconds / (seconds + moving),
                seconds / max(seconds, moving),
            ]
    return found


def tables(results: Mapping[str, Any]) -> str:
    """All results as Markdown."""
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
    text = measured.markdown(head, rows)
    if results["steps"]:
        one = statistics.median(results["steps"]["1"])
        rows = [
            (n, f"{1000 * (s := statistics.median(each)):.1f}", f"{one / s:.2f}")
            for n, each in results["steps"].items()
        ]
        text += "\n" + measured.markdown(("devices", "ms a step", "of one"), rows)
    if results["pod"]:
        rows = [
            (link, *(" to ".join(f"{e:.3f}" for e in of[str(n)]) for n in CHIPS))
            for link, of in results["pod"].items()
        ]
        head = ("modelled efficiency", *(f"{n} chips" for n in CHIPS))
        text += "\n" + measured.markdown(head, rows)
    return text


def main() -> None:
    """Measures in processes of their own, prints and writes."""
    parser = common.parser(__doc__, steps=4, rounds=3)
    known = {
        path.stem for path in (measured.RESULTS.parents[1] / "configs").glob("*.py")
    }
    parser.add_argument("--algorithms", default=",".join(sorted(known - WITHOUT)))
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--seconds", type=float, help="of a step on one chip")
    parser.add_argument("--count-only", action="store_true", help="time nothing")
    parser.add_argument("--part", help="of this program: moved:NAME, or steps")
    options = parser.parse_args()
    if options.part:
        part, _, name = options.part.partition(":")
        print(json.dumps(moved(name, options) if part == "moved" else steps(options)))
        return
    found = {}
    for name in options.algorithms.split(","):
        found[name] = in_child(f"moved:{name}")
        print(f"{name}: {found[name]['of_gradients']:.3f} of the gradients", flush=True)
    timed = {} if options.count_only else in_child("steps")
    seconds = options.seconds
    if timed and not seconds:
        seconds = statistics.median(timed["1"])
    first = next(iter(found.values()))
    results = {
        "moved": found,
        "steps": timed,
        "pod": pod(seconds, found.get("erm", first)["bytes"]) if seconds else {},
        "seconds": seconds,
    }
    measured.write(
        common.name_of(options, "scaling"),
        results,
        tables(results),
        ratios={f"gradients / {k}": 1 / r["of_gradients"] for k, r in found.items()},
        out=options.out,
        **common.describe_options(options, common.setting_of(options)),
    )


if __name__ == "__main__":
    main()
