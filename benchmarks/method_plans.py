"""Plan the eight methods on ImageNet with `jbias plan`, for docs/tpus.md and docs/gpus.md.

    python -m benchmarks.method_plans [METHOD ...] [--targets=v5e-64,v4-32,h100x8] [--report]

Each method is planned with four seeds, in a process of its own. Plans are stored in --keep,
and an interrupted command continues from there. ImageNet itself is not needed. Writes
benchmarks/results/method_plans-TARGET.json and .md. All numbers are predictions.

Takes about three hours on two cores; one method and target, five to eight minutes. --report
takes seconds.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import compiled_step, result_files

ROOT = pathlib.Path(__file__).parents[1]
_IMAGENET = "data=imagenet,root=data/imagenet,seeds=4"
_DEEP = "prepared=prepared,nets="
# Arguments of each method's config. The compact style network is part of the package; the
# published one would need downloaded weights.
METHODS: Mapping[str, str] = {
    "erm": "erm.py:",
    "stylized_erm": "stylized_erm.py:transfer=small,",
    "debiased": "debiased.py:transfer=small,",
    "infodrop": "infodrop.py:",
    "sagnet": "sagnet.py:",
    "padain": "padain.py:",
    "deepaugment (CAE)": f"deepaugment.py:{_DEEP}cae,",
    "deepaugment (EDSR)": f"deepaugment.py:{_DEEP}edsr,",
}
TARGETS = "v5e-64,v4-32,h100x8"
# DeepAugment trains on images that users make, so that their number is not known.
_DATA_FLAGS = ("--images=1281167", "--classes=1000")


def config(method: str) -> str:
    """Return the value of --config for a method."""
    return f"configs/{METHODS[method]}{_IMAGENET}"


def _file(keep: pathlib.Path, method: str, target: str) -> pathlib.Path:
    """Return the file of a plan in folder `keep`."""
    return keep / f"{method.replace(' ', '-')}@{target.replace(':', '-')}.json"


def plan(method: str, target: str, keep: pathlib.Path) -> str:
    """Plan a method for a target, store the plan in `keep`; return a line about it."""
    start = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "jbias.plan",
        f"--config={config(method)}",
        f"--on={target}",
        *_DATA_FLAGS,
        "--json",
    ]
    _file(keep, method, target).unlink(missing_ok=True)  # A plan of earlier code.
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE)
    if done.returncode not in (0, 1) or not done.stdout:
        return f"exit code {done.returncode}"
    seconds = time.monotonic() - start
    stored_plan = {
        "method": method,
        "seconds": seconds,
        "source": compiled_step.source(),
        "versions": compiled_step.versions(),
        **json.loads(done.stdout),
    }
    keep.mkdir(parents=True, exist_ok=True)
    text = json.dumps(stored_plan, indent=1) + "\n"
    _file(keep, method, target).write_text(text)
    fit = "fits" if stored_plan["fits"] else "does not fit"
    return f"{fit}, planned in {seconds:.0f} s"


def _cells(stored_plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the cells of a plan's row, in the order of HEAD."""
    yield stored_plan["method"]
    yield "yes" if stored_plan["fits"] else f"no: {stored_plan.get('remedy')}"
    yield f"{stored_plan['memory_gib']:.1f} of {stored_plan['usable_gib']:.1f}"
    if not stored_plan["fits"]:
        return
    yield f"{stored_plan['step_ms']:.1f}"
    yield f"{stored_plan['images_per_second']:,.0f}"
    yield f"{stored_plan['epoch_s'] / 60:.1f}"
    yield f"{stored_plan['run_hours']:.1f}"
    yield f"{stored_plan['run_device_hours']:,.0f}"
    yield f"{stored_plan['input_images_per_second']:,.0f}"
    yield f"{stored_plan['moved_bytes_per_step'] / 1e6:.0f}"


HEAD = (
    "predicted, four seeds",
    "fits",
    "GiB a device",
    "step, ms",
    "images/s",
    "epoch, min",
    "run, h",
    "device hours",
    "decoded/s",
    "MB between",
)
# How a kind of estimate gets its times.
METHOD_OF_ESTIMATE = {
    "cycles": "by its compiler's estimate",
    "kernels": "the sums of kernels and launches",
    "roofline": "at least, by rooflines",
}


def report(target: str, keep: pathlib.Path, out: pathlib.Path) -> None:
    """Write the stored plans of a target as JSON and Markdown to `out`, if there are any."""
    paths = [_file(keep, method, target) for method in METHODS]
    plans = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not plans:
        return
    if len({stored_plan["source"] for stored_plan in plans}) > 1:
        print(f"{target}: not all were planned with the same code", file=sys.stderr)
    first = plans[0]
    # The compiler that these plans did not use.
    unused = "jax-cuda13-plugin" if first["estimate"] == "cycles" else "libtpu"
    versions = " ".join(
        f"{name} {version}"
        for name, version in first["versions"].items()
        if name != unused
    )
    seconds = max(stored_plan["seconds"] for stored_plan in plans)
    text = (
        f"{target}: {first['devices']} devices, host(s): {first['hosts']}; times "
        f"{METHOD_OF_ESTIMATE[first['estimate']]}. By {versions}; planned in at most "
        f"{seconds:.0f} s each.\n\n"
    )
    text += result_files.markdown(HEAD, map(_cells, plans))
    name = f"method_plans-{target.replace(':', '-')}"
    result_files.write(name, plans, text, ratios={}, out=out)


def main() -> None:
    """Plan, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "methods",
        nargs="*",
        metavar="METHOD",
        choices=[[], *METHODS],
        help=f"methods to plan: {', '.join(METHODS)} (default: all)",
    )
    add(
        "--targets",
        default=TARGETS,
        help="devices to plan for, with commas (default: %(default)s)",
    )
    add(
        "--report",
        action="store_true",
        help="plan nothing, write the stored plans only",
    )
    add(
        "--keep",
        type=pathlib.Path,
        default=ROOT / "build" / "method_plans",
        metavar="DIR",
        help="folder that stores the plans (default: build/method_plans)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder for the results (default: benchmarks/results)",
    )
    args, source = parser.parse_args(), compiled_step.source()
    for target in args.targets.split(","):
        for method in args.methods or METHODS:
            path = _file(args.keep, method, target)
            is_planned = (
                path.exists() and json.loads(path.read_text())["source"] == source
            )
            if not (is_planned or args.report):
                line = plan(method, target, args.keep)
                print(f"{method} on {target}: {line}", flush=True)
        report(target, args.keep, args.out)


if __name__ == "__main__":
    main()
