"""Measure training images per second, compared with the same network in PyTorch.

    python -m benchmarks.train [--setting=shapes] [--algorithms=erm,sagnet] [--seeds=1]
        [--precision=auto] [--steps=8] [--rounds=7] [--torch=PYTHON|no] [--whole]

Each algorithm trains one seed, or several by the backend's strategy, in a setting
(benchmarks/settings.py, or --model, --width, --size, --batch). Whole steps are measured, with
images on the device. PyTorch trains the same network with ERM in its own process, and all
take turns. `of PyTorch` is a ratio of medians over rounds; without PyTorch, ratios are to the
first algorithm. benchmarks/roofline.py compares ERM with the device's limits. Writes
benchmarks/results/train-<setting>-<backend>.json and .md.

Takes about two minutes on two cores.
"""

import statistics
from unittest import mock

import jax

from benchmarks import common, result_files, roofline, timing
from jbias.training import convolutions


def main() -> None:
    """Measure all algorithms, print and write the results."""
    parser = common.parser(__doc__)
    parser.add_argument(
        "--algorithms",
        default="erm",
        help="algorithms, separated by commas (default: erm)",
    )
    parser.add_argument(
        "--seeds", type=int, default=1, help="seeds of each algorithm (default: 1)"
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="measure each algorithm also with kernel gradients in one piece",
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
            whole.run(1)  # Traces the step while MAX_CHUNKS is 1.
        trainers[f"{name}, whole"] = whole
    variants = {
        name: common.repeated(trainer.run, options.steps)
        for name, trainer in trainers.items()
    }
    with common.peer_of(options, setting, seeds=options.seeds) as peer:
        if peer:
            common.check_same_size(trainers[base], peer.facts["parameters"])
            base = common.TORCH
            variants[base] = common.repeated(peer.train, options.steps)
        seconds = timing.in_turns(variants, options.rounds)
    images = options.steps * setting.batch * options.seeds
    rates = timing.against(seconds, base, dict.fromkeys(seconds, images))
    text = timing.table(rates, base, f"training, {options.setting}")
    results = {"rates": rates, "peer": peer and peer.facts}
    if "erm" in trainers:
        step = statistics.median(seconds["erm"]) / options.steps / options.seeds
        net = trainers["erm"].stage.algo.net
        work = roofline.training(net, setting.size, setting.batch)
        limits = work.utilisation(step, jax.devices()[0].device_kind)
        results["roofline"] = limits
        text += "\n" + roofline.markdown("ERM, a step of one seed", limits)
    result_files.write(
        common.name_of(options, "train"),
        results,
        text,
        ratios={f"{name} / {base}": rate["ratio"] for name, rate in rates.items()},
        out=options.out,
        seeds=options.seeds,
        **common.describe_options(options, setting),
    )


if __name__ == "__main__":
    main()
