"""How long the study of data distortion takes: five trainings, and iOcclusion.

    python -m benchmarks.distortion [--setting=cifar64] [--only=train,iocclusion]
        [--root=CIFAR10] [--share=1.0] [--methods=basic,mixup,cutmix,fmix,rm] [--seeds=5]
        [--strategy=auto] [--strategies=looped,unrolled,vmapped,unrolled_convolutions]
        [--steps=16] [--rounds=5] [--out=DIR]

Runs are those of configs/distortion.py with data=cifar10, measures those of
configs/suites/distortion.py. Without --root images are noise in files as CIFAR-10's, so
many as it has or a share of them: what is measured depends on sizes alone. --setting
(benchmarks/settings.py) says how wide the PreAct-ResNet18 is, and its batch.

`train`: each method with all seeds by one strategy, and evaluation, take turns. A step
gathers, shifts, flips, mixes and learns; an evaluation decides about as many images. Then
every one of `strategies` takes turns with that strategy, with the first method. Projected
is the config's protocol: its images over these rates, and what first turns took longer.
Reading the files, checkpoints and the notes of the loop are not in it.

`iocclusion`: the nine fractions, the most salient pixels by Grad-CAM hidden, on training
and test images, as jbias.evaluate does: from images in memory to records and decisions on
the disk, by a first network, which is compiled, and by a second. Then so many images as
in a turn of training are shown in turns under its ten conditions, ten times as they are,
and with a map made anew for each condition. Writes
benchmarks/results/distortion-<setting>-<backend>.json and .md.
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

from benchmarks import common, measured, occluded, roofline
from benchmarks import eval as evaluation
from benchmarks.settings import SETTINGS
from jbias import build, data
from jbias import config as jc
from jbias.configs import distortion
from jbias.runtime import mesh
from jbias.training import seed_axis

EVALUATION = "evaluation"
IMAGES = data.DATASETS["cifar10"].images
TRAINED = IMAGES["train"] * 98 // 100  # As the config splits it.
WATCHED = IMAGES["train"] - TRAINED + IMAGES["test"]
SMALL = tuple(name for name, one in SETTINGS.items() if one.size == 32)
WITHIN = {"train": 60, "iocclusion": 1}  # Minutes on one H200: what is hoped for.


def main() -> None:
    """Measures, prints and writes; what one part found is there if the next fails."""
    options = _options()
    found: dict[str, Any] = {}

    def tell(**more: Any) -> None:
        found.update(more)
        _write(options, found)

    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        if not options.root:
            options.root = options.folder / "cifar10"
            _draw(options.root, options.share)
        if "train" in options.only:
            _training(options, tell)
        if "iocclusion" in options.only:
            net = build.network(jc.stage_configs(_config("basic", options))[0], 10)
            tell(iocclusion=occluded.measure(net, options, SETTINGS[options.setting]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    listed = _listed
    add("--setting", choices=SMALL, default="cifar64")
    add("--only", type=listed(WITHIN), default=[*WITHIN])
    add("--root", type=pathlib.Path, help="of CIFAR-10; made images if not given")
    add("--share", type=float, help="of CIFAR-10's images are made; 1 if not given")
    methods = listed(distortion.METHODS)
    add("--methods", type=methods, default=[*distortion.METHODS])
    add("--seeds", type=int, default=5)
    add("--strategy", choices=("auto", *seed_axis.STRATEGIES), default="auto")
    usual = ["looped", "unrolled", "vmapped", "unrolled_convolutions"]
    add("--strategies", type=listed(seed_axis.STRATEGIES), default=usual)
    add("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    add("--steps", type=int, default=16, help="in one turn")
    add("--rounds", type=int, default=5)
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    add("--name", help="of the files; distortion-<setting>-<backend> if not given")
    options = parser.parse_args()
    if options.root and options.share:
        parser.error("--share: is of made images; leave --root out")
    options.made = not options.root
    options.share = options.share or 1.0
    return options


def _listed(known: Mapping[str, Any]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = list(filter(None, text.split(",")))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(jc.suggest(name, known))
        return names

    return read


def _draw(root: pathlib.Path, share: float) -> None:
    """Writes noise as the binary archive of CIFAR-10 has its images."""
    draw, place = np.random.default_rng(0), root / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    train = round(share * IMAGES["train"] / 5)
    files = {f"data_batch_{i}": train for i in range(1, 6)}
    files["test_batch"] = round(share * IMAGES["test"])
    for name, count in files.items():
        rows = draw.integers(0, 256, (count, 1 + 3 * 32 * 32), np.uint8)
        rows[:, 0] %= 10
        rows.tofile(place / f"{name}.bin")
    names = "".join(f"class {i}\n" for i in range(10))
    (place / "batches.meta.txt").write_text(names)


def _config(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """The run that trains a method, as wide and in such batches as the setting has."""
    setting = SETTINGS[options.setting]
    c = distortion.get_config(
        f"method={method},data=cifar10,root={options.root},seeds={options.seeds},"
        f"mix_group={setting.batch}"
    )
    c.model.width, c.train.batch = setting.width, setting.batch
    c.precision = options.precision
    return jc.to_dict(c)


def _training(options: argparse.Namespace, tell: Callable) -> None:
    """Rates of all methods by one strategy, then of the first by every strategy."""
    which, steps = range(options.seeds), options.steps
    configs = {name: _config(name, options) for name in options.methods}
    base, usual = options.methods[0], options.strategy
    if usual == "auto":
        usual = seed_axis.default_strategy(jax.default_backend())
    ways, stages, devices = {}, {}, mesh.make(1)
    for name, config in configs.items():
        stages[name] = common.built(config, devices)
        trained = common.Trainer(stages[name], which, usual)
        ways[name] = common.repeated(trained.run, steps)
        if name == base:
            batch, size = config["train"]["batch"], config["run"]["eval_batch"]
            ways[EVALUATION] = evaluation.make_evaluation(trained, steps * batch, size)
    first, seconds = _turns(ways, options.rounds)
    images = steps * batch * options.seeds
    rates = measured.against(seconds, base, dict.fromkeys(seconds, images))
    longer = {name: _longer(first[name], one) for name, one in seconds.items()}
    work = roofline.training(stages[base].algo.net, 32, batch)
    each = statistics.median(seconds[base]) / steps / options.seeds
    found = {
        "base": base,
        "strategy": usual,
        "rates": rates,
        "projected": {
            name: projected(one, options.seeds, rates, longer, name)
            for name, one in configs.items()
        },
        "roofline": work.told(each, jax.devices()[0].device_kind),
    }
    compared = {usual: {**rates[base], "longer": longer[base]}}
    tell(train=found, strategies=compared)
    for name in options.strategies:
        if name != usual:
            trained = common.Trainer(stages[base], which, name)
            pair = {usual: ways[base], name: common.repeated(trained.run, steps)}
            first, seconds = _turns(pair, options.rounds)
            beside = measured.against(seconds, usual, dict.fromkeys(seconds, images))
            took = _longer(first[name], seconds[name])
            compared[name] = {**beside[name], "longer": took}
            tell(strategies=compared)


def _turns(
    ways: Mapping[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Seconds of each way the first time, which compiles it, and then in turns."""
    first = {}
    for name, way in ways.items():
        began = time.perf_counter()
        way()
        first[name] = time.perf_counter() - began
        print(f"first turn of {name}: {first[name]:.1f} s", file=sys.stderr, flush=True)
    return first, measured.in_turns(ways, rounds, warm=1)


def _longer(first: float, turns: Sequence[float]) -> float:
    """Seconds of compilation: a program that another way has compiled takes none."""
    return max(first - statistics.median(turns), 0)


def projected(config, count: int, rates, longer, name: str) -> dict[str, float]:
    """Minutes of a method's whole run with all of its seeds, by its parts."""
    batch = config["train"]["batch"]
    epoch = TRAINED // batch
    total = round(config["epochs"] * epoch)
    every = jc.to_steps(config["eval_every"], steps_per_epoch=epoch, total=total)
    images = count * total * batch
    decided = count * WATCHED * -(-total // every)
    told = {
        "train": images / rates[name]["images_per_second"] / 60,
        EVALUATION: decided / rates[EVALUATION]["images_per_second"] / 60,
        "compile": (longer[name] + longer[EVALUATION]) / 60,
    }
    return {**told, "all": sum(told.values())}


def _write(options: argparse.Namespace, found: Mapping[str, Any]) -> None:
    setting, text, ratios = SETTINGS[options.setting], "", {}
    what = f"PreAct-ResNet18 of width {setting.width}, {options.seeds} seeds"
    if train := found.get("train"):
        base = train["base"]
        text += measured.table(train["rates"], base, f"{what}, {train['strategy']}")
        text += "\n" + _minutes(train["projected"], "train", "method")
        text += "\n" + roofline.markdown(
            f"{base}, a step of one seed", train["roofline"]
        )
        whole = sum(one["train"] for one in train["projected"].values())
        text += "\n" + _strategies(found["strategies"], train["strategy"], whole)
        ratios |= {f"{k} / {base}": r["ratio"] for k, r in train["rates"].items()}
        ratios |= {
            f"{base}, {k} / {train['strategy']}": r["ratio"]
            for k, r in found["strategies"].items()
        }
    if measures := found.get("iocclusion"):
        rates = measures["rates"]
        text += "\n" * bool(text)
        text += measured.table(rates, "as they are", "stimuli of Grad-CAM's occlusion")
        text += "\n" + _minutes(
            {"one network": measures["projected"]}, "iocclusion", ""
        )
        first, second = measures["seconds"]
        shown = measures["conditions"]
        text += (
            f"\nMeasured: {measures['images']:,} images in {first:.1f} s by a first "
            f"network and in {second:.1f} s by a second, each under {shown} conditions.\n"
        )
        ratios |= {f"{k} / as they are": r["ratio"] for k, r in rates.items()}
    if options.made:
        count = round(options.share * occluded.SHOWN)
        text += f"\nImages are noise: {count:,}, in files as CIFAR-10's.\n"
    name = options.name or f"distortion-{options.setting}-{jax.default_backend()}"
    precision = str(jnp.dtype(mesh.dtype(options.precision)))
    more = dict(width=setting.width, batch=setting.batch, precision=precision)
    measured.write(
        name, found, text, ratios=ratios, out=options.out, seeds=options.seeds, **more
    )


def _minutes(projected: Mapping[str, Mapping[str, float]], part: str, what: str) -> str:
    """The projection as Markdown, and whether it is as quick as is hoped for."""
    names = [*next(iter(projected.values()))]
    rows = [
        (key, *(f"{one[name]:,.1f}" for name in names))
        for key, one in projected.items()
    ]
    whole = sum(one["all"] for one in projected.values())
    head = (what, *(f"{name}, min" for name in names))
    return measured.markdown(head, rows) + (
        f"\nAll in {whole:,.1f} minutes; {WITHIN[part]} are hoped for on one H200.\n"
    )


def _strategies(found: Mapping, usual: str, minutes: float) -> str:
    """Each beside the usual one, with which all trainings take so many minutes."""
    rows = [
        (
            name,
            f"{one['ratio']:.2f}",
            f"{one['lowest']:.2f} to {one['highest']:.2f}",
            f"{one['longer']:,.1f}",
            f"{minutes / one['ratio']:,.1f}",
        )
        for name, one in found.items()
    ]
    head = (f"strategy, of {usual}", "rate", "within a round", "compile, s")
    best = max(found, key=lambda name: found[name]["ratio"])
    text = measured.markdown((*head, "all trainings, min"), rows)
    return f"{text}\nThe fastest is {best}.\n"


if __name__ == "__main__":
    main()
