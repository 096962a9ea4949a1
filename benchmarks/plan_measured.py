"""Short runs on the device at hand, each beside its plan.

    python -m benchmarks.plan_measured [RUN ...] [--runs=DIR] [--tiny]

Trains each by `jbias.main`, all of its own choice, on the embedded set at the size that it
names, and asks `jbias.plan --runs` what it would have said. A step is one of all seeds, as
costs.json counts it, with what the host does between steps; the peak of memory is that of the
whole process, with the strategies that `auto` tried. Workdirs stay below --runs, where a
second command goes on. Writes benchmarks/results/plan_measured-<backend>.json and .md.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import measured

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
    add("--no-plan", dest="planned", action="store_false", help="trains alone")
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    args, found = parser.parse_args(), {}
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
