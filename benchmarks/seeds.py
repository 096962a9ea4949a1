"""Measure images per second of seeds trained together, over one seed alone; compare bits.

    python -m benchmarks.seeds [--strategies=threaded,...] [--algorithms=erm,...]
        [--seeds=3] [--setting=own] [--steps=8] [--rounds=7] [--torch=PYTHON|no]

Trains each algorithm as its config does on the embedded set (--setting=own), or in a
setting (benchmarks/settings.py: cifar16, cifar64; or --width, --model, --size, --batch).
--seeds=1,2,4,8 measures each number of seeds. In every round all variants take turns at the
same steps: the strategies; the first and the last seed alone, one after the other; and, for
ERM in a setting, PyTorch with all seeds one after another. A ratio is images per second of
all seeds together, divided by those of one seed alone. After the rounds the states of the
first and the last seed, together and alone, are compared bit by bit. Writes
benchmarks/results/seeds-<backend>.json and .md, or seeds-<setting>-...

Takes about ten minutes on two cores.
"""

import argparse

import jax
import numpy as np

from benchmarks import common, result_files, roofline, settings, timing

ALONE = "alone"


def compare(
    algorithm: str,
    num_seeds: int,
    options: argparse.Namespace,
    setting: settings.Setting | None,
) -> dict:
    """Return rates, ratios to one seed alone, and whether bits are equal, by variant.

    setting: None means the algorithm's own config.
    """
    seeds = range(num_seeds)
    stage = common.stage_of(
        algorithm, setting, which=seeds, precision=options.precision
    )
    together = {
        strategy: common.Trainer(stage, seeds, strategy)
        for strategy in options.strategies.split(",")
    }
    alone = {
        seed: common.Trainer(stage, (seed,), "looped") for seed in {0, num_seeds - 1}
    }

    def train_alone() -> None:
        for trainer in alone.values():
            trainer.run(options.steps)

    variants = {ALONE: train_alone}
    for strategy, trainer in together.items():
        variants[strategy] = common.repeated(trainer.run, options.steps)
    has_peer = algorithm == "erm" and setting is not None
    peer_setting = setting if has_peer else None
    with common.peer_of(options, peer_setting, seeds=num_seeds) as peer:
        if peer:
            common.check_same_size(alone[0], peer.facts["parameters"])
            variants[common.TORCH] = common.repeated(peer.train, options.steps)
        seconds = timing.in_turns(variants, options.rounds)
    images = dict.fromkeys(seconds, options.steps * stage.order.batch * num_seeds)
    images[ALONE] = options.steps * stage.order.batch * len(alone)
    comparison = timing.against(seconds, ALONE, images)
    for strategy, trainer in together.items():
        comparison[strategy]["bits_equal"] = all(
            equal_bits(trainer.states[seed], single.states[0])
            for seed, single in alone.items()
        )
    if has_peer:
        net, size, batch = stage.algo.net, setting.size, setting.batch
        work, kind = roofline.training(net, size, batch), jax.devices()[0].device_kind
        for rates in comparison.values():
            step_seconds = batch / rates["images_per_second"]
            rates["roofline"] = work.utilisation(step_seconds, kind)
    return comparison


def equal_bits(a, b) -> bool:
    """Return True if two trees of arrays are equal bit by bit."""
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in leaves)


def main() -> None:
    """Measure all algorithms and write the results."""
    parser = common.parser(__doc__, setting="own")
    parser.add_argument(
        "--seeds",
        default="3",
        help="numbers of seeds to measure, with commas (default: %(default)s)",
    )
    parser.add_argument(
        "--strategies",
        default="unrolled,threaded,looped",
        help="ways to train seeds together, with commas (default: %(default)s)",
    )
    parser.add_argument(
        "--algorithms",
        default="erm,padain,sagnet",
        help="algorithms to train, with commas (default: %(default)s)",
    )
    options = parser.parse_args()
    setting = common.setting_of(options)
    results, text, ratios = {}, "", {}
    for algorithm in options.algorithms.split(","):
        for num_seeds in map(int, options.seeds.split(",")):
            name = f"{algorithm}, {num_seeds} seeds"
            comparison = compare(algorithm, num_seeds, options, setting)
            results[name] = comparison
            table = timing.table(comparison, ALONE, name)
            text += table + "\n"
            print(table, flush=True)
            for variant, rates in comparison.items():
                ratios[f"{name}, {variant} / alone"] = rates["ratio"]
    result_files.write(
        common.name_of(options, "seeds"),
        results,
        text,
        ratios=ratios,
        out=options.out,
        **common.describe_options(options, setting),
    )


if __name__ == "__main__":
    main()
