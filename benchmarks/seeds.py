"""Seeds together against one after another: images per second, and the same bits.

    python -m benchmarks.seeds [--steps=8] [--rounds=5] [--strategies=threaded,...]

Trains the demo config of each algorithm. In every round the strategies and the lone
seeds take turns at the same steps, so that a noisy machine is noisy to all; the ratio
is the median over rounds. After the rounds, each seed's state together and alone is
compared to the bit. Writes benchmarks/results/seeds-<backend>.json.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import sys
import time

import jax
import numpy as np

from configs import erm, padain, sagnet
from jbias import build, mesh, seeds, sets
from jbias import config as jc
from jbias import workdir as workdirs

CONFIGS = {"erm": erm, "padain": padain, "sagnet": sagnet}


class Trainer:
    """Trains some seeds of a stage with one strategy, and times it."""

    def __init__(self, stage, which: tuple[int, ...], strategy: str):
        self.stage, self.which = stage, which
        self.advance = seeds.stepper(stage.one, strategy)
        self.states = tuple(build.start(stage, seed) for seed in which)
        self.keys = tuple(seeds.key(seed) for seed in which)
        self.step = 0

    def run(self, steps: int) -> float:
        """Takes `steps` steps; returns the seconds they took."""
        began = time.perf_counter()
        args = [
            tuple(
                (key, self.stage.take(seed, self.step + i))
                for key, seed in zip(self.keys, self.which, strict=True)
            )
            for i in range(steps)
        ]
        self.states, _ = self.advance(
            self.states, args, self.stage.held(self.step), None
        )
        self.step += steps
        jax.block_until_ready(self.states)
        return time.perf_counter() - began


def compare(name: str, strategies: list[str], steps: int, rounds: int) -> dict:
    """Measures one algorithm; returns rates, ratios and whether the bits are equal."""
    config = jc.plain(CONFIGS[name].get_config("demo"))
    train = sets.train_set("config.train", config["train"], config["size"])
    images = {name: source.images for name, source in train.named(0).items()}
    (stage,) = build.stages(config, [train], images, mesh.make(1))
    which = tuple(config["seeds"])
    together = {s: Trainer(stage, which, s) for s in strategies}
    alone = [Trainer(stage, (seed,), "unrolled") for seed in which]
    for trainer in (*together.values(), *alone):
        trainer.run(2)  # Compiles.
    seconds = {s: [] for s in strategies}
    lone = []
    for _ in range(rounds):
        lone.append(sum(trainer.run(steps) for trainer in alone))
        for s, trainer in together.items():
            seconds[s].append(trainer.run(steps))
    total = steps * stage.order.batch * len(which)
    result = {"alone": {"images_per_second": total / statistics.median(lone)}}
    for s in strategies:
        pairs = zip(lone, seconds[s], strict=True)
        result[s] = {
            "images_per_second": total / statistics.median(seconds[s]),
            "ratio": statistics.median(ratios := [a / b for a, b in pairs]),
            "ratios": ratios,
            "bits_equal": all(
                same(state, trainer.states[0])
                for state, trainer in zip(together[s].states, alone, strict=True)
            ),
        }
    return result


def same(a, b) -> bool:
    """Whether two trees are equal to the bit."""
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in leaves)


def main() -> None:
    """Measures all algorithms and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--strategies", default="unrolled,threaded,looped")
    parser.add_argument("--algorithms", default="erm,padain,sagnet")
    args = parser.parse_args()
    results = {}
    for name in args.algorithms.split(","):
        results[name] = compare(
            name, args.strategies.split(","), args.steps, args.rounds
        )
        print(name, json.dumps(results[name], indent=1), flush=True)
    found = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m benchmarks.seeds", *sys.argv[1:]]),
        **workdirs.environment(),
        "results": results,
    }
    path = pathlib.Path(__file__).parent / "results"
    path = path / f"seeds-{jax.default_backend()}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
