"""Measure the cost of each method's training step, relative to ERM's, and its prediction.

    python -m benchmarks.cost [--methods=sagnet,pgd] [--steps=4] [--rounds=7] [--large]
        [--seeds=1]

Trains every config of configs/ as it is on the embedded set, with one seed or --seeds; with --large
as ResNet-50 on images of 224 pixels, in batches of 8. In every round ERM and the method take
turns at the same number of steps; the ratio is the median over rounds. `predicted` counts
passes through the network (a forward pass as one, a backward pass as two), divided by ERM's
three. `extra copies` is the memory of a method's train state beyond ERM's, in copies of the
network. Writes benchmarks/results/cost-<backend>.json and .md, or cost-large-..., with several
seeds cost-10-seeds-...

Takes about a quarter of an hour on two cores, and with --large about two hours.
"""

import argparse
import pathlib
import statistics

import jax

from benchmarks import common, result_files, timing
from benchmarks.settings import Setting
from jbias.training import step as train_step
from jbias.training.tuning import memory_estimate

ROOT = pathlib.Path(__file__).parents[1]
LARGE = Setting("resnet50", 64, "imagenet", 224, 8)
# Lowest and highest cost by method; default: 1. Ranges follow the published descriptions.
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
    """Return the ratio of a method's time to ERM's, and its prediction.

    name: config of the method. plain: trainer of ERM. setting: None means the config's.
    """
    method = common.Trainer(common.stage_of(name, setting), range(options.seeds))
    variants = {
        "plain": common.repeated(plain.run, options.steps),
        "method": common.repeated(method.run, options.steps),
    }
    # The warm-up rounds also compile programs for further image sizes.
    seconds = timing.in_turns(variants, options.rounds)
    ratios = [b / a for a, b in zip(seconds["plain"], seconds["method"], strict=True)]
    low, high = PREDICTED.get(name, (1.0, 1.0))
    ratio = statistics.median(ratios)
    extra_bytes = _state_bytes(method) - _state_bytes(plain)
    net_bytes = memory_estimate.tree_bytes(train_step.net_of(plain.stage.state_shape))
    return {
        "extra_copies": extra_bytes / net_bytes,
        "ratio": ratio,
        "ratios": ratios,
        "predicted": [low, high],
        "over": ratio / high,
        "within": ratio <= SLACK * high,
    }


def _state_bytes(trainer: common.Trainer) -> int:
    """Return the bytes of the train state of one seed."""
    return memory_estimate.tree_bytes(trainer.stage.state_shape)


def table(results: dict) -> str:
    """Return the results as Markdown."""
    rows = []
    for name, r in results.items():
        low, high = r["predicted"]
        predicted = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
        mark = "" if r["within"] else " (above 1.25)"
        over, copies = f"{r['over']:.2f}{mark}", f"{r['extra_copies']:.2f}"
        rows.append((name, f"{r['ratio']:.2f}", predicted, over, copies))
    return result_files.markdown(
        ("method", "cost", "predicted", "cost / predicted", "extra copies"), rows
    )


def main() -> None:
    """Measure all methods, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=4, help="steps in a turn (default: %(default)s)")
    add("--rounds", type=int, default=7, help="timed rounds (default: %(default)s)")
    add("--methods", default="", help="configs to measure, with commas (default: all)")
    add("--seeds", type=int, default=1, help="seeds together (default: %(default)s)")
    add(
        "--large",
        action="store_true",
        help="ResNet-50, 224 pixels, batches of 8 (default: as in the configs)",
    )
    add(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    args = parser.parse_args()
    known = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))
    # ERM itself, and files that are no config or need other data.
    not_measured = {
        "__init__",
        "colored_mnist",
        "common",
        "datasets",
        "erm",
        "deepaugment",
        "dfr",
        "sin_in",
    }
    names = args.methods.split(",") if args.methods else set(known) - not_measured
    setting = LARGE if args.large else None
    plain = common.Trainer(common.stage_of("erm", setting), range(args.seeds))
    results = {}
    for name in sorted(names):
        results[name] = compare(name, plain, setting, args)
        print(f"{name}: {results[name]['ratio']:.2f}", flush=True)
    kind = "large-" if args.large else ""
    kind += f"{args.seeds}-seeds-" if args.seeds > 1 else ""
    result_files.write(
        f"cost-{kind}{jax.default_backend()}",
        results,
        table(results),
        ratios={f"erm / {name}": 1 / r["ratio"] for name, r in results.items()},
        out=args.out,
    )


if __name__ == "__main__":
    main()
