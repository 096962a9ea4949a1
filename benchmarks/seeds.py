"""Seeds together against one alone: images per second, and the same bits.

    python -m benchmarks.seeds [--strategies=threaded,...] [--algorithms=erm,...]
        [--seeds=3] [--setting=own] [--steps=8] [--rounds=7] [--torch=PYTHON|no]

Trains each algorithm as its config does on the embedded set (--setting=own), or in a
setting (benchmarks/settings.py: cifar16, cifar64; or --width, --model, --size, --batch).
--seeds=1,2,4,8 measures each number. In every round the strategies, the first and the
last seed alone one after the other and, for plain training in a setting, PyTorch with all
seeds one after another take turns at the same steps. A ratio says how many images a
second all seeds together learn from, over one alone. After the rounds the states of the
first and the last seed, together and alone, are compared to the bit. Writes
benchmarks/results/seeds-<backend>.json and .md, or seeds-<setting>-...
"""

import jax
import numpy as np

from benchmarks import common, measured, roofline

ALONE = "alone"


def compare(algorithm: str, number: int, options, setting) -> dict:
    """Measures one algorithm with so many seeds: rates, ratios, whether bits are equal."""
    which = range(number)
    stage = common.stage_of(
        algorithm, setting, which=which, precision=options.precision
    )
    together = {
        s: common.Trainer(stage, which, s) for s in options.strategies.split(",")
    }
    alone = {seed: common.Trainer(stage, (seed,), "looped") for seed in {0, number - 1}}

    def one_by_one() -> None:
        for trainer in alone.values():
            trainer.run(options.steps)

    ways = {ALONE: one_by_one}
    for s, trainer in together.items():
        ways[s] = common.repeated(trainer.run, options.steps)
    plain = algorithm == "erm" and setting is not None
    with common.peer_of(options, setting if plain else None, seeds=number) as other:
        if other:
            common.check_same_size(alone[0], other.facts["parameters"])
            ways[common.TORCH] = common.repeated(other.train, options.steps)
        seconds = measured.in_turns(ways, options.rounds)
    images = dict.fromkeys(seconds, options.steps * stage.order.batch * number)
    images[ALONE] = options.steps * stage.order.batch * len(alone)
    found = measured.against(seconds, ALONE, images)
    for s, trainer in together.items():
        found[s]["bits_equal"] = all(
            same(trainer.states[seed], lone.states[0]) for seed, lone in alone.items()
        )
    if plain:
        net, size, batch = stage.algo.net, setting.size, setting.batch
        work, kind = roofline.training(net, size, batch), jax.devices()[0].device_kind
        for one in found.values():
            one["roofline"] = work.utilisation(batch / one["images_per_second"], kind)
    return found


def same(a, b) -> bool:
    """Whether two trees are equal to the bit."""
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in leaves)


def main() -> None:
    """Measures all algorithms and writes the results."""
    parser = common.parser(__doc__, setting="own")
    parser.add_argument("--seeds", default="3", help="numbers of seeds")
    parser.add_argument("--strategies", default="unrolled,threaded,looped")
    parser.add_argument("--algorithms", default="erm,padain,sagnet")
    options = parser.parse_args()
    setting = common.setting_of(options)
    results, text, ratios = {}, "", {}
    for algorithm in options.algorithms.split(","):
        for number in map(int, options.seeds.split(",")):
            name = f"{algorithm}, {number} seeds"
            results[name] = found = compare(algorithm, number, options, setting)
            text += measured.table(found, ALONE, name) + "\n"
            print(measured.table(found, ALONE, name), flush=True)
            ratios |= {f"{name}, {s} / alone": r["ratio"] for s, r in found.items()}
    measured.write(
        common.name_of(options, "seeds"),
        results,
        text,
        ratios=ratios,
        out=options.out,
        **common.describe_options(options, setting),
    )


if __name__ == "__main__":
    main()
