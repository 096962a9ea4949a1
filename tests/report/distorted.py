"""Fake networks of the data-distortion study with known numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from jbias.measures import decisions, interference
from jbias.measures.decisions import Number
from jbias.report.pages.distortion import distortion_groups
from tests.report import measure_files

CLASSES = (
    *("plane", "car", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
N = 200  # Images of a set, 20 a class.
FRACTIONS = tuple(i / 10 for i in range(1, 10))
OCCLUSIONS = (
    "rectangle",
    "fourier",
    *(f"grad_cam {o}" for o in ("most", "least", "random")),
)
METHODS = ("basic", "mixup", "fmix", "cutmix", "rm")
# Number of 90 errors on distorted images that are decisions for trucks, by method.
TRUCK_ERRORS = {"basic": 70, "mixup": 50, "fmix": 16, "cutmix": 12, "rm": 20}
# Loss of accuracy with 30 % hidden, on training and on test images.
ACCURACY_LOSS = {
    "basic": (0.42, 0.45),
    "mixup": (0.30, 0.33),
    "fmix": (0.12, 0.09),
    "cutmix": (0.15, 0.14),
    "rm": (0.28, 0.26),
}


def fake_decisions(rng, errors, target=None, target_errors=0, k=10, **columns):
    """Return decisions with `errors` wrong answers, `target_errors` of them for `target`."""
    label = np.arange(N) % k
    answer = label.copy()
    candidates = np.flatnonzero(label != (-1 if target is None else target))
    wrong_images = rng.choice(candidates, errors, replace=False)
    for i, image in enumerate(wrong_images):
        other_classes = [c for c in range(k) if c not in (label[image], target)]
        answer[image] = (
            target if i < target_errors else other_classes[i % len(other_classes)]
        )
    return decisions.Decisions(answer, {"label": label, **columns})


def count_correct(decided):
    """Return the accuracy and the number of correct decisions."""
    num_correct = int((decided.prediction == decided.columns["label"]).sum())
    return num_correct / len(decided.prediction), num_correct


def accuracy(value, condition="", n=N):
    """Return an accuracy without a count, so that any value is allowed."""
    return Number("accuracy", value, None, n, condition)


def fake_interference(rng, method, names, k=10):
    """Return numbers and decisions: clean errors are spread, distorted ones in the last class."""
    decisions_by_condition = {"": fake_decisions(rng, 30, None, k=k)}
    for i, name in enumerate(names):
        target_errors = TRUCK_ERRORS.get(method, 40) + int(rng.integers(-3, 4)) - 2 * i
        decisions_by_condition[name] = fake_decisions(
            rng, 90, k - 1, max(target_errors, 0), k=k
        )
    return interference.numbers(
        decisions_by_condition, classes=k
    ), decisions_by_condition


def fake_occlusion(rng, method, split, fractions=FRACTIONS, occlusions=OCCLUSIONS):
    """Return accuracies that fall with the hidden fraction, by method."""
    train = split == "train"
    clean = (0.99 if train else 0.94) + 0.001 * rng.integers(0, 4)
    numbers = [accuracy(clean)]
    for j, occlusion in enumerate(occlusions):
        for fraction in fractions:
            loss = ACCURACY_LOSS[method][not train] * fraction / 0.3 * (1 - 0.1 * j)
            noise = 0.001 * rng.integers(0, 6)
            value = max(clean - loss, 0.05) + noise
            numbers.append(accuracy(value, f"{occlusion} {fraction:g}"))
    return numbers


def fake_mixing(rng, split):
    """Return the affinity and, on training images, the diversity of three mixing methods."""
    numbers = [accuracy(0.9)]
    for i, name in enumerate(("mixup", "cutmix", "fmix")):
        noise = 0.01 * rng.integers(0, 4)
        numbers.append(Number("affinity", -12.0 - 6 * i - noise, None, N, name))
        if split == "train":
            numbers.append(Number("diversity", 0.45 - 0.05 * i + noise, None, N, name))
            numbers.append(
                Number("mix_diversity", 0.9 - 0.1 * i + noise, None, N, name)
            )
    return numbers


def fake_measurements(rng, method):
    """Return numbers, decisions and options of a CIFAR-10 network by (measure, probe, set)."""
    accuracy_value = 0.94 + 0.001 * rng.integers(0, 9)
    three_fills = fake_interference(rng, method, ("black", "mean", "other"))
    other_set = fake_interference(rng, method, ("other",))
    measurements = {
        ("accuracy", "plain", "test"): ([accuracy(accuracy_value)], None, {}),
        ("accuracy", "plain", "train"): ([accuracy(0.99)], None, {}),
        ("grid_shuffle", "grid_shuffle", "test"): (
            *fake_interference(rng, method, ("2x2", "4x4", "8x8")),
            {"grids": [2, 4, 8]},
        ),
        ("cut_occlusion", "cut_occlusion", "test"): (
            *three_fills,
            box_options("black", "mean", "other"),
        ),
        ("cut_occlusion_other", "cut_occlusion", "test"): (
            *other_set,
            box_options("other") | {"area": 0.3, "placement": "restricted"},
        ),
        ("mixing", "mixing", "test"): (fake_mixing(rng, "test"), None, {}),
        ("mixing_train", "mixing", "train"): (fake_mixing(rng, "train"), None, {}),
    }
    for split in ("test", "train"):
        numbers = fake_occlusion(rng, method, split)
        measurements["occlusion", "occlusion", split] = numbers, None, {"fill": "black"}
        numbers = fake_occlusion(
            rng,
            method,
            split,
            fractions=(0.3,),
            occlusions=("rectangle", "fourier", "grad_cam most"),
        )
        measurements["occlusion_other", "occlusion", split] = (
            numbers,
            None,
            {"fill": "other"},
        )
    return measurements


def box_options(*fills):
    return {"area": "beta", "placement": "unrestricted", "fills": list(fills)}


def fake_stacked(rng, method):
    """Return measures of stacked images: basic networks answer the digit, others the photo."""
    photo, digit = np.arange(N) % 10, np.arange(N) // 10 % 10
    answer = np.where(rng.random(N) < 0.9, digit if method == "basic" else photo, 0)
    measurements = {}
    for name, label, texture in (("cifar", photo, digit), ("mnist", digit, photo)):
        decisions_by_condition = {
            "": decisions.Decisions(answer, {"label": label, "texture": texture})
        }
        key = ("accuracy", "plain", f"stacked_{name}")
        measurements[key] = (
            [accuracy(count_correct(decisions_by_condition[""])[0])],
            decisions_by_condition,
            {},
        )
    return measurements


def fake_style_transfer(shape, texture):
    """Return a measure of shape bias with these accuracies by shape and by texture."""
    numbers = [
        Number("accuracy_shape", shape, None, 1280),
        Number("accuracy_texture", texture, None, 1280),
    ]
    return {("shape_bias", "shape_bias", "cue-conflict"): (numbers, None, {})}


def write(
    folder, measurements, *, method, data, seed, classes=CLASSES, kind="", **train
):
    """Write a workdir like those of `jbias evaluate --suite`."""
    variant = method + kind
    run = f"{variant}-{data}"
    fields = dict(run=run, algorithm="erm", variant=variant, model="preact_resnet18")
    fields |= dict(seed=seed, train_data=data, stage=0, step=9, epoch=1.0)
    for (measure, probe, dataset), (
        numbers,
        decisions_by_condition,
        options,
    ) in measurements.items():
        description = {"measure": {"probe": probe, "options": options}, "images": N}
        description |= {"seconds": 2.0, "precision": "float32", "classes": classes}
        description |= {"environment": {"device": {"count": 1, "kind": "cpu"}}}
        measure_files.write(
            folder,
            fields,
            measure,
            dataset,
            numbers,
            description,
            decisions_by_condition,
        )
    settings = {"train": {"data": data, **train}, "seeds": [seed]}
    config = {"algorithm": "erm", "variant": variant, "config": settings}
    config |= {"model": {"name": "preact_resnet18"}, "run": {"path": f"runs/{run}"}}
    (folder / "config.json").write_text(json.dumps(config))
    provenance = {"suite": {"measures": {}}, "device": {"kind": "cpu", "count": 1}}
    (folder / "provenance.json").write_text(json.dumps(provenance))


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """Return a folder of workdirs of the whole study; tests must not change it."""
    return write_study(tmp_path_factory.mktemp("measured"))


def report(command, measured, out, *args):
    """Run a report command and return the folder of its report."""
    assert command.main([f"--measured={measured}", f"--out={out}", *args]) == 0
    return out


def write_study(folder, *, seeds=5):
    """Write networks for every table: all methods on CIFAR-10, some on other data sets."""
    for method in METHODS:
        for seed in range(seeds):
            rng = np.random.default_rng([seed, METHODS.index(method)])
            workdir = folder / f"{method}-{seed}"
            write(
                workdir,
                fake_measurements(rng, method),
                method=method,
                data="cifar10",
                seed=seed,
            )
    for method in ("mixup", "fmix", "cutmix"):
        for mixed_set in ("same", "fashion_mnist"):
            for seed in range(seeds):
                loss = 0.02 if (method, mixed_set) == ("mixup", "fashion_mnist") else 0
                value = 0.942 - loss + 0.001 * ((seed * 7 + len(mixed_set)) % 5)
                write(
                    folder / f"{method}-{mixed_set}-{seed}",
                    {("accuracy", "plain", "test"): ([accuracy(value)], None, {})},
                    method=method,
                    data="cifar10",
                    seed=seed,
                    kind=f"-with-{mixed_set}",
                )
    for method in ("mixup", "fmix"):
        for seed in range(seeds):
            rng = np.random.default_rng([seed, 7])
            measurement = (
                *fake_interference(rng, method, ("other",), k=9),
                box_options("other"),
            )
            write(
                folder / f"{method}-drop-{seed}",
                {("cut_occlusion", "cut_occlusion", "test"): measurement},
                method=method,
                data="cifar10",
                seed=seed,
                classes=CLASSES[:9],
                kind="-without-truck",
                drop="truck",
            )
    for method, cues in (("basic", (0.1, 0.26)), ("mixup", (0.12, 0.28))):
        for seed in range(2):
            measurements = fake_style_transfer(*(cue + 0.001 * seed for cue in cues))
            workdir = folder / f"{method}-tiny-{seed}"
            write(workdir, measurements, method=method, data="tiny_imagenet", seed=seed)
    for method in ("basic", "fmix"):
        for seed in range(3):
            rng = np.random.default_rng([seed, 8])
            workdir = folder / f"{method}-stacked-{seed}"
            write(
                workdir,
                fake_stacked(rng, method),
                method=method,
                data="stacked",
                seed=seed,
            )
    for kept_part in ("tail", "typical"):
        for seed in range(2):
            rng = np.random.default_rng([seed, 9])
            measurements = {
                ("occlusion", "occlusion", split): (
                    fake_occlusion(
                        rng, "basic" if kept_part == "tail" else "fmix", split
                    ),
                    None,
                    {"fill": "black"},
                )
                for split in ("test", "train")
            }
            write(
                folder / f"{kept_part}-{seed}",
                measurements,
                method="basic",
                data="cifar100",
                seed=seed,
                kind=f"-kept-{kept_part}",
            )
    rng = np.random.default_rng(11)
    measurements = {
        ("grid_shuffle", "grid_shuffle", "test"): (
            *fake_interference(rng, "basic", ("2x2",)),
            {},
        )
    }
    write(
        folder / "fashion", measurements, method="basic", data="fashion_mnist", seed=0
    )
    return folder


def table(report_dir, name, **selected):
    """Read a table of a report as text; keep the rows with the selected column values."""
    frame = pd.read_csv(report_dir / f"tables/{name}.csv", keep_default_na=False)
    for column, value in selected.items():
        frame = frame[frame[column] == value]
    return frame


def row(report_dir, name, **selected):
    """Return the only row of a table with the selected column values."""
    frame = table(report_dir, name, **selected)
    assert len(frame) == 1, (name, selected, len(frame))
    return frame.iloc[0]


def records(folder, name):
    """Read the records of a measure: values by (condition, metric)."""
    lines = (folder / f"evals/{name}.jsonl").read_text().splitlines()
    return {(r["condition"], r["metric"]): r["value"] for r in map(json.loads, lines)}


def count_errors(folder, measure, condition):
    """Count wrong answers per class on clean and on distorted images, from stored decisions."""
    frame = pd.read_parquet(folder / f"decisions/test/{measure}.parquet")
    counts = []
    for name in ("", condition):
        rows = frame[(frame["condition"] == name)]
        answers = rows["prediction"][rows["prediction"] != rows["label"]]
        counts.append([int((answers == c).sum()) for c in range(10)])
    return np.array(counts)


def di_index(measured, method, measure, condition, seeds=5):
    """Return the DI index of each seed by the published formula, its class, and growths."""
    growths = []
    for seed in range(seeds):
        clean, distorted = count_errors(
            measured / f"{method}-{seed}", measure, condition
        )
        q0, q1 = clean / clean.sum(), distorted / distorted.sum()
        growths.append(np.maximum(q1 - q0, 0) * 10 / 100 * 100)
    values, best = index_of_growths(np.array(growths))
    return values, CLASSES[best], np.array(growths)


def index_of_growths(growths):
    """Return the DI index of each seed, and the class with the largest mean growth."""
    best = int(growths.mean(axis=0).argmax())
    weight = growths[:, best].mean()
    return np.array([row[best] / row.sum() * weight for row in growths]), best


def read_group(pattern):
    """Return the only group of these workdirs."""
    study, _ = distortion_groups.read([str(pattern)])
    (group,) = study.groups.values()
    return group
