"""Train short runs on the device at hand and compare each with its plan.

    python -m benchmarks.plan_accuracy [RUN ...] [--runs=DIR] [--tiny]
    python -m benchmarks.plan_accuracy --known

Each run trains by `jbias.main` on the embedded set at the size that its name gives, with the
strategy that `auto` chooses, and is planned by `jbias plan --runs`. A step is one of all seeds,
as costs.json counts it, with the host's work between steps; the peak of memory is that of the
whole process, including the strategies that `auto` tried. Workdirs are kept in --runs, where a
second command resumes. Writes benchmarks/results/plan_accuracy-<backend>.json and .md.

--known needs no GPU and trains nothing: it plans the same runs anew, beside their measured
times in these results, and also the rates of benchmarks/results/gpu-h100.md and gpu-h200.md.
Those of the H100 were measured with XLA's default graphs, so their programs are compiled with
these (`FLAGS`); those of the H200 are graphs of whole steps.

Takes about half an hour on a GPU. --known takes about 15 minutes on two cores.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import gpu, result_files
from jbias.training.tuning import gpu_time

ROOT = pathlib.Path(__file__).parents[1]


def _run_arguments(
    config: str, *changes: str, batch: int, steps: int
) -> tuple[str, ...]:
    """Return the config and changes of a run of so many steps, evaluated once, at the end."""
    steps_per_epoch = min(steps, 4)
    return (
        config,
        *changes,
        f"--config.train.batch={batch}",
        f"--config.train.n={batch * steps_per_epoch}",
        f"--config.epochs={steps / steps_per_epoch}",
        "--config.eval_every=100 %",
        "--config.save_every=100 %",
        "--config.tests={}",
    )


def _cifar(width: int) -> tuple[str, ...]:
    """Return the run of ten ResNet-18s at 32 pixels, long enough for `auto` to compare."""
    return _run_arguments(
        "erm.py:seeds=10",
        "--config.model.stem=small",
        f"--config.model.width={width}",
        batch=128,
        steps=2400,
    )


_DEEP = "erm.py:seeds=1,model=resnet50,size=224"
RUNS: Mapping[str, tuple[str, ...]] = {
    "ResNet-50, 224 pixels, ERM": _run_arguments(
        _DEEP,
        "--config.model.stem=imagenet",
        "--config.model.width=64",
        batch=256,
        steps=100,
    ),
    "ResNet-18, width 64, ERM": _cifar(64),
    "ResNet-18, width 16, ERM": _cifar(16),
    "the main job": ("sagnet.py",),
}


def train(name: str, workdir: pathlib.Path, extra: Sequence[str]) -> None:
    """Train the run with a key of `RUNS` in a workdir, or resume it."""
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


def plan_run(workdir: pathlib.Path) -> dict[str, Any]:
    """Return the plan of a trained run, with its measured times under "measured"."""
    command = [sys.executable, "-m", "jbias.plan", f"--runs={workdir}", "--json"]
    process = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE)
    if process.returncode not in (0, 1):
        raise SystemExit(f"benchmarks: the plan of {workdir.name} failed")
    return json.loads(process.stdout)


HEAD = (
    "run",
    "seeds",
    "strategy",
    "planned, ms",
    "measured, ms",
    "of the plan",
    "images/s",
    "planned GiB",
    "peak GiB",
)


def _cells(name: str, plan: Mapping[str, Any]) -> list[str]:
    """Return the cells of a run's row under `HEAD`."""
    planned_ms, measured_ms = plan["step_ms"], plan["measured"]["step_ms"]
    images = plan["images_per_second"] * planned_ms / measured_ms
    peak = plan["measured"].get("memory_gib")
    return [
        name,
        str(plan["seeds"]),
        plan["strategy"],
        f"{planned_ms:.4g}",
        f"{measured_ms:.4g}",
        f"{measured_ms / planned_ms:.2f}",
        f"{images:,.0f}",
        f"{plan['memory_gib']:.3g}",
        "–" if peak is None else f"{peak:.3g}",
    ]


# XLA's flags with which the runs and rates of the H100 were measured.
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
    in_graphs: bool = False  # True: a step is one graph; False: XLA's default.


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
    Rate(7_229, _DEEP_RUN, 1, "looped", device="h200", in_graphs=True),
    Rate(64_517, _W16, 1, "looped", device="h200", in_graphs=True),
    Rate(100_181, _W16, 10, "unrolled_convolutions", device="h200", in_graphs=True),
    Rate(51_010, _W64, 10, "unrolled_convolutions", device="h200", in_graphs=True),
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
    process = subprocess.run(
        [*command, "--json"],
        check=False,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "XLA_FLAGS": "" if in_graphs else FLAGS},
    )
    if process.returncode not in (0, 1):
        raise SystemExit(f"benchmarks: the plan of {run} failed")
    return json.loads(process.stdout)


HEAD_KNOWN = (
    "measured",
    "seeds",
    "strategy",
    "kernels, ms",
    "launches, ms",
    "planned, ms",
    "measured, ms",
    "of the plan",
)


def _known_cells(name: str, plan: Mapping[str, Any]) -> list[str]:
    """Return the cells of a row under `HEAD_KNOWN`."""
    planned_ms, measured_ms = plan["step_ms"], plan["measured"]["step_ms"]
    launches_ms = plan["by_part"]["launches"]
    return [
        name,
        str(plan["seeds"]),
        plan["strategy"],
        f"{planned_ms - launches_ms:.4g}",
        f"{launches_ms:.4g}",
        f"{planned_ms:.4g}",
        f"{measured_ms:.4g}",
        f"{measured_ms / planned_ms:.2f}",
    ]


def plan_rates() -> dict[str, dict[str, Any]]:
    """Return the plan of each of `RATES`, with the measured time of a step of all seeds."""
    plans = {}
    for rate in RATES:
        precision = f"--config.precision={rate.precision}"
        plan = plan_known(
            rate.run,
            precision,
            seeds=rate.seeds,
            strategy=rate.strategy,
            device=rate.device,
            in_graphs=rate.in_graphs,
        )
        images_per_step = plan["images_per_second"] * plan["step_ms"] / 1000
        plan["measured"] = {"step_ms": 1000 * images_per_step / rate.images_per_second}
        plan["fitted"] = rate.fitted
        name = rate.run.removesuffix(", ERM")
        if rate.precision != "bfloat16":
            name += f", {rate.precision}"
        if rate.fitted:
            name += " (fitted)"
        if rate.in_graphs:
            name += f", {rate.device.upper()}, one graph"
        plans[f"{name} / {rate.seeds} {rate.strategy}"] = plan
    return plans


def write_known(out: pathlib.Path) -> None:
    """Plan the runs and rates whose measured times are known, and write both tables."""
    path = result_files.RESULTS / "plan_accuracy-gpu.json"
    earlier = json.loads(path.read_text())["results"]
    runs = {}
    for name, known in earlier.items():
        if name in RUNS:
            plan = plan_known(
                name, seeds=known["seeds"], strategy=known["chosen"]["strategy"]
            )
            for key in ("measured", "chosen", "device", "packages"):
                plan[key] = known[key]
            runs[name] = plan
    rates = plan_rates()
    versions = next(iter(runs.values()))["packages"]
    text = (
        f"Measured on one H100 with jax {versions['jax']} and the CUDA graphs that XLA makes "
        f"by itself; planned here with the same, `XLA_FLAGS='{FLAGS}'`.\n\n"
    )
    text += result_files.markdown(
        HEAD, (_cells(name, plan) for name, plan in runs.items())
    )
    text += "\nOf the same runs, and of the rates in gpu-h100.md and gpu-h200.md:\n\n"
    rows = [_known_cells(name, plan) for name, plan in runs.items()]
    rows += [_known_cells(key.split(" / ")[0], plan) for key, plan in rates.items()]
    text += result_files.markdown(HEAD_KNOWN, rows)
    text += (
        f"\nThe launch of a graph ({1e6 * gpu_time.GRAPH_SECONDS:.0f} us) and of a "
        f"convolution ({1e6 * gpu_time.CONVOLUTION_SECONDS:.0f} us) are solved from the two "
        "rows called fitted, a convolution's least time and the gap between kernels are "
        "from the profiles behind the last three rows, and the other four constants are "
        "assumed (jbias/training/tuning/gpu_time.py). The run of width 16 is a second measurement "
        "of a fitted row's program.\n"
    )
    results = {**runs, **rates}
    result_files.write("plan_accuracy-gpu", results, text, ratios={}, out=out)


def main() -> None:
    """Train and plan the runs, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="RUN",
        choices=[[], *RUNS],
        help="the runs to train; default: all",
    )
    add(
        "--runs",
        type=pathlib.Path,
        default=ROOT / "build" / "plan_accuracy",
        help="the folder of the workdirs; default: build/plan_accuracy",
    )
    add("--tiny", action="store_true", help="train the smallest network, to try it")
    add("--trained", action="store_true", help="plan the runs that are trained already")
    add("--known", action="store_true", help="plan the runs of the committed results")
    add("--no-plan", dest="planned", action="store_false", help="train and do not plan")
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        help="the folder of the results; default: benchmarks/results",
    )
    args = parser.parse_args()
    if args.known:
        write_known(args.out)
        return
    plans = {}
    small = ("--config.model.width=4", "--config.size=32", "--config.train.batch=8")
    for name in args.names or RUNS:
        workdir = args.runs.resolve() / name.replace(" ", "-").replace(",", "")
        if not args.trained:
            train(name, workdir, (*small, "--config.train.n=64") if args.tiny else ())
        if args.planned:
            provenance = json.loads((workdir / "provenance.json").read_text())
            plans[name] = plan_run(workdir)
            for key in ("chosen", "device", "packages"):
                plans[name][key] = provenance[key]
    if plans:
        last_plan = plans[name]
        device, jax_version = (
            last_plan["measured"]["device"],
            last_plan["packages"]["jax"],
        )
        text = f"Measured on {device} with jax {jax_version}; planned here:\n\n"
        text += result_files.markdown(
            HEAD, (_cells(name, plan) for name, plan in plans.items())
        )
        backend = last_plan["device"]["platform"]
        result_files.write(
            f"plan_accuracy-{backend}", plans, text, ratios={}, out=args.out
        )


if __name__ == "__main__":
    main()
