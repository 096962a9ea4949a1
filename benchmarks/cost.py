"""What each method costs: its step against ERM's, beside what it should cost.

    python -m benchmarks.cost [--methods=sagnet,pgd] [--steps=4] [--rounds=7] [--large]

Every config of configs/ at its default on the embedded set, one seed; with --large as
ResNet-50 on 224 pixels, in batches of 8. In every round
ERM and the method take turns at the same number of steps; the ratio is the median over
rounds. `predicted` counts passes through the network, forward one, backward two, over
ERM's three. Writes benchmarks/results/cost-<backend>.json and .md, or cost-large-...
"""

import argparse
import datetime
import importlib
import json
import pathlib
import statistics
import sys
import time

import jax

from jbias import build, mesh, seeds, sets
from jbias import config as jc
from jbias import workdir as workdirs
from jbias.data import pipeline

ROOT = pathlib.Path(__file__).parents[1]
# Lowest and highest; what is beside 1 is a range of the published descriptions.
PREDICTED = {
    "sagnet": (1.9, 2.5),
    "padain": (1.0, 1.5),
    "infodrop": (1.0, 1.15),
    "debiased": (2.0, 2.0),  # Without a style network: images are drawn again.
    "augmix": (3.0, 3.0),
    "rand_conv": (3.0, 3.0),
    "simclr": (2.0, 2.0),
    "pgd": (10 / 3, 10 / 3),
    "frozen_filters": (0.85, 0.85),
}
SLACK = 1.25


def stage_of(name: str, *, large: bool = False) -> build.Stage:
    """The first stage of a config on the embedded set."""
    module = importlib.import_module(f"configs.{name}")
    c = module.get_config("seeds=1")
    if large:
        c.model = dict(name="resnet50", width=64, stem="imagenet")
        c.size, c.train.batch, c.train.n = 224, 8, 64
        with c.algo.unlocked():
            if "mix_group" in c.algo:
                c.algo.mix_group = 8
    config = jc.plain(c)
    part = jc.stages(config)[0]
    train = sets.train_set("config.train", part["train"], config["size"])
    images = {
        key: pipeline.resident(source, workers=1)
        for key, source in train.named(0).items()
    }
    config["stages"] = []
    return build.stages({**config, **part}, [train], images, mesh.make(1))[0]


class Trainer:
    """Trains one seed of a stage, and times it."""

    def __init__(self, stage: build.Stage):
        self.stage, self.step = stage, 0
        self.states = (build.start(stage, 0),)
        self.run(2)  # Compiles.

    def run(self, steps: int) -> float:
        """Takes `steps` steps; returns the seconds they took."""
        began = time.perf_counter()
        for step in range(self.step, self.step + steps):
            args = [((seeds.key(0), self.stage.take(0, step)),)]
            static = self.stage.static(step)
            self.states, _ = self.stage.advance(
                self.states, args, self.stage.held(self.step), static
            )
        self.step += steps
        jax.block_until_ready(self.states)
        return time.perf_counter() - began


def compare(name: str, plain: Trainer, steps: int, rounds: int, large: bool) -> dict:
    """The method's time over ERM's, over several rounds."""
    method = Trainer(stage_of(name, large=large))
    if method.stage.static(0) is not None:
        method.run(2 * steps)  # Compiles the other sizes.
    ratios = []
    for _ in range(rounds):
        base = plain.run(steps)
        ratios.append(method.run(steps) / base)
    low, high = PREDICTED.get(name, (1.0, 1.0))
    ratio = statistics.median(ratios)
    return {
        "ratio": ratio,
        "ratios": ratios,
        "predicted": [low, high],
        "over": ratio / high,
        "within": ratio <= SLACK * high,
    }


def table(results: dict) -> str:
    """The results as Markdown."""
    lines = [
        "| method | cost | predicted | cost / predicted |",
        "| --- | --- | --- | --- |",
    ]
    for name, r in results.items():
        low, high = r["predicted"]
        said = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        mark = "" if r["within"] else " (above 1.25)"
        lines.append(f"| {name} | {r['ratio']:.2f} | {said} | {r['over']:.2f}{mark} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures all methods and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--methods", default="")
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    known = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
    without = {
        "__init__",
        "common",
        "datasets",
        "erm",
        "deepaugment",
        "sin_in",
    }  # ERM's step, or no config.
    names = args.methods.split(",") if args.methods else set(known) - without
    plain = Trainer(stage_of("erm", large=args.large))
    results = {}
    for name in sorted(names):
        results[name] = compare(name, plain, args.steps, args.rounds, args.large)
        print(f"{name}: {results[name]['ratio']:.2f}", flush=True)
    found = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m benchmarks.cost", *sys.argv[1:]]),
        **workdirs.environment(),
        "results": results,
    }
    kind = "large-" if args.large else ""
    path = ROOT / "benchmarks" / "results" / f"cost-{kind}{jax.default_backend()}"
    path.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()
