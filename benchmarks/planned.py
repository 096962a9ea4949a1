"""What `jbias.plan` says of the eight methods on ImageNet, for docs/tpus.md and docs/gpus.md.

    python -m benchmarks.planned [METHOD ...] [--targets=v5e-64,v4-32,h100x8] [--report]

Each is planned in a process of its own, four seeds of it, and once: what was said is kept in
--keep, from which a command that was stopped goes on. ImageNet need not be there. Writes
benchmarks/results/planned-TARGET.json and .md. All figures are predictions.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import compiled_step, measured

ROOT = pathlib.Path(__file__).parents[1]
_IMAGENET = "data=imagenet,root=data/imagenet,seeds=4"
_DEEP = "prepared=prepared,nets="
# Arguments of each method's config. The compact style network comes with the package; the
# published one needs its weights.
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
# Of DeepAugment's images, which are a set of one's own.
_GIVEN = ("--images=1281167", "--classes=1000")


def config(method: str) -> str:
    """The argument of --config."""
    return f"configs/{METHODS[method]}{_IMAGENET}"


def _file(keep: pathlib.Path, method: str, target: str) -> pathlib.Path:
    return keep / f"{method.replace(' ', '-')}@{target.replace(':', '-')}.json"


def plan(method: str, target: str, keep: pathlib.Path) -> str:
    """Plans, and keeps what was said; returns it in a line."""
    began = time.monotonic()
    args = (f"--config={config(method)}", f"--on={target}", *_GIVEN, "--json")
    command = [sys.executable, "-m", "jbias.plan", *args]
    _file(keep, method, target).unlink(missing_ok=True)  # Of earlier code.
    ended = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE)
    if ended.returncode not in (0, 1) or not ended.stdout:
        return f"exit code {ended.returncode}"
    took = time.monotonic() - began
    told = {"method": method, "seconds": took, "source": compiled_step.source()}
    told |= {"versions": compiled_step.versions(), **json.loads(ended.stdout)}
    keep.mkdir(parents=True, exist_ok=True)
    _file(keep, method, target).write_text(json.dumps(told, indent=1) + "\n")
    return f"{'fits' if told['fits'] else 'does not fit'}, planned in {took:.0f} s"


def _cells(told: Mapping[str, Any]) -> Iterator[str]:
    yield told["method"]
    yield "yes" if told["fits"] else f"no: {told.get('remedy')}"
    yield f"{told['memory_gib']:.1f} of {told['usable_gib']:.1f}"
    if not told["fits"]:
        return
    yield f"{told['step_ms']:.1f}"
    yield f"{told['images_per_second']:,.0f}"
    yield f"{told['epoch_s'] / 60:.1f}"
    yield f"{told['run_hours']:.1f}"
    yield f"{told['run_device_hours']:,.0f}"
    yield f"{told['input_images_per_second']:,.0f}"
    yield f"{told['moved_bytes_per_step'] / 1e6:.0f}"


HEAD = (
    *("predicted, four seeds", "fits", "GiB a device", "step, ms", "images/s"),
    *("epoch, min", "run, h", "device hours", "decoded/s", "MB between"),
)


def report(target: str, keep: pathlib.Path, out: pathlib.Path) -> None:
    """Writes what was kept of a target."""
    paths = [_file(keep, method, target) for method in METHODS]
    found = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not found:
        return
    if len({one["source"] for one in found}) > 1:
        print(f"{target}: not all were planned with the same code", file=sys.stderr)
    first, versions = found[0], found[0]["versions"]
    other = "jax-cuda13-plugin" if first["estimate"] == "cycles" else "libtpu"
    by = " ".join(f"{name} {one}" for name, one in versions.items() if name != other)
    how = {
        "cycles": "by its compiler's estimate",
        "kernels": "the sums of kernels and launches",
        "roofline": "at least, by rooflines",
    }
    took = max(one["seconds"] for one in found)
    text = (
        f"{target}: {first['devices']} devices, host(s): {first['hosts']}; times "
        f"{how[first['estimate']]}. By {by}; planned in at most {took:.0f} s each.\n\n"
    )
    text += measured.markdown(HEAD, map(_cells, found))
    name = f"planned-{target.replace(':', '-')}"
    measured.write(name, found, text, ratios={}, out=out)


def main() -> None:
    """Plans, and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("methods", nargs="*", metavar="METHOD", choices=[[], *METHODS])
    add("--targets", default=TARGETS)
    add("--report", action="store_true", help="of what is there")
    add("--keep", type=pathlib.Path, default=ROOT / "build" / "planned")
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    args, source = parser.parse_args(), compiled_step.source()
    for target in args.targets.split(","):
        for method in args.methods or METHODS:
            path = _file(args.keep, method, target)
            there = path.exists() and json.loads(path.read_text())["source"] == source
            if not (there or args.report):
                said = plan(method, target, args.keep)
                print(f"{method} on {target}: {said}", flush=True)
        report(target, args.keep, args.out)


if __name__ == "__main__":
    main()
