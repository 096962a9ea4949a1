"""The report on networks of one's own: every number of it computed again."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from jbias.report import distortion, distortion_page, distortion_study
from tests import cases
from tests.report import distorted

pytestmark = pytest.mark.slow

SEEDS = 5
OURS = dict(data="CIFAR-10", source="preact_resnet18", training="")


measured = distorted.measured


@pytest.fixture(scope="module")
def made(measured, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return distorted.report(distortion, f"{measured}/*", out)


@pytest.fixture(scope="module")
def study(measured):
    return distortion_study.read([f"{measured}/*"])[0]


@cases.each("method", ["basic", "mixup", "fmix", "cutmix"], quick=("basic",))
@cases.each(
    ("quantity", "measure", "condition"),
    [("di_grid", "grid_shuffle", "4x4"), ("di_black", "cut_occlusion", "black")],
)
def test_indices_are_those_of_the_decisions(
    made, measured, method, quantity, measure, condition
):
    values, dominant, grown = distorted.index(measured, method, measure, condition)
    title = distortion_study.METHODS[method]
    told = distorted.one(made, "values", quantity=quantity, method=title, **OURS)
    assert float(told["mean"]) == pytest.approx(values.mean())
    assert float(told["std"]) == pytest.approx(values.std(ddof=1))
    assert told["dominant"] == dominant and int(told["n"]) == SEEDS
    random, means = np.random.default_rng(5), []
    for _ in range(2_000):
        means.append(
            distorted.of_grown(grown[random.integers(SEEDS, size=SEEDS)])[0].mean()
        )
    ends = np.quantile(means, (0.025, 0.975))
    # Two bootstraps of 2000 draws: quantiles of five seeds' means jump by parts of a span.
    near = 0.1 * (ends[1] - ends[0]) + 1e-9
    assert float(told["low"]) == pytest.approx(ends[0], abs=near)
    assert float(told["high"]) == pytest.approx(ends[1], abs=near)
    seeds = [float(value) for value in told["values"].split()]
    assert seeds == pytest.approx(values)
    every = distorted.table(
        made, "indices", method=title, data="CIFAR-10", condition=condition
    )
    every = every[(every["training"] == "") & (every["measure"] == f"{measure}@test")]
    best = distorted.CLASSES.index(dominant)
    worst = np.mean([row[best] / row.sum() * grown[:, best].max() for row in grown])
    assert float(every["share_worst"].item()) == pytest.approx(worst)
    counts = []
    for seed in range(SEEDS):
        clean, after = distorted.wrong(
            measured / f"{method}-{seed}", measure, condition
        )
        gained = np.maximum(after - clean, 0) / distorted.N * 100
        counts.append(gained)
    best = int(np.mean(counts, axis=0).argmax())
    count = np.mean([row[best] ** 2 / row.sum() for row in counts])
    assert float(every["count_mean"].item()) == pytest.approx(count)


@cases.each("method", distorted.METHODS)
def test_occlusion_at_thirty_percent(made, measured, method):
    cut, gaps = [], []
    for seed in range(SEEDS):
        test, train = (
            distorted.records(measured / f"{method}-{seed}", f"occlusion_other@{on}")
            for on in ("test", "train")
        )
        name = "occlusion_other"
        cut.append(100 * test[f"{name}/rectangle 0.3", "accuracy"])
        clean = train[name, "accuracy"] - test[name, "accuracy"]
        most = f"{name}/grad_cam most 0.3", "accuracy"
        gaps.append(abs((train[most] - test[most]) / clean))
    of = OURS | {"method": distortion_study.METHODS[method]}
    for quantity, values in (("cut_occlusion", cut), ("iocclusion", gaps)):
        told = distorted.one(made, "values", quantity=quantity, **of)
        assert float(told["mean"]) == pytest.approx(np.mean(values))
        assert float(told["std"]) == pytest.approx(np.std(values, ddof=1))
    values, dominant, _ = distorted.index(
        measured, method, "cut_occlusion_other", "other"
    )
    told = distorted.one(made, "values", quantity="di_other", **of)
    assert float(told["mean"]) == pytest.approx(values.mean())
    assert told["dominant"] == dominant


def test_affinity_is_of_basic_networks_and_diversity_of_mixed_ones(made, measured):
    for method in ("mixup", "fmix", "cutmix"):
        of = OURS | {"method": distortion_study.METHODS[method]}
        for quantity, whose, on in (
            ("affinity", "basic", "mixing@test"),
            ("diversity", method, "mixing_train@train"),
            ("mix_diversity", method, "mixing_train@train"),
        ):
            condition = f"{on.partition('@')[0]}/{method}"
            values = [
                distorted.records(measured / f"{whose}-{seed}", on)[condition, quantity]
                for seed in range(SEEDS)
            ]
            told = distorted.one(made, "values", quantity=quantity, **of)
            assert float(told["mean"]) == pytest.approx(np.mean(values))


def test_networks_of_other_training_have_rows_of_their_own(made, measured):
    of = dict(method="MixUp", quantity="accuracy")
    mixed = distorted.one(made, "values", training="mixed with FashionMNIST", **of)
    values = [
        100
        * distorted.records(measured / f"mixup-fashion_mnist-{i}", "accuracy@test")[
            "", "accuracy"
        ]
        for i in range(SEEDS)
    ]
    assert float(mixed["mean"]) == pytest.approx(np.mean(values))
    of = dict(method="MixUp", quantity="di_anywhere", training="without truck")
    assert distorted.one(made, "values", **of)["dominant"] == "ship"
    cues = distorted.table(made, "values", data="Tiny ImageNet", method="MixUp")
    cues = cues.set_index("quantity")["mean"].astype(float)
    assert cues["gst_shape"] == pytest.approx(12.05)
    assert cues["gst_texture"] == pytest.approx(28.05)
    groups = distorted.table(made, "groups")
    assert (groups["n"].astype(int)).sum() == len(list(measured.iterdir()))


def test_digits_flip_where_the_photograph_wins(made, measured):
    follow = {}
    for method in ("basic", "fmix"):
        for seed in range(3):
            path = measured / f"{method}-stacked-{seed}/decisions/stacked_cifar"
            frame = pd.read_parquet(path / "accuracy.parquet")
            part = frame[(frame["texture"] == 3) & (frame["label"] != 3)]
            share = 100 * (part["prediction"] == part["label"]).mean()
            follow.setdefault(method, []).append(share)
    told = distorted.one(made, "digits", digit="3 (cat)", method="FMix")
    change = np.mean(follow["fmix"]) - np.mean(follow["basic"])
    assert float(told["photo_mean"]) == pytest.approx(np.mean(follow["fmix"]))
    assert float(told["change"]) == pytest.approx(change)
    flips = distorted.table(made, "digits", method="FMix")["flips"]
    assert len(flips) == 10 and set(flips) == {"yes"}
    whole = distorted.one(made, "values", method="FMix", quantity="cifar")
    assert float(whole["mean"]) > 80


def test_one_seed_has_neither_deviation_nor_test(made, study):
    told = distorted.one(made, "values", data="FashionMNIST", quantity="di_grid")
    assert told["std"] == "" and told["low"] == "" and int(told["n"]) == 1
    caveats = json.loads((made / "results.json").read_text())["caveats"]
    assert any(
        "Groups with one seed" in line and "FashionMNIST" in line for line in caveats
    )
    key = distortion_study.Key("preact_resnet18", "FashionMNIST", "basic")
    assert len(study.value("di_grid", key).runs) == 1  # At 2 x 2, its grid.


def test_every_part_is_on_the_page(made):
    page = (made / "index.html").read_text()
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == [*distortion_page.SECTIONS]
    results = json.loads((made / "results.json").read_text())
    assert results["headline"].startswith("DI index, grid shuffle, preact_resnet18 on ")
    assert "of 5 methods basic has the largest, 6.60, and CutMix" in results["headline"]
    assert "by chance" in page and "paper" not in results["tables"]
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    drawn = {path.stem for path in (made / "figures").glob("*.svg")}
    assert drawn == {
        *("accuracy_black_cifar10", "iocclusion_black_cifar10"),
        *("curves_black_cifar10", "parts_black_cifar100"),
        *("wrong_grid_cifar10", "wrong_black_cifar10", "wrong_other_cifar10"),
        *("wrong_anywhere_cifar10", "wrong_grid_fashionmnist"),
    }
    tables = {path.stem for path in (made / "tables").glob("*.csv")}
    assert tables == {path.stem for path in (made / "tables").glob("*.tex")}
    seconds = distorted.one(
        made, "seconds", measure="grid_shuffle@test", data="CIFAR-10"
    )
    count = len(distorted.METHODS) * SEEDS
    assert float(seconds["n"]) == count and float(seconds["each"]) == 2
    total = float(distorted.one(made, "seconds", model="total")["hours"])
    each = distorted.table(made, "seconds")
    assert total == pytest.approx(
        each["hours"][each["model"] != "total"].astype(float).sum()
    )
    assert float(seconds["hours"]) == pytest.approx(2 * count / 3600)


def test_curves_hold_every_fraction(made, measured):
    gaps = distorted.table(made, "gaps", method="FMix", fill="black", way="fourier")
    gaps = gaps[gaps["data"] == "CIFAR-10"].astype({"hidden": float})
    assert len(gaps) == 10
    at = gaps[np.isclose(gaps["hidden"], 0.7)].iloc[0]
    values = [
        distorted.records(measured / f"fmix-{i}", "occlusion@test")[
            "occlusion/fourier 0.7", "accuracy"
        ]
        for i in range(SEEDS)
    ]
    assert float(at["test"]) == pytest.approx(np.mean(values))
    first = gaps[gaps["hidden"] == 0].iloc[0]
    assert float(first["iocclusion"]) == 1 and float(first["iocclusion_std"]) == 0


def test_what_training_cost_is_what_runs_say(measured, tmp_path):
    run = tmp_path / "runs/basic-cifar10"
    run.mkdir(parents=True)
    config = {"variant": "basic", "train": {"data": "cifar10"}, "seeds": [0, 1]}
    (run / "config.json").write_text(json.dumps(config))
    start = dict(device="cpu", devices=2, watts=12, source="a core", share=1, pue=1.5)
    total = dict(device_hours=0.25, energy_kwh=0.0045, kg_co2e=None)
    (run / "costs.json").write_text(json.dumps({"starts": [start], "total": total}))
    folder = tmp_path / "measured/one"
    shutil.copytree(measured / "basic-tiny-0", folder)
    held = json.loads((folder / "config.json").read_text())
    held["run"]["path"] = str(run)
    (folder / "config.json").write_text(json.dumps(held))
    for path in (folder / "measures").iterdir():
        told = json.loads(path.read_text())
        told["cost"] = start | dict(device_hours=0.5, energy_kwh=0.006, kg_co2e=None)
        path.write_text(json.dumps(told))
    runs = f"--runs={tmp_path}/runs/*"
    out = distorted.report(distortion, folder, tmp_path / "out", runs)
    told, total = (
        distorted.one(out, "training", run=name) for name in (str(run), "total")
    )
    assert total["energy_kwh"] == told["energy_kwh"] and total["measured"] == 1
    assert told["device_hours"] == 0.25 and told["energy_kwh"] == 0.0045
    assert told["assumed"] == "2 × cpu, 12 W each (a core), 100 % of it in use, PUE 1.5"
    assert (told["seeds"], told["measured"]) == (2, 1)
    seconds = distorted.one(out, "seconds", data="Tiny ImageNet")
    assert seconds["energy_kwh"] == 0.006 and "PUE 1.5" in seconds["device"]


@cases.each(
    ("args", "words"),
    [
        (["--measured=nowhere/*"], "nowhere"),
        (["--runs=nowhere/*"], "--runs: must match"),
    ],
)
def test_wrong_arguments_are_one_line(measured, tmp_path, capsys, args, words):
    given = [f"--measured={measured}/*-tiny-*", f"--out={tmp_path / 'out'}"]
    if args[0].startswith("--measured"):
        given = given[1:]
    assert distortion.main([*given, *args]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error
    assert not (tmp_path / "out").exists()


def test_classes_that_nobody_decides_for_count(tmp_path):
    """The index is K times a share, for the K classes of the network."""
    found, values = distorted.shuffled(np.random.default_rng(0), "basic", ("4x4",)), {}
    for k in (10, 20):
        names = [*map(str, range(k))]
        asked = dict(method="basic", data="cifar10", classes=names)
        for seed in range(2):
            folder = tmp_path / f"{k}-{seed}"
            one = {("grid_shuffle", "grid_shuffle", "test"): (*found, {})}
            distorted.write(folder, one, seed=seed, **asked)
        group = distorted.group(f"{tmp_path}/{k}-*")
        place = ("grid_shuffle", "test")
        values[k] = distortion_study.index(group, place, "4x4").runs
    np.testing.assert_allclose(values[20], 2 * values[10])
    path = tmp_path / "20-1/measures/grid_shuffle@test.json"
    told = json.loads(path.read_text())
    for lost in ([], names[:10]):
        path.write_text(json.dumps(told | {"classes": lost}))
        group = distorted.group(f"{tmp_path}/20-*")
        with pytest.raises(ValueError, match="@test.json: must have the classes, the"):
            distortion_study.index(group, place, "4x4")


def test_what_is_left_out_is_told(measured, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(measured / "basic-tiny-0", tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config["run"] = {"digest": "1", "path": name}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for path in (tmp_path / "two/evals").iterdir():
        path.write_text(path.read_text().replace("basic-tiny_imagenet", "again"))
    study, notes = distortion_study.read([f"{tmp_path}/*"])
    assert len(study.networks) == 1
    assert notes[0].startswith(
        "Networks with the same weights, of which the first counts: "
    )


def test_a_file_is_no_folder_of_a_report(tmp_path, capsys):
    """Before anything is read; and a glob that a shell spread is several workdirs."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        distortion.main(["--measured=nowhere", f"--out={tmp_path / 'file'}"])
    assert "--out: must be a folder" in capsys.readouterr().err
    args = ["--measured=nowhere/a", "nowhere/b", "--runs=c", "d", f"--out={tmp_path}"]
    assert distortion.main(args) == 2
    assert "nowhere/a" in capsys.readouterr().err


@cases.each("flag", ["--printed", "--printed=examples/published"])
def test_printed_numbers_are_of_another_command(capsys, flag):
    """In one line, whatever else is missing."""
    with pytest.raises(SystemExit) as ended:
        distortion.main([flag])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.count("\n") == 1
    assert (
        "--printed: this flag has moved; use `jbias papers distortion` instead" in error
    )


def test_a_seed_measured_twice_is_refused(measured, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(measured / "fashion", tmp_path / name)
    for path in (tmp_path / "two/evals").iterdir():
        path.write_text(path.read_text().replace("basic-fashion_mnist", "again"))
    with pytest.raises(ValueError, match="name the workdirs of one"):
        distortion_study.read([f"{tmp_path}/*"])


@cases.each(
    ("variant", "data", "method", "training"),
    [
        ("rm", "cifar10", "RM", ""),
        ("", "shapes", "basic", ""),
        ("fmix", "stacked", "FMix", ""),
        ("mixup-with-same", "cifar10", "MixUp", "mixed with itself"),
        ("cutmix-with-cifar100", "cifar10", "CutMix", "mixed with CIFAR-100"),
        ("fmix-without-truck+ship", "cifar10", "FMix", "without truck and ship"),
        ("basic-kept-long-tail", "cifar100", "basic", "part long-tail"),
        ("fmix-released", "cifar10", "FMix", "released"),
        ("mixup+biasbed", "cifar10", "MixUp", "biasbed"),
        ("inter_dataset", "shapes", "inter_dataset", ""),
    ],
)
def test_variants_are_methods_and_trainings(tmp_path, variant, data, method, training):
    found = {("accuracy", "plain", "test"): ([distorted.accuracy(0.5)], None, {})}
    dropped = {"drop": "truck+ship"} if "without" in variant else {}
    distorted.write(
        tmp_path / "net", found, method=variant, data=data, seed=0, **dropped
    )
    group = distorted.group(tmp_path / "net")
    assert (group.key.method, group.key.training) == (method, training)


@cases.each(
    ("name", "method"),
    [("mixup", "MixUp"), ("random_masks", "RM"), ("flip", "basic")],
)
def test_what_mixes_is_the_method_where_no_variant_says(tmp_path, name, method):
    found = {("accuracy", "plain", "test"): ([distorted.accuracy(0.5)], None, {})}
    distorted.write(tmp_path / "net", found, method="", data="shapes", seed=0)
    path = tmp_path / "net/config.json"
    config = json.loads(path.read_text())
    config["config"]["inputs"] = [{"name": "pad_crop"}, {"name": name}]
    path.write_text(json.dumps(config))
    group = distorted.group(tmp_path / "net")
    assert group.key.method == method


def test_seeds_of_unlike_numbers_are_told(measured, tmp_path):
    for method, size in dict(basic=3, mixup=2, fmix=1).items():
        for seed in range(size):
            name = f"{method}-{seed}"
            shutil.copytree(measured / name, tmp_path / name)
    study, _ = distortion_study.read([f"{tmp_path}/*"])
    table = distortion_page.comparison(distortion_page.value_layout(study), study)
    lines = list(distortion_page.notes_on_indices(table.data))
    words = "(basic 3, MixUp 2, FMix 1). An index of fewer seeds is larger by chance"
    assert len(lines) == 4 and all(words in line for line in lines)
    assert lines[0].startswith("DI index, grid shuffle (preact_resnet18, CIFAR-10): ")
