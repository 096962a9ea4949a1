"""Training images a second, beside the same network in PyTorch.

    python -m benchmarks.train [--setting=shapes] [--algorithms=erm,sagnet] [--seeds=1]
        [--precision=auto] [--steps=8] [--rounds=7] [--torch=PYTHON|no] [--whole]

One seed, or several at once by the backend's strategy, of each algorithm in a setting
(benchmarks/settings.py, or --model, --width, --size, --batch): whole steps, from images
on the device. PyTorch trains the same network plainly, in a process of its own, and takes
turns with all others. `of PyTorch` is a ratio of medians over rounds; without PyTorch
ratios are to the first algorithm. What plain training reaches of the device's limits is
said by benchmarks/roofline.py. Writes benchmarks/results/train-<setting>-<backend>.json
and .md.
"""

import statistics
from unittest import mock

import jax

from benchmarks import common, measured, roofline
from jbias.training import convolutions


def main() -> None:
    """Measures, prints and writes."""
    parser = common.parser(__doc__)
    parser.add_argument("--algorithms", default="erm")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--whole", action="store_true", help="also with kernel gradients not in chunks"
    )
    options = parser.parse_args()
    setting, which = common.setting_of(options), range(options.seeds)
    trainers = {
        name: common.Trainer(
            common.stage_of(name, setting, which=which, precision=options.precision),
            which,
        )
        for name in options.algorithms.split(",")
    }
    base = next(iter(trainers))
    for name in [*trainers] if options.whole else ():
        with mock.patch.object(convolutions, "MAX_CHUNKS", 1):
            whole = common.Trainer(
                common.stage_of(
                    name, setting, which=which, precision=options.precision
                ),
                which,
            )
            whole.run(1)  # Traced now.
        trainers[f"{name}, whole"] = whole
    ways = {
        name: common.repeated(one.run, options.steps) for name, one in trainers.items()
    }
    with common.peer_of(options, setting, seeds=options.seeds) as other:
        if other:
            common.check_same_size(trainers[base], other.facts["parameters"])
            base = common.TORCH
            ways[base] = common.repeated(other.train, options.steps)
        seconds = measured.in_turns(ways, options.rounds)
    images = options.steps * setting.batch * options.seeds
    found = measured.against(seconds, base, dict.fromkeys(seconds, images))
    text = measured.table(found, base, f"training, {options.setting}")
    results = {"rates": found, "peer": other and other.facts}
    if "erm" in trainers:
        step = statistics.median(seconds["erm"]) / options.steps / options.seeds
        net = trainers["erm"].stage.algo.net
        work = roofline.training(net, setting.size, setting.batch)
        told = work.told(step, jax.devices()[0].device_kind)
        results["roofline"] = told
        text += "\n" + roofline.markdown("ERM, a step of one seed", told)
    measured.write(
        common.name_of(options, "train"),
        results,
        text,
        ratios={f"{name} / {base}": r["ratio"] for name, r in found.items()},
        out=options.out,
        seeds=options.seeds,
        **common.describe_options(options, setting),
    )


if __name__ == "__main__":
    main()
