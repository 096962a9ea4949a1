"""Short runs on the device at hand, each beside its plan.

    python -m benchmarks.plan_measured [RUN ...] [--runs=DIR] [--tiny]
    python -m benchmarks.plan_measured --known

Trains each by `jbias.main`, all of its own choice, on the embedded set at the size that it
names, and asks `jbias.plan --runs` what it would have said. A step is one of all seeds, as
costs.json counts it, with what the host does between steps; the peak of memory is that of the
whole process, with the strategies that `auto` tried. Workdirs stay below --runs, where a
second command goes on. Writes benchmarks/results/plan_measured-<backend>.json and .md.

--known trains nothing and needs no GPU: the same runs are planned anew, beside what the
results say was measured of them, and so are the rates of benchmarks/results/gpu-h100.md and
gpu-h200.md. Those of the H100 were measured with the CUDA graphs that XLA makes by itself, so
their programs are compiled with these (`FLAGS`); those of the H200 are graphs of whole steps.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import gpu, measured
from jbias.training import gpu_time

ROOT = pathlib.Path(__file__).parents[1]


def _of(config: str, *changes: str, batch: int, steps: int) -> tuple[str, ...]:
    """The argument of --config, and changes to it; evaluated once, at the end."""
    epoch = min(steps, 4)
    sizes = {"train.batch": batch, "train.n": batch * epoch, "epochs": steps / epoch}
    sizes |= {"eval_every": "100 %", "save_every": "100 %", "tests": "{}"}
    return (config, *changes, *(f"--config.{key}={one}" for key, one in sizes.items()))


def _cifar(width: int) -> tuple[str, ...]:
    """Ten seeds of a ResNet-18 at 32 pixels, so long that `auto` compares on an H100."""
    net = ("--config.model.stem=small", f"--config.model.width={width}")
    return _of("erm.py:seeds=10", *net, batch=128, steps=2400)


_DEEP = "erm.py:seeds=1,model=resnet50,size=224"
_STEM = ("--config.model.stem=imagenet", "--config.model.width=64")
RUNS: Mapping[str, tuple[str, ...]] = {
    "ResNet-50, 224 pixels, ERM": _of(_DEEP, *_STEM, batch=256, steps=100),
    "ResNet-18, width 64, ERM": _cifar(64),
    "ResNet-18, width 16, ERM": _cifar(16),
    "the main job": ("sagnet.py",),
}


def train(name: str, workdir: pathlib.Path, extra: Sequence[str]) -> None:
    """Trains a run, or goes on with it."""
    config, *changes = RUNS[name]
    command = [
        sys.executable,
        "-m",
        "jbias.main",
        f"--config=configs/{config}",
        *changes,
    ]
    command += [*extra, f"--workdir={workdir}"]
    print(f"{name}: training", file=sys.stderr, flush=True)
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)


def plan(workdir: pathlib.Path) -> dict[str, Any]:
    """What the plan says, and what was measured."""
    command = [sys.executable, "-m", "jbias.plan", f"--runs={workdir}", "--json"]
    ended = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE)
    if ended.returncode not in (0, 1):
        raise SystemExit(f"benchmarks: the plan of {workdir.name} ended badly")
    return json.loads(ended.stdout)


HEAD = (
    *("run", "seeds", "strategy", "planned, ms", "measured, ms", "of the plan"),
    *("images/s", "planned GiB", "peak GiB"),
)


def _cells(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    seen, planned = told["measured"], told["step_ms"]
    yield from (name, str(told["seeds"]), told["strategy"])
    yield from (f"{planned:.4g}", f"{seen['step_ms']:.4g}")
    yield f"{seen['step_ms'] / planned:.2f}"
    images = told["images_per_second"] * planned / seen["step_ms"]
    yield f"{images:,.0f}"
    yield f"{told['memory_gib']:.3g}"
    yield f"{seen['memory_gib']:.3g}" if "memory_gib" in seen else "–"


# With which the known runs and rates were measured.
FLAGS = gpu.FLAGS["default"]


class Rate(NamedTuple):
    """Training images a second in benchmarks/results/gpu-<device>.md, and what was trained."""

    images_per_second: float
    run: str  # A key of `RUNS`: its network and images.
    seeds: int
    strategy: str
    precision: str = "bfloat16"
    fitted: bool = False  # A constant of the estimate comes from it.
    device: str = "h100"
    in_graphs: bool = (
        False  # Each step is one CUDA graph, not those that XLA makes by itself.
    )


_DEEP_RUN = "ResNet-50, 224 pixels, ERM"
_W16, _W64 = "ResNet-18, width 16, ERM", "ResNet-18, width 64, ERM"
RATES = (
    Rate(5_871.5, _DEEP_RUN, 1, "looped"),
    Rate(29_421.7, _W16, 1, "looped", fitted=True),
    Rate(24_851.2, _W16, 10, "looped"),
    Rate(57_516.1, _W16, 10, "vmapped"),
    Rate(64_221.1, _W16, 10, "unrolled_convolutions", fitted=True),
    Rate(30_392.2, _W64, 1, "looped"),
    Rate(23_588.9, _W64, 10, "looped"),
    Rate(31_230.6, _W64, 10, "vmapped"),
    Rate(41_439.1, _W64, 10, "unrolled_convolutions"),
    # "evaluation": its training, the median of 64 steps of four seeds.
    Rate(64 * 128 * 4 / 0.963, _W64, 4, "looped"),
    Rate(22_118.9, _W64, 1, "looped", precision="float32"),
    Rate(7_159, _DEEP_RUN, 1, "looped", device="h200", in_graphs=True),
    Rate(64_517, _W16, 1, "looped", device="h200", in_graphs=True),
    Rate(100_181, _W16, 10, "unrolled_convolutions", device="h200", in_graphs=True),
)


def plan_known(
    run: str,
    *changes: str,
    seeds: int,
    strategy: str,
    device: str = "h100",
    in_graphs: bool = False,
) -> dict[str, Any]:
    """Return the plan of a run for a device; its programs have `FLAGS` unless in graphs."""
    config, *options = RUNS[run]
    name, _, arguments = config.partition(":")
    arguments = arguments.replace("seeds=10", f"seeds={seeds}")
    command = [
        sys.executable,
        "-m",
        "jbias.plan",
        f"--config=configs/{name}:{arguments}",
    ]
    command += [
        *options,
        *changes,
        f"--config.run.strategy={strategy}",
        f"--on={device}",
    ]
    print(f"{run}, {seeds} seed(s), {strategy}: planning", file=sys.stderr, flush=True)
    ended = subprocess.run(
        [*command, "--json"],
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "XLA_FLAGS": "" if in_graphs else FLAGS},
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(f"benchmarks: the plan of {run} ended badly")
    return json.loads(ended.stdout)


HEAD_KNOWN = (
    *("measured", "seeds", "strategy", "kernels, ms", "launches, ms"),
    *("planned, ms", "measured, ms", "of the plan"),
)


def _known_cells(name: str, told: Mapping[str, Any]) -> Iterator[str]:
    """Return a row of the second table."""
    step, launching = told["step_ms"], told["by_part"]["launches"]
    yield from (name, str(told["seeds"]), told["strategy"])
    yield from (f"{step - launching:.4g}", f"{launching:.4g}", f"{step:.4g}")
    yield f"{told['measured']['step_ms']:.4g}"
    yield f"{told['measured']['step_ms'] / step:.2f}"


def plan_rates() -> dict[str, dict[str, Any]]:
    """Return the plan of each of `RATES`, with the measured time of a step of all seeds."""
    plans = {}
    for rate in RATES:
        precision = f"--config.precision={rate.precision}"
        told = plan_known(
            rate.run,
            precision,
            seeds=rate.seeds,
            strategy=rate.strategy,
            device=rate.device,
            in_graphs=rate.in_graphs,
        )
        # As many images as the plan's step has.
        images = told["images_per_second"] * told["step_ms"] / 1000
        told["measured"] = {"step_ms": 1000 * images / rate.images_per_second}
        told["fitted"] = rate.fitted
        name = rate.run.removesuffix(", ERM") + ", float32" * (
            rate.precision != "bfloat16"
        )
        name += " (fitted)" * rate.fitted
        name += f", {rate.device.upper()}, one graph" * rate.in_graphs
        plans[f"{name} / {rate.seeds} {rate.strategy}"] = told
    return plans


def write_known(out: pathlib.Path) -> None:
    """Plan what is known to be measured, and write both tables."""
    path = measured.RESULTS / "plan_measured-gpu.json"
    earlier = json.loads(path.read_text())["results"]
    runs, kept = {}, ("measured", "chosen", "device", "packages")
    for name, known in earlier.items():
        if name in RUNS:
            of_run = {"seeds": known["seeds"], "strategy": known["chosen"]["strategy"]}
            told = plan_known(name, **of_run)
            runs[name] = {**told, **{key: known[key] for key in kept}}
    rates = plan_rates()
    versions = next(iter(runs.values()))["packages"]
    text = (
        f"Measured on one H100 with jax {versions['jax']} and the CUDA graphs that XLA makes "
        f"by itself; planned here with the same, `XLA_FLAGS='{FLAGS}'`.\n\n"
    )
    text += measured.markdown(HEAD, (_cells(*item) for item in runs.items()))
    text += "\nOf the same runs, and of the rates in gpu-h100.md and gpu-h200.md:\n\n"
    named = [
        *runs.items(),
        *((key.split(" / ")[0], told) for key, told in rates.items()),
    ]
    text += measured.markdown(HEAD_KNOWN, (_known_cells(*item) for item in named))
    text += (
        f"\nThe launch of a graph ({1e6 * gpu_time.GRAPH_SECONDS:.0f} us) and of a "
        f"convolution ({1e6 * gpu_time.CONVOLUTION_SECONDS:.0f} us) are solved from the two "
        "rows called fitted, a convolution's least time and the gap between kernels are "
        "from the profiles behind the last three rows, and the other four constants are "
        "assumed (jbias/training/gpu_time.py). The run of width 16 is a second measurement "
        "of a fitted row's program.\n"
    )
    results = {**runs, **rates}
    measured.write("plan_measured-gpu", results, text, ratios={}, out=out)


def main() -> None:
    """Trains, plans, and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="RUN", choices=[[], *RUNS])
    add("--runs", type=pathlib.Path, default=ROOT / "build" / "plan_measured")
    add("--tiny", action="store_true", help="tries each with the smallest network")
    add("--trained", action="store_true", help="plans what is trained already")
    add("--known", action="store_true", help="plans what the results say was measured")
    add("--no-plan", dest="planned", action="store_false", help="trains alone")
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    args, found = parser.parse_args(), {}
    if args.known:
        write_known(args.out)
        return
    small = ("--config.model.width=4", "--config.size=32", "--config.train.batch=8")
    for name in args.names or RUNS:
        workdir = args.runs.resolve() / name.replace(" ", "-").replace(",", "")
        if not args.trained:
            train(name, workdir, (*small, "--config.train.n=64") if args.tiny else ())
        if args.planned:
            provenance = json.loads((workdir / "provenance.json").read_text())
            kept = {key: provenance[key] for key in ("chosen", "device", "packages")}
            found[name] = {**plan(workdir), **kept}
    if found:
        kind = found[name]["device"]["platform"]
        seen, versions = found[name]["measured"], found[name]["packages"]
        text = f"Measured on {seen['device']} with jax {versions['jax']}; planned here:\n\n"
        text += measured.markdown(HEAD, (_cells(*one) for one in found.items()))
        measured.write(f"plan_measured-{kind}", found, text, ratios={}, out=args.out)


if __name__ == "__main__":
    main()
