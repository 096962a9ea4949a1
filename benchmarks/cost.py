"""What each method costs: its step against ERM's, beside what it should cost.

    python -m benchmarks.cost [--methods=sagnet,pgd] [--steps=4] [--rounds=7] [--large]

Every config of configs/ at its default on the embedded set, one seed; with --large as
ResNet-50 on 224 pixels, in batches of 8. In every round
ERM and the method take turns at the same number of steps; the ratio is the median over
rounds. `predicted` counts passes through the network, forward one, backward two, over
ERM's three. Writes benchmarks/results/cost-<backend>.json and .md, or cost-large-...
"""

import argparse
import pathlib
import statistics

import jax

from benchmarks import common, measured
from benchmarks.settings import Setting

ROOT = pathlib.Path(__file__).parents[1]
LARGE = Setting("resnet50", 64, "imagenet", 224, 8)
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


def compare(name: str, plain: common.Trainer, setting: Setting | None, options) -> dict:
    """The method's time over ERM's, over several rounds."""
    method = common.Trainer(common.stage_of(name, setting))
    ways = {"plain": plain.run, "method": method.run}
    # Two warm rounds compile the other sizes, too, where there are some.
    seconds = measured.in_turns(
        {key: common.repeated(run, options.steps) for key, run in ways.items()},
        options.rounds,
    )
    ratios = [b / a for a, b in zip(seconds["plain"], seconds["method"], strict=True)]
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
    rows = []
    for name, r in results.items():
        low, high = r["predicted"]
        said = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        mark = "" if r["within"] else " (above 1.25)"
        rows.append((name, f"{r['ratio']:.2f}", said, f"{r['over']:.2f}{mark}"))
    return measured.markdown(("method", "cost", "predicted", "cost / predicted"), rows)


def main() -> None:
    """Measures all methods and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--methods", default="")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    args = parser.parse_args()
    known = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
    without = {
        "__init__",
        "colored_mnist",
        "common",
        "datasets",
        "erm",
        "deepaugment",
        "dfr",
        "sin_in",
    }  # ERM's step, or no config.
    names = args.methods.split(",") if args.methods else set(known) - without
    setting = LARGE if args.large else None
    plain = common.Trainer(common.stage_of("erm", setting))
    results = {}
    for name in sorted(names):
        results[name] = compare(name, plain, setting, args)
        print(f"{name}: {results[name]['ratio']:.2f}", flush=True)
    kind = "large-" if args.large else ""
    measured.write(
        f"cost-{kind}{jax.default_backend()}",
        results,
        table(results),
        ratios={f"erm / {name}": 1 / r["ratio"] for name, r in results.items()},
        out=args.out,
    )


if __name__ == "__main__":
    main()
