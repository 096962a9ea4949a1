"""Measure training, evaluation and launches on a GPU, in less than ten minutes.

    python -m benchmarks.gpu --out=DIR [--torch=PYTHON|no] [--only=A,B] [--tiny]

Each part is a benchmark in a process of its own with a time limit, the most important first.
Its results are written when it ends; a part that fails or takes too long does not stop the
others. Writes DIR/gpu.json with the outcome and the results of each part, and the log of a
part that failed, and DIR/gpu.md with the tables. --only names parts, in place of the usual ones: also
seeds16, seeds64, evaluation (370 s together), probe16-serial, probe64-default,
probe-imagenet-default, probe-imagenet-fused, float32, forward, suite, distortion-train,
distortion-iocclusion. --tiny runs the parts with the smallest setting, on any device.

Takes less than ten minutes on a GPU without --only.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
TINY = ("--setting=tiny", "--steps=1", "--rounds=1")


class Part(NamedTuple):
    """A benchmark to run: module, command-line options, and time limit in seconds."""

    module: str
    options: tuple[str, ...]
    seconds: int
    tiny: tuple[str, ...] = ()  # Options in place of `options` under --tiny.
    flags: str = ""  # XLA_FLAGS, before those of the environment.


def seeds(width: int, number: int, seconds: int) -> Part:
    """Return a part that trains seeds of a CIFAR ResNet-18 of a width by each strategy."""
    strategies = "looped,vmapped,unrolled_convolutions"
    options = ("--algorithms=erm", f"--strategies={strategies}")
    return Part(
        "seeds",
        (
            *(f"--setting=cifar{width}", f"--seeds={number}", *options),
            *("--steps=16", "--rounds=5"),
        ),
        seconds,
        ("--seeds=2", *options),
    )


def distortion(part: str, seconds: int) -> Part:
    """Return a part that times a step of the study of data distortion."""
    # One program of all seeds compiles longest: should time run out, it is the last.
    strategies = "--strategies=looped,vmapped,unrolled_convolutions,unrolled"
    options = (f"--only={part}", "--steps=32", "--rounds=5", strategies)
    small = ("--setting=tiny", "--share=0.002", "--steps=1", "--rounds=1", "--seeds=2")
    fewer = ("--methods=basic,fmix", "--strategies=looped")
    return Part("distortion_speed", options, seconds, (options[0], *small, *fewer))


STEPS = ("--steps=10", "--rounds=5")
# XLA's flags about CUDA graphs: those of jbias, XLA's default, no graphs, graphs whose
# operations run one after another, and convolutions fused with the operations around them.
FLAGS = {
    "whole": "",
    "default": "--xla_gpu_enable_command_buffer=+FUSION --xla_gpu_graph_min_graph_size=5",
    "off": "--xla_gpu_enable_command_buffer=",
    "serial": "--xla_gpu_command_buffer_scheduling_mode=LHS",
    "fused": "--xla_gpu_experimental_enable_conv_fusion=true",
}


def probe(setting: str, ways: str, seconds: int, *, graphs: str = "whole") -> Part:
    """Return a part that times steps by several ways; graphs: a key of `FLAGS`."""
    steps = ("--steps=16", "--rounds=3") if setting == "imagenet" else ()
    return Part(
        "probe",
        (f"--setting={setting}", f"--ways={ways}", *steps),
        seconds,
        ("--ways=alone,uc2,alone+scan2", "--steps=2"),
        flags=FLAGS[graphs],
    )


_WAYS = "alone,uc10,alone+scan8,uc10+scan8"
PARTS = {
    "probe16": probe("cifar16", _WAYS, 150),
    # The same programs from the compilation cache: they must be captured, too.
    "probe16-cached": probe("cifar16", _WAYS, 60),
    "probe16-default": probe("cifar16", _WAYS, 150, graphs="default"),
    "probe16-off": probe("cifar16", "alone,uc10", 90, graphs="off"),
    "probe16-serial": probe("cifar16", "uc10,uc10+scan8", 60, graphs="serial"),
    "probe64": probe("cifar64", "uc10,uc10+scan8", 120),
    "probe64-default": probe("cifar64", "uc10,uc10+scan8", 120, graphs="default"),
    "probe-imagenet": probe("imagenet", "alone,alone+scan8", 150),
    "probe-imagenet-default": probe("imagenet", "alone", 100, graphs="default"),
    "probe-imagenet-fused": probe("imagenet", "alone", 100, graphs="fused"),
    "resnet50": Part(
        "train",
        ("--setting=imagenet", "--precision=bfloat16", *STEPS),
        160,
    ),
    "seeds16": seeds(16, 10, 150),
    "seeds64": seeds(64, 10, 120),
    "evaluation": Part(
        "eval",
        ("--setting=cifar64", "--seeds=4", "--eval-batch=1024", "--steps=64"),
        100,
        ("--seeds=2",),
    ),
    "float32": Part(
        "train",
        ("--setting=cifar64", "--precision=float32", "--steps=20", "--rounds=5"),
        60,
    ),
    "forward": Part(
        "eval",
        (
            *("--setting=imagenet", "--precision=bfloat16", "--seeds=1"),
            *("--eval-batch=256", *STEPS),
        ),
        160,
        ("--seeds=1",),
    ),
    "suite": Part(
        "suite",
        ("--images=512", "--rounds=2"),
        400,
        ("--model=cnn", "--side=32", "--images=4", "--only=accuracy,pgd"),
    ),
    "distortion-train": distortion("train", 420),
    "distortion-iocclusion": distortion("iocclusion", 150),
}
# All parts together would be longer than one call.
FIRST = (
    "probe16",
    "probe16-cached",
    "probe64",
    "probe-imagenet",
    "resnet50",
)
OWN_SETTINGS = ("suite", "distortion_speed")  # Modules without --setting and --torch.


def run(name: str, part: Part, options: argparse.Namespace, cache: str) -> dict:
    """Run a part; return its outcome, its seconds, and its results or the end of its log."""
    has_own_settings = part.module in OWN_SETTINGS
    tiny = part.tiny if has_own_settings else (*part.tiny, *TINY)
    arguments = tiny if options.tiny else part.options
    command = [sys.executable, "-m", f"benchmarks.{part.module}", *arguments]
    command += [f"--out={options.out.resolve()}", f"--name={name}"]
    if options.torch and not has_own_settings:
        command.append(f"--torch={options.torch}")
    began, log = time.monotonic(), options.out / f"{name}.log"
    # Two frameworks take turns on one GPU: neither may take all of its memory.
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    env.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
    env["JBIAS_CACHE"] = cache  # Without notes of captures that failed before.
    env["XLA_FLAGS"] = f"{part.flags} {env.get('XLA_FLAGS', '')}".strip()
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            outcome = f"exit code {process.wait(part.seconds)}"
        except subprocess.TimeoutExpired:
            outcome = f"stopped after {part.seconds} s"
            os.killpg(process.pid, 9)  # With its PyTorch.
            process.wait()
    entry = {"outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
    path = options.out / f"{name}.json"
    if outcome == "exit code 0":
        return {**entry, "results": json.loads(path.read_text())}
    return {**entry, "log": log.read_text()[-4000:]}


def main() -> int:
    """Run the parts; return 0 if all of them ended without an error, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, required=True, help="the folder for the results"
    )
    parser.add_argument(
        "--torch",
        help="a Python interpreter with PyTorch, to compare with; no: do not compare; "
        "default: this one, if it has PyTorch",
    )
    parser.add_argument(
        "--only",
        default=",".join(FIRST),
        help="comma-separated names of parts; default: %(default)s",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="use the smallest setting, to try the parts"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    entries, text = {}, ""
    with tempfile.TemporaryDirectory() as cache:
        for name in options.only.split(","):
            entry = run(name, PARTS[name], options, cache)
            entries[name] = entry
            summary = f"{entry['outcome']}, {entry['seconds']} s"
            print(f"{name}: {summary}", flush=True)
            text += f"## {name}\n\n{summary}\n\n"
            if "results" in entry:
                text += (options.out / f"{name}.md").read_text() + "\n"
            (options.out / "gpu.json").write_text(json.dumps(entries, indent=1) + "\n")
            (options.out / "gpu.md").write_text(text)
    return int(any("results" not in entry for entry in entries.values()))


if __name__ == "__main__":
    sys.exit(main())
