"""Networks of the data-distortion study that were never trained, with known numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from jbias.evals import decisions, interference
from jbias.evals.decisions import Number
from jbias.report import distortion_study
from tests.report import kept

CLASSES = (
    *("plane", "car", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
N = 200  # Images of a set, 20 a class.
FRACTIONS = tuple(i / 10 for i in range(1, 10))
WAYS = ("rectangle", "fourier", *(f"grad_cam {o}" for o in ("most", "least", "random")))
METHODS = ("basic", "mixup", "fmix", "cutmix", "rm")
# How many of 90 errors on distorted images are for trucks, by method.
GATHERED = {"basic": 70, "mixup": 50, "fmix": 16, "cutmix": 12, "rm": 20}
# Accuracy that 30 % hidden costs the training and the test images.
LOST = {
    "basic": (0.42, 0.45),
    "mixup": (0.30, 0.33),
    "fmix": (0.12, 0.09),
    "cutmix": (0.15, 0.14),
    "rm": (0.28, 0.26),
}


def decided(rng, errors, target=None, gathered=0, k=10, **columns):
    """Answers of which so many are wrong, and so many of these for one class."""
    label = np.arange(N) % k
    answer = label.copy()
    free = np.flatnonzero(label != (-1 if target is None else target))
    wrong = rng.choice(free, errors, replace=False)
    for i, place in enumerate(wrong):
        others = [c for c in range(k) if c not in (label[place], target)]
        answer[place] = target if i < gathered else others[i % len(others)]
    return decisions.Decisions(answer, {"label": label, **columns})


def share(decided):
    right = int((decided.prediction == decided.columns["label"]).sum())
    return right / len(decided.prediction), right


def accuracy(value, condition="", n=N):
    """Any value, so without the count that it would have to be of."""
    return Number("accuracy", value, None, n, condition)


def shuffled(rng, method, names, k=10):
    """Clean errors spread out; distorted ones gather in the last class."""
    found = {"": decided(rng, 30, None, k=k)}
    for i, name in enumerate(names):
        more = GATHERED.get(method, 40) + int(rng.integers(-3, 4)) - 2 * i
        found[name] = decided(rng, 90, k - 1, max(more, 0), k=k)
    return interference.numbers(found, classes=k), found


def hidden(rng, method, on, fractions=FRACTIONS, ways=WAYS):
    """Accuracies that fall with the fraction, by method; no decisions."""
    train = on == "train"
    clean = (0.99 if train else 0.94) + 0.001 * rng.integers(0, 4)
    found = [accuracy(clean)]
    for j, way in enumerate(ways):
        for fraction in fractions:
            lost = LOST[method][not train] * fraction / 0.3 * (1 - 0.1 * j)
            noise = 0.001 * rng.integers(0, 6)
            value = max(clean - lost, 0.05) + noise
            found.append(accuracy(value, f"{way} {fraction:g}"))
    return found


def mixed(rng, on):
    found = [accuracy(0.9)]
    for i, name in enumerate(("mixup", "cutmix", "fmix")):
        noise = 0.01 * rng.integers(0, 4)
        found.append(Number("affinity", -12.0 - 6 * i - noise, None, N, name))
        if on == "train":
            found.append(Number("diversity", 0.45 - 0.05 * i + noise, None, N, name))
            found.append(Number("mix_diversity", 0.9 - 0.1 * i + noise, None, N, name))
    return found


def everything(rng, method):
    """Numbers, decisions and options by (measure, probe, set) of one CIFAR-10 network."""
    right = 0.94 + 0.001 * rng.integers(0, 9)
    black = shuffled(rng, method, ("black", "mean", "other"))
    other = shuffled(rng, method, ("other",))
    found = {
        ("accuracy", "plain", "test"): ([accuracy(right)], None, {}),
        ("accuracy", "plain", "train"): ([accuracy(0.99)], None, {}),
        ("grid_shuffle", "grid_shuffle", "test"): (
            *shuffled(rng, method, ("2x2", "4x4", "8x8")),
            {"grids": [2, 4, 8]},
        ),
        ("cut_occlusion", "cut_occlusion", "test"): (
            *black,
            boxes("black", "mean", "other"),
        ),
        ("cut_occlusion_other", "cut_occlusion", "test"): (
            *other,
            boxes("other") | {"area": 0.3, "placement": "restricted"},
        ),
        ("mixing", "mixing", "test"): (mixed(rng, "test"), None, {}),
        ("mixing_train", "mixing", "train"): (mixed(rng, "train"), None, {}),
    }
    few = dict(fractions=(0.3,), ways=("rectangle", "fourier", "grad_cam most"))
    for on in ("test", "train"):
        numbers = hidden(rng, method, on)
        found["occlusion", "occlusion", on] = numbers, None, {"fill": "black"}
        numbers = hidden(rng, method, on, **few)
        found["occlusion_other", "occlusion", on] = numbers, None, {"fill": "other"}
    return found


def boxes(*fills):
    return {"area": "beta", "placement": "unrestricted", "fills": list(fills)}


def stacked(rng, method):
    """Stacked images: basic networks answer the digit, the others the photograph."""
    photo, digit = np.arange(N) % 10, np.arange(N) // 10 % 10
    answer = np.where(rng.random(N) < 0.9, digit if method == "basic" else photo, 0)
    found = {}
    for name, label, other in (("cifar", photo, digit), ("mnist", digit, photo)):
        by = {"": decisions.Decisions(answer, {"label": label, "texture": other})}
        key = ("accuracy", "plain", f"stacked_{name}")
        found[key] = [accuracy(share(by[""])[0])], by, {}
    return found


def style_transfer(shape, texture):
    found = [
        Number("accuracy_shape", shape, None, 1280),
        Number("accuracy_texture", texture, None, 1280),
    ]
    return {("shape_bias", "shape_bias", "cue-conflict"): (found, None, {})}


def write(folder, found, *, method, data, seed, classes=CLASSES, kind="", **train):
    """A workdir as `jbias evaluate --suite` leaves it."""
    variant = method + kind
    run = f"{variant}-{data}"
    fields = dict(run=run, algorithm="erm", variant=variant, model="preact_resnet18")
    fields |= dict(seed=seed, train_data=data, stage=0, step=9, epoch=1.0)
    for (measure, probe, dataset), (numbers, by, options) in found.items():
        told = {"measure": {"probe": probe, "options": options}, "images": N}
        told |= {"seconds": 2.0, "precision": "float32", "classes": classes}
        told |= {"environment": {"device": {"count": 1, "kind": "cpu"}}}
        kept.write(folder, fields, measure, dataset, numbers, told, by)
    settings = {"train": {"data": data, **train}, "seeds": [seed]}
    config = {"algorithm": "erm", "variant": variant, "config": settings}
    config |= {"model": {"name": "preact_resnet18"}, "run": {"path": f"runs/{run}"}}
    (folder / "config.json").write_text(json.dumps(config))
    facts = {"suite": {"measures": {}}, "device": {"kind": "cpu", "count": 1}}
    (folder / "provenance.json").write_text(json.dumps(facts))


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """Workdirs of the whole study, which nobody changes."""
    return write_study(tmp_path_factory.mktemp("measured"))


def report(command, measured, out, *args):
    """Return the folder of a report that the command has made."""
    assert command.main([f"--measured={measured}", f"--out={out}", *args]) == 0
    return out


def write_study(folder, *, seeds=5):
    """Networks for every table: all methods on CIFAR-10, and some of the others."""
    for method in METHODS:
        for seed in range(seeds):
            rng = np.random.default_rng([seed, METHODS.index(method)])
            where = folder / f"{method}-{seed}"
            write(
                where, everything(rng, method), method=method, data="cifar10", seed=seed
            )
    for method in ("mixup", "fmix", "cutmix"):
        for other in ("same", "fashion_mnist"):
            for seed in range(seeds):
                hurt = 0.02 if (method, other) == ("mixup", "fashion_mnist") else 0
                value = 0.942 - hurt + 0.001 * ((seed * 7 + len(other)) % 5)
                write(
                    folder / f"{method}-{other}-{seed}",
                    {("accuracy", "plain", "test"): ([accuracy(value)], None, {})},
                    **dict(method=method, data="cifar10", seed=seed),
                    kind=f"-with-{other}",
                )
    for method in ("mixup", "fmix"):
        for seed in range(seeds):
            rng = np.random.default_rng([seed, 7])
            found = (*shuffled(rng, method, ("other",), k=9), boxes("other"))
            write(
                folder / f"{method}-drop-{seed}",
                {("cut_occlusion", "cut_occlusion", "test"): found},
                **dict(method=method, data="cifar10", seed=seed, classes=CLASSES[:9]),
                **dict(kind="-without-truck", drop="truck"),
            )
    for method, cues in (("basic", (0.1, 0.26)), ("mixup", (0.12, 0.28))):
        for seed in range(2):
            found = style_transfer(*(cue + 0.001 * seed for cue in cues))
            where = folder / f"{method}-tiny-{seed}"
            write(where, found, method=method, data="tiny_imagenet", seed=seed)
    for method in ("basic", "fmix"):
        for seed in range(3):
            rng = np.random.default_rng([seed, 8])
            where = folder / f"{method}-stacked-{seed}"
            write(where, stacked(rng, method), method=method, data="stacked", seed=seed)
    for part in ("tail", "typical"):
        for seed in range(2):
            rng = np.random.default_rng([seed, 9])
            found = {
                ("occlusion", "occlusion", on): (
                    hidden(rng, "basic" if part == "tail" else "fmix", on),
                    None,
                    {"fill": "black"},
                )
                for on in ("test", "train")
            }
            write(
                folder / f"{part}-{seed}",
                found,
                **dict(method="basic", data="cifar100", seed=seed),
                kind=f"-kept-{part}",
            )
    rng = np.random.default_rng(11)
    found = {
        ("grid_shuffle", "grid_shuffle", "test"): (
            *shuffled(rng, "basic", ("2x2",)),
            {},
        )
    }
    write(folder / "fashion", found, method="basic", data="fashion_mnist", seed=0)
    return folder


def table(made, name, **where):
    """A table of a report as text, of the rows where columns have these values."""
    frame = pd.read_csv(made / f"tables/{name}.csv", keep_default_na=False)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def one(made, name, **where):
    frame = table(made, name, **where)
    assert len(frame) == 1, (name, where, len(frame))
    return frame.iloc[0]


def records(folder, name):
    lines = (folder / f"evals/{name}.jsonl").read_text().splitlines()
    return {(r["condition"], r["metric"]): r["value"] for r in map(json.loads, lines)}


def wrong(folder, measure, condition):
    """Wrong answers by class of the clean and the distorted images, read off the file."""
    frame = pd.read_parquet(folder / f"decisions/test/{measure}.parquet")
    counts = []
    for name in ("", condition):
        part = frame[(frame["condition"] == name)]
        answers = part["prediction"][part["prediction"] != part["label"]]
        counts.append([int((answers == c).sum()) for c in range(10)])
    return np.array(counts)


def index(measured, method, measure, condition, seeds=5):
    """The DI index of each seed by the published formula, its class, and growths."""
    grown = []
    for seed in range(seeds):
        clean, after = wrong(measured / f"{method}-{seed}", measure, condition)
        q0, q1 = clean / clean.sum(), after / after.sum()
        grown.append(np.maximum(q1 - q0, 0) * 10 / 100 * 100)
    values, best = of_grown(np.array(grown))
    return values, CLASSES[best], np.array(grown)


def of_grown(grown):
    best = int(grown.mean(axis=0).argmax())
    weight = grown[:, best].mean()
    return np.array([row[best] / row.sum() * weight for row in grown]), best


def group(pattern):
    """The only group of these workdirs."""
    study, _ = distortion_study.read([str(pattern)])
    (found,) = study.groups.values()
    return found
