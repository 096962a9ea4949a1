"""Report of the distortion study on measured networks: every number is recomputed."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from jbias.report import distortion
from jbias.report.pages.distortion import distortion_groups, distortion_page
from tests import cases
from tests.report import distorted

pytestmark = pytest.mark.slow

SEEDS = 5
OURS = dict(data="CIFAR-10", source="preact_resnet18", training="")


measured = distorted.measured


@pytest.fixture(scope="module")
def report_dir(measured, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return distorted.report(distortion, f"{measured}/*", out)


@pytest.fixture(scope="module")
def study(measured):
    return distortion_groups.read([f"{measured}/*"])[0]


@cases.each("method", ["basic", "mixup", "fmix", "cutmix"], quick=("basic",))
@cases.each(
    ("quantity", "measure", "condition"),
    [("di_grid", "grid_shuffle", "4x4"), ("di_black", "cut_occlusion", "black")],
)
def test_indices_match_the_stored_decisions(
    report_dir, measured, method, quantity, measure, condition
):
    values, dominant, growths = distorted.di_index(measured, method, measure, condition)
    title = distortion_groups.METHODS[method]
    row = distorted.row(report_dir, "values", quantity=quantity, method=title, **OURS)
    assert float(row["mean"]) == pytest.approx(values.mean())
    assert float(row["std"]) == pytest.approx(values.std(ddof=1))
    assert row["dominant"] == dominant and int(row["n"]) == SEEDS
    random, means = np.random.default_rng(5), []
    for _ in range(2_000):
        resampled = growths[random.integers(SEEDS, size=SEEDS)]
        means.append(distorted.index_of_growths(resampled)[0].mean())
    ends = np.quantile(means, (0.025, 0.975))
    # Two bootstraps with 2000 draws: quantiles of the means of five seeds are coarse.
    tolerance = 0.1 * (ends[1] - ends[0]) + 1e-9
    assert float(row["low"]) == pytest.approx(ends[0], abs=tolerance)
    assert float(row["high"]) == pytest.approx(ends[1], abs=tolerance)
    seeds = [float(value) for value in row["values"].split()]
    assert seeds == pytest.approx(values)
    index_rows = distorted.table(
        report_dir, "indices", method=title, data="CIFAR-10", condition=condition
    )
    index_rows = index_rows[
        (index_rows["training"] == "") & (index_rows["measure"] == f"{measure}@test")
    ]
    best = distorted.CLASSES.index(dominant)
    worst = np.mean([x[best] / x.sum() * growths[:, best].max() for x in growths])
    assert float(index_rows["share_worst"].item()) == pytest.approx(worst)
    counts = []
    for seed in range(SEEDS):
        clean, distorted_errors = distorted.count_errors(
            measured / f"{method}-{seed}", measure, condition
        )
        gained = np.maximum(distorted_errors - clean, 0) / distorted.N * 100
        counts.append(gained)
    best = int(np.mean(counts, axis=0).argmax())
    count = np.mean([row[best] ** 2 / row.sum() for row in counts])
    assert float(index_rows["count_mean"].item()) == pytest.approx(count)


@cases.each("method", distorted.METHODS)
def test_occlusion_values_are_those_at_thirty_percent(report_dir, measured, method):
    accuracies, gaps = [], []
    for seed in range(SEEDS):
        test, train = (
            distorted.records(measured / f"{method}-{seed}", f"occlusion_other@{split}")
            for split in ("test", "train")
        )
        name = "occlusion_other"
        accuracies.append(100 * test[f"{name}/rectangle 0.3", "accuracy"])
        clean = train[name, "accuracy"] - test[name, "accuracy"]
        hides_most = f"{name}/grad_cam most 0.3", "accuracy"
        gaps.append(abs((train[hides_most] - test[hides_most]) / clean))
    selected = OURS | {"method": distortion_groups.METHODS[method]}
    for quantity, values in (("cut_occlusion", accuracies), ("iocclusion", gaps)):
        row = distorted.row(report_dir, "values", quantity=quantity, **selected)
        assert float(row["mean"]) == pytest.approx(np.mean(values))
        assert float(row["std"]) == pytest.approx(np.std(values, ddof=1))
    values, dominant, _ = distorted.di_index(
        measured, method, "cut_occlusion_other", "other"
    )
    row = distorted.row(report_dir, "values", quantity="di_other", **selected)
    assert float(row["mean"]) == pytest.approx(values.mean())
    assert row["dominant"] == dominant


def test_affinity_is_of_basic_networks_and_diversity_of_mixed_ones(
    report_dir, measured
):
    for method in ("mixup", "fmix", "cutmix"):
        selected = OURS | {"method": distortion_groups.METHODS[method]}
        for quantity, network, measure in (
            ("affinity", "basic", "mixing@test"),
            ("diversity", method, "mixing_train@train"),
            ("mix_diversity", method, "mixing_train@train"),
        ):
            condition = f"{measure.partition('@')[0]}/{method}"
            values = [
                distorted.records(measured / f"{network}-{seed}", measure)[
                    condition, quantity
                ]
                for seed in range(SEEDS)
            ]
            row = distorted.row(report_dir, "values", quantity=quantity, **selected)
            assert float(row["mean"]) == pytest.approx(np.mean(values))


def test_networks_of_other_training_have_separate_rows(report_dir, measured):
    selected = dict(method="MixUp", quantity="accuracy")
    mixed = distorted.row(
        report_dir, "values", training="mixed with FashionMNIST", **selected
    )
    values = [
        100
        * distorted.records(measured / f"mixup-fashion_mnist-{i}", "accuracy@test")[
            "", "accuracy"
        ]
        for i in range(SEEDS)
    ]
    assert float(mixed["mean"]) == pytest.approx(np.mean(values))
    selected = dict(method="MixUp", quantity="di_anywhere", training="without truck")
    assert distorted.row(report_dir, "values", **selected)["dominant"] == "ship"
    cues = distorted.table(report_dir, "values", data="Tiny ImageNet", method="MixUp")
    cues = cues.set_index("quantity")["mean"].astype(float)
    assert cues["gst_shape"] == pytest.approx(12.05)
    assert cues["gst_texture"] == pytest.approx(28.05)
    groups = distorted.table(report_dir, "groups")
    assert (groups["n"].astype(int)).sum() == len(list(measured.iterdir()))


def test_digits_flip_where_the_photograph_wins(report_dir, measured):
    follow = {}
    for method in ("basic", "fmix"):
        for seed in range(3):
            path = measured / f"{method}-stacked-{seed}/decisions/stacked_cifar"
            frame = pd.read_parquet(path / "accuracy.parquet")
            rows = frame[(frame["texture"] == 3) & (frame["label"] != 3)]
            share = 100 * (rows["prediction"] == rows["label"]).mean()
            follow.setdefault(method, []).append(share)
    row = distorted.row(report_dir, "digits", digit="3 (cat)", method="FMix")
    change = np.mean(follow["fmix"]) - np.mean(follow["basic"])
    assert float(row["photo_mean"]) == pytest.approx(np.mean(follow["fmix"]))
    assert float(row["change"]) == pytest.approx(change)
    flips = distorted.table(report_dir, "digits", method="FMix")["flips"]
    assert len(flips) == 10 and set(flips) == {"yes"}
    photo_row = distorted.row(report_dir, "values", method="FMix", quantity="cifar")
    assert float(photo_row["mean"]) > 80


def test_one_seed_has_neither_deviation_nor_test(report_dir, study):
    row = distorted.row(report_dir, "values", data="FashionMNIST", quantity="di_grid")
    assert row["std"] == "" and row["low"] == "" and int(row["n"]) == 1
    caveats = json.loads((report_dir / "results.json").read_text())["caveats"]
    assert any(
        "Groups with one seed" in line and "FashionMNIST" in line for line in caveats
    )
    key = distortion_groups.GroupKey("preact_resnet18", "FashionMNIST", "basic")
    # FashionMNIST is shuffled in 2 x 2.
    assert len(study.value("di_grid", key).runs) == 1


def test_the_page_has_every_section_figure_and_table(report_dir):
    page = (report_dir / "index.html").read_text()
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == [section.id for section in distortion_page.SECTIONS]
    results = json.loads((report_dir / "results.json").read_text())
    assert results["headline"].startswith("DI index, grid shuffle, preact_resnet18 on ")
    assert "of 5 methods basic has the largest, 6.60, and CutMix" in results["headline"]
    assert "by chance" in page and "paper" not in results["tables"]
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    drawn = {path.stem for path in (report_dir / "figures").glob("*.svg")}
    assert drawn == {
        *("accuracy_black_cifar10", "iocclusion_black_cifar10"),
        *("curves_black_cifar10", "parts_black_cifar100"),
        *("wrong_grid_cifar10", "wrong_black_cifar10", "wrong_other_cifar10"),
        *("wrong_anywhere_cifar10", "wrong_grid_fashionmnist"),
    }
    tables = {path.stem for path in (report_dir / "tables").glob("*.csv")}
    assert tables == {path.stem for path in (report_dir / "tables").glob("*.tex")}
    seconds = distorted.row(
        report_dir, "seconds", measure="grid_shuffle@test", data="CIFAR-10"
    )
    count = len(distorted.METHODS) * SEEDS
    assert float(seconds["n"]) == count and float(seconds["each"]) == 2
    total = float(distorted.row(report_dir, "seconds", model="total")["hours"])
    seconds_table = distorted.table(report_dir, "seconds")
    assert total == pytest.approx(
        seconds_table["hours"][seconds_table["model"] != "total"].astype(float).sum()
    )
    assert float(seconds["hours"]) == pytest.approx(2 * count / 3600)


def test_curves_have_every_fraction(report_dir, measured):
    gaps = distorted.table(
        report_dir, "gaps", method="FMix", fill="black", masking="fourier"
    )
    gaps = gaps[gaps["data"] == "CIFAR-10"].astype({"hidden": float})
    assert len(gaps) == 10
    row = gaps[np.isclose(gaps["hidden"], 0.7)].iloc[0]
    values = [
        distorted.records(measured / f"fmix-{i}", "occlusion@test")[
            "occlusion/fourier 0.7", "accuracy"
        ]
        for i in range(SEEDS)
    ]
    assert float(row["test"]) == pytest.approx(np.mean(values))
    first = gaps[gaps["hidden"] == 0].iloc[0]
    assert float(first["iocclusion"]) == 1 and float(first["iocclusion_std"]) == 0


def test_training_costs_are_those_of_the_runs(measured, tmp_path):
    run = tmp_path / "runs/basic-cifar10"
    run.mkdir(parents=True)
    config = {"variant": "basic", "train": {"data": "cifar10"}, "seeds": [0, 1]}
    (run / "config.json").write_text(json.dumps(config))
    start = dict(device="cpu", devices=2, watts=12, source="a core", share=1, pue=1.5)
    total_cost = dict(device_hours=0.25, energy_kwh=0.0045, kg_co2e=None)
    (run / "costs.json").write_text(
        json.dumps({"starts": [start], "total": total_cost})
    )
    folder = tmp_path / "measured/one"
    shutil.copytree(measured / "basic-tiny-0", folder)
    config = json.loads((folder / "config.json").read_text())
    config["run"]["path"] = str(run)
    (folder / "config.json").write_text(json.dumps(config))
    for path in (folder / "measures").iterdir():
        description = json.loads(path.read_text())
        cost = dict(device_hours=0.5, energy_kwh=0.006, kg_co2e=None)
        description["cost"] = start | cost
        path.write_text(json.dumps(description))
    runs = f"--runs={tmp_path}/runs/*"
    out = distorted.report(distortion, folder, tmp_path / "out", runs)
    row = distorted.row(out, "training", run=str(run))
    total = distorted.row(out, "training", run="total")
    assert total["energy_kwh"] == row["energy_kwh"] and total["measured"] == 1
    assert row["device_hours"] == 0.25 and row["energy_kwh"] == 0.0045
    assert row["assumed"] == "2 × cpu, 12 W each (a core), 100 % of it in use, PUE 1.5"
    assert (row["seeds"], row["measured"]) == (2, 1)
    seconds = distorted.row(out, "seconds", data="Tiny ImageNet")
    assert seconds["energy_kwh"] == 0.006 and "PUE 1.5" in seconds["device"]


@cases.each(
    ("args", "words"),
    [
        (["--measured=nowhere/*"], "nowhere"),
        (["--runs=nowhere/*"], "--runs: must match"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(
    measured, tmp_path, capsys, args, words
):
    argv = [f"--measured={measured}/*-tiny-*", f"--out={tmp_path / 'out'}"]
    if args[0].startswith("--measured"):
        argv = argv[1:]
    assert distortion.main([*argv, *args]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error
    assert not (tmp_path / "out").exists()


def test_classes_without_decisions_count_in_the_index(tmp_path):
    """The index is proportional to the number of classes of the network."""
    rng, values = np.random.default_rng(0), {}
    numbers, by_condition = distorted.fake_interference(rng, "basic", ("4x4",))
    for k in (10, 20):
        names = [*map(str, range(k))]
        for seed in range(2):
            folder = tmp_path / f"{k}-{seed}"
            key = ("grid_shuffle", "grid_shuffle", "test")
            distorted.write(
                folder,
                {key: (numbers, by_condition, {})},
                method="basic",
                data="cifar10",
                seed=seed,
                classes=names,
            )
        group = distorted.read_group(f"{tmp_path}/{k}-*")
        place = ("grid_shuffle", "test")
        values[k] = distortion_groups.index(group, place, "4x4").runs
    np.testing.assert_allclose(values[20], 2 * values[10])
    path = tmp_path / "20-1/measures/grid_shuffle@test.json"
    description = json.loads(path.read_text())
    for classes in ([], names[:10]):
        path.write_text(json.dumps(description | {"classes": classes}))
        group = distorted.read_group(f"{tmp_path}/20-*")
        with pytest.raises(ValueError, match="@test.json: must have the classes, the"):
            distortion_groups.index(group, place, "4x4")


def test_duplicate_networks_are_left_out_with_a_note(measured, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(measured / "basic-tiny-0", tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config["run"] = {"digest": "1", "path": name}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for path in (tmp_path / "two/evals").iterdir():
        path.write_text(path.read_text().replace("basic-tiny_imagenet", "again"))
    study, notes = distortion_groups.read([f"{tmp_path}/*"])
    assert len(study.networks) == 1
    assert notes[0].startswith(
        "Networks with the same weights, of which the first counts: "
    )


def test_a_file_as_report_folder_is_refused(tmp_path, capsys):
    """The folder is checked before workdirs are read, and several workdirs are accepted."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        distortion.main(["--measured=nowhere", f"--out={tmp_path / 'file'}"])
    assert "--out: must be a folder" in capsys.readouterr().err
    args = ["--measured=nowhere/a", "nowhere/b", "--runs=c", "d", f"--out={tmp_path}"]
    assert distortion.main(args) == 2
    assert "nowhere/a" in capsys.readouterr().err


@cases.each("flag", ["--printed", "--printed=examples/published"])
def test_the_printed_flag_names_the_new_command(capsys, flag):
    """The error is one line, even if required flags are missing."""
    with pytest.raises(SystemExit) as exit_info:
        distortion.main([flag])
    error = capsys.readouterr().err
    assert exit_info.value.code == 2 and error.count("\n") == 1
    assert (
        "--printed: this flag has moved; use `jbias papers distortion` instead" in error
    )


def test_a_seed_measured_twice_is_refused(measured, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(measured / "fashion", tmp_path / name)
    for path in (tmp_path / "two/evals").iterdir():
        path.write_text(path.read_text().replace("basic-fashion_mnist", "again"))
    with pytest.raises(ValueError, match="name the workdirs of one"):
        distortion_groups.read([f"{tmp_path}/*"])


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
    measurements = {
        ("accuracy", "plain", "test"): ([distorted.accuracy(0.5)], None, {})
    }
    dropped = {"drop": "truck+ship"} if "without" in variant else {}
    distorted.write(
        tmp_path / "net", measurements, method=variant, data=data, seed=0, **dropped
    )
    group = distorted.read_group(tmp_path / "net")
    assert (group.key.method, group.key.training) == (method, training)


@cases.each(
    ("name", "method"),
    [("mixup", "MixUp"), ("random_masks", "RM"), ("flip", "basic")],
)
def test_the_mixing_input_is_the_method_without_a_variant(tmp_path, name, method):
    measurements = {
        ("accuracy", "plain", "test"): ([distorted.accuracy(0.5)], None, {})
    }
    distorted.write(tmp_path / "net", measurements, method="", data="shapes", seed=0)
    path = tmp_path / "net/config.json"
    config = json.loads(path.read_text())
    config["config"]["inputs"] = [{"name": "pad_crop"}, {"name": name}]
    path.write_text(json.dumps(config))
    group = distorted.read_group(tmp_path / "net")
    assert group.key.method == method


def test_different_numbers_of_seeds_have_a_note(measured, tmp_path):
    for method, size in dict(basic=3, mixup=2, fmix=1).items():
        for seed in range(size):
            name = f"{method}-{seed}"
            shutil.copytree(measured / name, tmp_path / name)
    study, _ = distortion_groups.read([f"{tmp_path}/*"])
    table = distortion_page.comparison(distortion_page.value_layout(study), study)
    lines = list(distortion_page.notes_on_indices(table.data))
    words = "(basic 3, MixUp 2, FMix 1). An index of fewer seeds is larger by chance"
    assert len(lines) == 4 and all(words in line for line in lines)
    assert lines[0].startswith("DI index, grid shuffle (preact_resnet18, CIFAR-10): ")
