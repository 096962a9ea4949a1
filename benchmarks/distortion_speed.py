"""Measure how long the study of data distortion takes: five trainings, and iOcclusion.

    python -m benchmarks.distortion_speed [--setting=cifar64] [--only=train,iocclusion]
        [--root=CIFAR10] [--share=1.0] [--methods=basic,mixup,cutmix,fmix,rm] [--seeds=5]
        [--strategy=auto] [--strategies=looped,unrolled,vmapped,unrolled_convolutions]
        [--steps=16] [--rounds=5] [--out=DIR]

The runs are those of configs/distortion.py with data=cifar10, the measures those of
configs/suites/distortion.py. Without --root, the images are noise in the file format of
CIFAR-10, as many as CIFAR-10 has or a share of them: times depend on sizes only. --setting
(benchmarks/settings.py) sets the width of the PreAct-ResNet18 and the batch.

`train`: training of each method, with all seeds by one strategy, and evaluation take turns.
A training step gathers, shifts, flips, mixes and updates; an evaluation turn decides about
as many images. Then every strategy of --strategies takes turns with the first strategy, on
the first method. The projection is for the config's protocol: its number of images divided
by the measured rates, plus compilation. It leaves out reading files, checkpoints and logs.

`iocclusion`: training and test images with nine fractions of the most salient pixels by
Grad-CAM hidden, as in jbias.evaluate: from images in memory to records and decisions on
disk, for a first network, which compiles, and for a second. Then as many images as in a
training turn are shown in turns under all ten conditions, ten times without occlusion, and
with the saliency map recomputed for each condition. Writes
benchmarks/results/distortion_speed-<setting>-<backend>.json and .md.

Takes about ten minutes on a GPU. On two cores it takes hours, with --setting=tiny minutes.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import (
    common,
    iocclusion_speed,
    result_files,
    roofline,
    timing,
)
from benchmarks import (
    eval as evaluation,
)
from benchmarks.settings import SETTINGS
from jbias import build, data, errors
from jbias import config as jc
from jbias.configs import distortion
from jbias.runtime import mesh
from jbias.training import strategies

EVALUATION = "evaluation"
IMAGES = data.DATASETS["cifar10"].images
NUM_TRAINED = IMAGES["train"] * 98 // 100  # The config holds 2 % out for validation.
NUM_EVALUATED = IMAGES["train"] - NUM_TRAINED + IMAGES["test"]
SMALL = tuple(name for name, setting in SETTINGS.items() if setting.size == 32)
TARGET_MINUTES = {"train": 60, "iocclusion": 1}  # On one H200.


def main() -> None:
    """Measure the chosen parts, print and write; files are rewritten after each part."""
    options = _options()
    results: dict[str, Any] = {}

    def report(**entries: Any) -> None:
        results.update(entries)
        _write(options, results)

    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        if not options.root:
            options.root = options.folder / "cifar10"
            _write_noise(options.root, options.share)
        if "train" in options.only:
            _measure_training(options, report)
        if "iocclusion" in options.only:
            net = build.network(jc.stage_configs(_config("basic", options))[0], 10)
            measures = iocclusion_speed.measure(net, options, SETTINGS[options.setting])
            report(iocclusion=measures)


def _options() -> argparse.Namespace:
    """Return the parsed command line; `noise` says that the images must be drawn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--setting",
        choices=SMALL,
        default="cifar64",
        help="width of the network, and images per step and seed (default: %(default)s)",
    )
    add(
        "--only",
        type=_list_of(TARGET_MINUTES),
        default=[*TARGET_MINUTES],
        help="parts to measure, with commas (default: train,iocclusion)",
    )
    add(
        "--root",
        type=pathlib.Path,
        metavar="DIR",
        help="folder of CIFAR-10 (default: noise images)",
    )
    add(
        "--share",
        type=float,
        help="number of noise images, as a fraction of CIFAR-10's (default: 1)",
    )
    add(
        "--methods",
        type=_list_of(distortion.METHODS),
        default=[*distortion.METHODS],
        help="methods to train, with commas (default: all five)",
    )
    add("--seeds", type=int, default=5, help="number of seeds (default: %(default)s)")
    add(
        "--strategy",
        choices=("auto", *strategies.STRATEGIES),
        default="auto",
        help="how the seeds of all methods train together (default: %(default)s)",
    )
    add(
        "--strategies",
        type=_list_of(strategies.STRATEGIES),
        default=["looped", "unrolled", "vmapped", "unrolled_convolutions"],
        help="strategies to compare with --strategy on the first method, with commas"
        " (default: looped,unrolled,vmapped,unrolled_convolutions)",
    )
    add(
        "--precision",
        default="auto",
        choices=("auto", "float32", "bfloat16"),
        help="dtype of convolutions (default: %(default)s)",
    )
    add("--steps", type=int, default=16, help="steps in a turn (default: %(default)s)")
    add(
        "--rounds",
        type=int,
        default=5,
        help="rounds in which all variants take a turn (default: %(default)s)",
    )
    add(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    add(
        "--name",
        help="name of the results (default: distortion_speed-<setting>-<backend>)",
    )
    options = parser.parse_args()
    if options.root and options.share:
        parser.error("--share: only for noise images; leave --root out")
    options.noise = not options.root
    options.share = options.share or 1.0
    return options


def _list_of(known: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """Return an argparse type for names of `known`, separated by commas."""

    def read(text: str) -> list[str]:
        names = list(filter(None, text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(errors.suggest(name, known))
        return names

    return read


def _write_noise(root: pathlib.Path, share: float) -> None:
    """Write noise images in the format of CIFAR-10's binary archive.

    share: number of images as a fraction of CIFAR-10's.
    """
    rng, folder = np.random.default_rng(0), root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    num_train = round(share * IMAGES["train"] / 5)
    files = {f"data_batch_{i}": num_train for i in range(1, 6)}
    files["test_batch"] = round(share * IMAGES["test"])
    for name, count in files.items():
        rows = rng.integers(0, 256, (count, 1 + 3 * 32 * 32), np.uint8)
        rows[:, 0] %= 10
        rows.tofile(folder / f"{name}.bin")
    names = "".join(f"class {i}\n" for i in range(10))
    (folder / "batches.meta.txt").write_text(names)


def _config(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the config that trains a method with the setting's width and batch."""
    setting = SETTINGS[options.setting]
    c = distortion.get_config(
        f"method={method},data=cifar10,root={options.root},seeds={options.seeds},"
        f"mix_group={setting.batch}"
    )
    c.model.width, c.train.batch = setting.width, setting.batch
    c.precision = options.precision
    return jc.to_dict(c)


def _measure_training(options: argparse.Namespace, report: Callable) -> None:
    """Measure all methods with one strategy, then the first method with every strategy.

    report: called with the results so far after each comparison.
    """
    seeds, steps = range(options.seeds), options.steps
    configs = {name: _config(name, options) for name in options.methods}
    base, base_strategy = options.methods[0], options.strategy
    if base_strategy == "auto":
        base_strategy = strategies.default_strategy(jax.default_backend())
    variants, stages, devices = {}, {}, mesh.make(1)
    for name, config in configs.items():
        stages[name] = common.built(config, devices)
        trainer = common.Trainer(stages[name], seeds, base_strategy)
        variants[name] = common.repeated(trainer.run, steps)
        if name == base:
            batch, eval_batch = config["train"]["batch"], config["run"]["eval_batch"]
            variants[EVALUATION] = evaluation.make_evaluation(
                trainer, steps * batch, eval_batch
            )
    first, seconds = _time_turns(variants, options.rounds)
    images = steps * batch * options.seeds
    rates = timing.against(seconds, base, dict.fromkeys(seconds, images))
    compile_seconds = {
        name: _compile_seconds(first[name], turns) for name, turns in seconds.items()
    }
    work = roofline.training(stages[base].algo.net, 32, batch)
    step_seconds = statistics.median(seconds[base]) / steps / options.seeds
    train = {
        "base": base,
        "strategy": base_strategy,
        "rates": rates,
        "projected": {
            name: project_minutes(
                config,
                num_seeds=options.seeds,
                rates=rates,
                compile_seconds=compile_seconds,
                method=name,
            )
            for name, config in configs.items()
        },
        "roofline": work.utilisation(step_seconds, jax.devices()[0].device_kind),
    }
    comparison = {base_strategy: {**rates[base], "longer": compile_seconds[base]}}
    report(train=train, strategies=comparison)
    for strategy in options.strategies:
        if strategy == base_strategy:
            continue
        trainer = common.Trainer(stages[base], seeds, strategy)
        pair = {
            base_strategy: variants[base],
            strategy: common.repeated(trainer.run, steps),
        }
        first, seconds = _time_turns(pair, options.rounds)
        pair_rates = timing.against(
            seconds, base_strategy, dict.fromkeys(seconds, images)
        )
        comparison[strategy] = {
            **pair_rates[strategy],
            "longer": _compile_seconds(first[strategy], seconds[strategy]),
        }
        report(strategies=comparison)


def _time_turns(
    variants: Mapping[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return each variant's seconds in a first turn, which compiles, and in later rounds.

    The second turn is not timed: on a GPU it captures the steps as CUDA graphs.
    """
    first = {}
    for name, variant in variants.items():
        start = time.perf_counter()
        variant()
        first[name] = time.perf_counter() - start
        print(f"first turn of {name}: {first[name]:.1f} s", file=sys.stderr, flush=True)
    return first, timing.in_turns(variants, rounds, warm=1)


def _compile_seconds(first: float, turns: Sequence[float]) -> float:
    """Return the seconds that a first turn exceeds the median turn, at least 0.

    The result is near 0 if another variant has compiled the same program.
    """
    return max(first - statistics.median(turns), 0)


def project_minutes(
    config: Mapping[str, Any],
    *,
    num_seeds: int,
    rates: Mapping[str, Mapping[str, float]],
    compile_seconds: Mapping[str, float],
    method: str,
) -> dict[str, float]:
    """Return the minutes of a method's whole run with all seeds, by part, and `all`.

    rates: result of `timing.against`. compile_seconds: seconds of compilation. Both have
    entries for `method` and EVALUATION.
    """
    batch = config["train"]["batch"]
    steps_per_epoch = NUM_TRAINED // batch
    total = round(config["epochs"] * steps_per_epoch)
    eval_every = jc.to_steps(
        config["eval_every"], steps_per_epoch=steps_per_epoch, total=total
    )
    num_trained = num_seeds * total * batch
    num_evaluated = num_seeds * NUM_EVALUATED * -(-total // eval_every)
    minutes = {
        "train": num_trained / rates[method]["images_per_second"] / 60,
        EVALUATION: num_evaluated / rates[EVALUATION]["images_per_second"] / 60,
        "compile": (compile_seconds[method] + compile_seconds[EVALUATION]) / 60,
    }
    return {**minutes, "all": sum(minutes.values())}


def _write(options: argparse.Namespace, results: Mapping[str, Any]) -> None:
    """Write the results so far as JSON and Markdown."""
    setting, text, ratios = SETTINGS[options.setting], "", {}
    if "train" in results:
        train_text, train_ratios = _training_page(options, results)
        text += train_text
        ratios |= train_ratios
    if "iocclusion" in results:
        measures = results["iocclusion"]
        text += "\n" if text else ""
        text += _occlusion_page(measures)
        plain = iocclusion_speed.PLAIN
        ratios |= {f"{k} / {plain}": r["ratio"] for k, r in measures["rates"].items()}
    if options.noise:
        count = round(options.share * iocclusion_speed.NUM_IMAGES)
        text += f"\nImages are noise: {count:,}, in files as CIFAR-10's.\n"
    name = options.name or f"distortion_speed-{options.setting}-{jax.default_backend()}"
    result_files.write(
        name,
        results,
        text,
        ratios=ratios,
        out=options.out,
        seeds=options.seeds,
        width=setting.width,
        batch=setting.batch,
        precision=str(jnp.dtype(mesh.dtype(options.precision))),
    )


def _training_page(
    options: argparse.Namespace, results: Mapping[str, Any]
) -> tuple[str, dict[str, float]]:
    """Return the Markdown of the part `train`, and its ratios by name."""
    train, strategies = results["train"], results["strategies"]
    base, base_strategy = train["base"], train["strategy"]
    width = SETTINGS[options.setting].width
    title = f"PreAct-ResNet18 of width {width}, {options.seeds} seeds, {base_strategy}"
    train_minutes = sum(minutes["train"] for minutes in train["projected"].values())
    sections = [
        timing.table(train["rates"], base, title),
        _minutes_table(train["projected"], "train", heading="method"),
        roofline.markdown(f"{base}, a step of one seed", train["roofline"]),
        _strategies_table(strategies, base_strategy, train_minutes),
    ]
    ratios = {f"{k} / {base}": r["ratio"] for k, r in train["rates"].items()}
    for name, rate in strategies.items():
        ratios[f"{base}, {name} / {base_strategy}"] = rate["ratio"]
    return "\n".join(sections), ratios


def _occlusion_page(measures: Mapping[str, Any]) -> str:
    """Return the Markdown of the part `iocclusion`."""
    first, second = measures["seconds"]
    title = "stimuli of Grad-CAM's occlusion"
    summary = (
        f"Measured: {measures['images']:,} images in {first:.1f} s by a first "
        f"network and in {second:.1f} s by a second, each under "
        f"{measures['conditions']} conditions.\n"
    )
    sections = [
        timing.table(measures["rates"], iocclusion_speed.PLAIN, title),
        _minutes_table({"one network": measures["projected"]}, "iocclusion"),
        summary,
    ]
    return "\n".join(sections)


def _minutes_table(
    projected: Mapping[str, Mapping[str, float]], part: str, heading: str = ""
) -> str:
    """Return projected minutes as Markdown, with their sum and the target of the part.

    projected: minutes by row and column. heading: head of the first column.
    """
    columns = [*next(iter(projected.values()))]
    rows = [
        (name, *(f"{minutes[column]:,.1f}" for column in columns))
        for name, minutes in projected.items()
    ]
    total = sum(minutes["all"] for minutes in projected.values())
    head = (heading, *(f"{column}, min" for column in columns))
    return result_files.markdown(head, rows) + (
        f"\nTotal: {total:,.1f} minutes; the target is {TARGET_MINUTES[part]} on one H200.\n"
    )


def _strategies_table(
    strategies: Mapping[str, Mapping[str, float]], base_strategy: str, minutes: float
) -> str:
    """Return a comparison of strategies as Markdown.

    minutes: projected minutes of all trainings with `base_strategy`.
    """
    rows = [
        (
            name,
            f"{rate['ratio']:.2f}",
            f"{rate['lowest']:.2f} to {rate['highest']:.2f}",
            f"{rate['longer']:,.1f}",
            f"{minutes / rate['ratio']:,.1f}",
        )
        for name, rate in strategies.items()
    ]
    head = (
        f"strategy, of {base_strategy}",
        "rate",
        "within a round",
        "compile, s",
        "all trainings, min",
    )
    best = max(strategies, key=lambda name: strategies[name]["ratio"])
    return f"{result_files.markdown(head, rows)}\nThe fastest is {best}.\n"


if __name__ == "__main__":
    main()
