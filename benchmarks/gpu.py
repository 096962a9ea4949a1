"""What a GPU must say, in one call and one folder, in less than ten minutes.

    python -m benchmarks.gpu --out=DIR [--torch=PYTHON|no] [--only=A,B] [--tiny]

Each part is a benchmark of its own process with a time limit, most important first; what
one has found is written when it ends, and a part that fails or takes too long stops none.
DIR/gpu.json says of each what came of it, with the results of all and the turns of those
that were stopped, and DIR/gpu.md shows their tables. --only names others than the usual
parts: seeds16, seeds64, evaluation (370 s together), probe16-concurrent,
probe-imagenet-default, probe-imagenet-fused, float32, forward, suite, distortion-train,
distortion-iocclusion. --tiny tries parts with the smallest setting, on any device.
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
    """A benchmark, its options, and for how long it may run."""

    module: str
    options: tuple[str, ...]
    seconds: int
    tiny: tuple[str, ...] = ()  # Replaces options.
    flags: str = ""  # Of XLA, before those of the environment.


def seeds(width: int, number: int, seconds: int) -> Part:
    """A CIFAR ResNet-18 with that many seeds by each strategy."""
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
    """A part of what the study of data distortion takes."""
    # One program of all seeds compiles longest: should time run out, it is the last.
    strategies = "--strategies=looped,vmapped,unrolled_convolutions,unrolled"
    options = (f"--only={part}", "--steps=32", "--rounds=5", strategies)
    small = ("--setting=tiny", "--share=0.002", "--steps=1", "--rounds=1", "--seeds=2")
    fewer = ("--methods=basic,fmix", "--strategies=looped")
    return Part("distortion", options, seconds, (options[0], *small, *fewer))


STEPS = ("--steps=10", "--rounds=5")
# Which parts of a step are CUDA graphs: as jbias has it, as XLA does by itself, none; seeds
# side by side in a graph; convolutions fused with what is near them.
FLAGS = {
    "whole": "",
    "default": "--xla_gpu_enable_command_buffer=+FUSION --xla_gpu_graph_min_graph_size=5",
    "off": "--xla_gpu_enable_command_buffer=",
    "concurrent": "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT",
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
    "probe16-default": probe("cifar16", _WAYS, 150, graphs="default"),
    "probe16-off": probe("cifar16", "alone,uc10", 90, graphs="off"),
    "probe16-concurrent": probe("cifar16", "uc10", 60, graphs="concurrent"),
    "probe64": probe("cifar64", "uc10,uc10+scan8", 120),
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
    *("probe16", "probe16-default", "probe16-off", "probe64", "probe-imagenet"),
    *("resnet50",),
)
ALONE = ("suite", "distortion")  # Modules with settings of their own, and no peer.


def run(name: str, part: Part, options: argparse.Namespace, cache: str) -> dict:
    """Runs a part; returns what came of it and its results, if there are any."""
    alone = part.module in ALONE
    tiny = part.tiny if alone else (*part.tiny, *TINY)
    asked = tiny if options.tiny else part.options
    command = [sys.executable, "-m", f"benchmarks.{part.module}", *asked]
    command += [f"--out={options.out.resolve()}", f"--name={name}"]
    if options.torch and not alone:
        command.append(f"--torch={options.torch}")
    began, log = time.monotonic(), options.out / f"{name}.log"
    # Two frameworks take turns on one GPU: neither may take all of its memory.
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    env.setdefault("JAX_COMPILATION_CACHE_DIR", cache)
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
            fate = f"exit code {process.wait(part.seconds)}"
        except subprocess.TimeoutExpired:
            fate = f"stopped after {part.seconds} s"
            os.killpg(process.pid, 9)  # With its PyTorch.
            process.wait()
    found = {"fate": fate, "seconds": round(time.monotonic() - began, 1)}
    path = options.out / f"{name}.json"
    if fate == "exit code 0":
        return found | {"found": json.loads(path.read_text())}
    return found | {"log": log.read_text()[-4000:]}


def main() -> int:
    """Runs all parts; the exit code is 0 where each has ended well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--torch", help="the Python that has PyTorch; no: none")
    parser.add_argument("--only", default=",".join(FIRST))
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    told, text = {}, ""
    with tempfile.TemporaryDirectory() as cache:
        for name in options.only.split(","):
            told[name] = one = run(name, PARTS[name], options, cache)
            print(f"{name}: {one['fate']}, {one['seconds']} s", flush=True)
            text += f"## {name}\n\n{one['fate']}, {one['seconds']} s\n\n"
            if "found" in one:
                text += (options.out / f"{name}.md").read_text() + "\n"
            (options.out / "gpu.json").write_text(json.dumps(told, indent=1) + "\n")
            (options.out / "gpu.md").write_text(text)
    return int(any("found" not in one for one in told.values()))


if __name__ == "__main__":
    sys.exit(main())
