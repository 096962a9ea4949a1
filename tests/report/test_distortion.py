"""The report of the data-distortion study: every table computed again, and what it claims."""

import csv
import itertools
import json
import math
import pathlib
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias.report import (
    distortion,
    distortion_claims,
    distortion_missing,
    distortion_printed,
    distortion_read,
    distortion_tables,
    distortion_values,
    distortion_verdicts,
    plots,
)
from tests import cases
from tests.report import distorted

pytestmark = pytest.mark.slow

PUBLISHED = pathlib.Path(__file__).parents[2] / "examples/published"
SEEDS = 5


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return distorted.write_study(tmp_path_factory.mktemp("measured"), seeds=SEEDS)


@pytest.fixture(scope="module")
def made(measured, tmp_path_factory):
    """The report, but for fonts in PDF, the slowest part."""
    out = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "to_pdf", lambda fig: b"%PDF left out")
        args = [f"--measured={measured}/*", f"--printed={PUBLISHED}", f"--out={out}"]
        assert distortion.main(args) == 0
    return out


@pytest.fixture(scope="module")
def study(measured):
    groups, _ = distortion_read.read([f"{measured}/*"])
    return distortion_values.Study({group.key: group for group in groups})


def table(made, name, **where):
    frame = pd.read_csv(made / f"tables/{name}.csv", keep_default_na=False)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def one(made, name, **where):
    frame = table(made, name, **where)
    assert len(frame) == 1, (name, where, len(frame))
    return frame.iloc[0]


def kept(folder, measure, condition):
    """Wrong answers by class of the clean and the distorted images, read off the file."""
    frame = pd.read_parquet(folder / f"decisions/test/{measure}.parquet")
    counts = []
    for name in ("", condition):
        part = frame[(frame["condition"] == name)]
        wrong = part["prediction"][part["prediction"] != part["label"]]
        counts.append([int((wrong == c).sum()) for c in range(10)])
    return counts


def index(measured, method, measure, condition):
    """The DI index of each seed by the published formula, and its class."""
    grown = []
    for seed in range(SEEDS):
        clean, after = kept(measured / f"{method}-{seed}", measure, condition)
        q0, q1 = np.array(clean) / sum(clean), np.array(after) / sum(after)
        grown.append(np.maximum(q1 - q0, 0) * 10 / 100 * 100)
    values, best = of_grown(np.array(grown))
    return values, distorted.CLASSES[best], np.array(grown)


def of_grown(grown):
    best = int(grown.mean(axis=0).argmax())
    weight = grown[:, best].mean()
    return np.array([row[best] / row.sum() * weight for row in grown]), best


@pytest.mark.slow
@cases.each("method", ["basic", "mixup", "fmix", "cutmix"], quick=("basic",))
@cases.each(
    ("name", "measure", "condition"),
    [
        ("table1_grid_shuffle", "grid_shuffle", "4x4"),
        ("table3_cut_occlusion", "cut_occlusion", "black"),
    ],
)
def test_indices_are_those_of_the_decisions(
    made, measured, method, name, measure, condition
):
    values, dominant, grown = index(measured, method, measure, condition)
    title = distortion_read.METHODS[method]
    told = one(made, name, data="CIFAR-10", method=title, source="preact_resnet18")
    assert float(told["mean"]) == pytest.approx(values.mean())
    assert float(told["std"]) == pytest.approx(values.std(ddof=1))
    assert told["dominant"] == dominant and int(told["n"]) == SEEDS
    random, means = np.random.default_rng(5), []
    for _ in range(2_000):
        means.append(of_grown(grown[random.integers(SEEDS, size=SEEDS)])[0].mean())
    ends = np.quantile(means, (0.025, 0.975))
    # Two bootstraps of 2000 draws: quantiles of five seeds' means jump by parts of a span.
    near = 0.1 * (ends[1] - ends[0]) + 1e-9
    assert float(told["low"]) == pytest.approx(ends[0], abs=near)
    assert float(told["high"]) == pytest.approx(ends[1], abs=near)
    seeds = [float(value) for value in told["values"].split()]
    assert seeds == pytest.approx(values)
    every = table(made, "indices", method=title, data="CIFAR-10", condition=condition)
    every = every[(every["training"] == "") & (every["measure"] == f"{measure}@test")]
    best = distorted.CLASSES.index(dominant)
    worst = np.mean([row[best] / row.sum() * grown[:, best].max() for row in grown])
    assert float(every["share_worst"].item()) == pytest.approx(worst)
    counts = []
    for seed in range(SEEDS):
        clean, after = kept(measured / f"{method}-{seed}", measure, condition)
        gained = np.maximum(np.array(after) - clean, 0) / distorted.N * 100
        counts.append(gained)
    best = int(np.mean(counts, axis=0).argmax())
    count = np.mean([row[best] ** 2 / row.sum() for row in counts])
    assert float(every["count_mean"].item()) == pytest.approx(count)


def records(folder, name):
    lines = (folder / f"evals/{name}.jsonl").read_text().splitlines()
    return {(r["condition"], r["metric"]): r["value"] for r in map(json.loads, lines)}


@pytest.mark.slow
@cases.each("method", distorted.METHODS)
def test_occlusion_at_thirty_percent(made, measured, method):
    cut, gaps = [], []
    for seed in range(SEEDS):
        test, train = (
            records(measured / f"{method}-{seed}", f"occlusion_other@{on}")
            for on in ("test", "train")
        )
        name = "occlusion_other"
        cut.append(100 * test[f"{name}/rectangle 0.3", "accuracy"])
        clean = train[name, "accuracy"] - test[name, "accuracy"]
        most = f"{name}/grad_cam most 0.3", "accuracy"
        gaps.append(abs((train[most] - test[most]) / clean))
    of = dict(data="CIFAR-10", source="preact_resnet18")
    of["method"] = distortion_read.METHODS[method]
    for quantity, values in (("cut_occlusion", cut), ("iocclusion", gaps)):
        told = one(made, "table4_occlusion", quantity=quantity, **of)
        assert float(told["mean"]) == pytest.approx(np.mean(values))
        assert float(told["std"]) == pytest.approx(np.std(values, ddof=1))
    values, dominant, _ = index(measured, method, "cut_occlusion_other", "other")
    told = one(made, "table4_occlusion", quantity="di_other", **of)
    assert float(told["mean"]) == pytest.approx(values.mean())
    assert told["dominant"] == dominant


def test_affinity_is_of_basic_networks_and_diversity_of_mixed_ones(made, measured):
    for method in ("mixup", "fmix", "cutmix"):
        of = dict(method=distortion_read.METHODS[method], source="preact_resnet18")
        for quantity, whose, on in (
            ("affinity", "basic", "mixing@test"),
            ("diversity", method, "mixing_train@train"),
            ("mix_diversity", method, "mixing_train@train"),
        ):
            condition = f"{on.partition('@')[0]}/{method}"
            values = [
                records(measured / f"{whose}-{seed}", on)[condition, quantity]
                for seed in range(SEEDS)
            ]
            told = one(made, "table5_affinity", quantity=quantity, **of)
            assert float(told["mean"]) == pytest.approx(np.mean(values))


def test_networks_of_other_training_have_rows_of_their_own(made, measured):
    mixed = one(
        made,
        "table7_inter_dataset",
        **dict(source="preact_resnet18", method="MixUp"),
        training="mixed with FashionMNIST",
    )
    values = [
        100
        * records(measured / f"mixup-fashion_mnist-{i}", "accuracy@test")[
            "", "accuracy"
        ]
        for i in range(SEEDS)
    ]
    assert float(mixed["mean"]) == pytest.approx(np.mean(values))
    dropped = one(
        made, "table6_without_class", source="preact_resnet18", method="MixUp"
    )
    assert dropped["dominant"] == "ship" and dropped["training"] == "without "
    cues = table(made, "table2_style_transfer", data="Tiny ImageNet", method="MixUp")
    cues = cues[cues["source"] != "paper"].set_index("quantity")["mean"].astype(float)
    assert cues["gst_shape"] == pytest.approx(12.05)
    assert cues["gst_texture"] == pytest.approx(28.05)
    groups = table(made, "groups")
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
    told = one(made, "digits", digit="3 (cat)", method="FMix")
    change = np.mean(follow["fmix"]) - np.mean(follow["basic"])
    assert float(told["photo_mean"]) == pytest.approx(np.mean(follow["fmix"]))
    assert float(told["change"]) == pytest.approx(change)
    flips = table(made, "digits", method="FMix")["flips"]
    assert len(flips) == 10 and set(flips) == {"yes"}
    whole = one(
        made, "mnist_cifar", source="preact_resnet18", method="FMix", quantity="cifar"
    )
    assert float(whole["mean"]) > 80


def test_printed_numbers_are_untouched(made):
    """Every number of the files comes through, and nothing else is the paper's."""
    sizes = dict(table1=20, table2=8, table3=20, table4=15, table5=6, table6=4)
    for name, size in (sizes | dict(table7=18, simplicity=4)).items():
        with (PUBLISHED / f"distortion_{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == size
        numbers = [
            float(value)
            for row in rows
            for key, value in row.items()
            if key.endswith("mean") or key == "mean"
            if value
        ]
        path = next((made / "tables").glob(f"{name}_*.csv"), None)
        frame = pd.read_csv(path or made / "tables/mnist_cifar.csv")
        theirs = frame["mean"][frame["source"] == "paper"]
        assert sorted(theirs) == sorted(numbers)
    printed = distortion_printed.read(str(PUBLISHED))
    basic = distortion_printed.Cell("di_grid", "CIFAR-10", "basic")
    assert printed[basic] == (2.9, 1.1)
    empty = basic._replace(data="ImageNet", method="CutMix")
    assert empty not in printed and math.isnan(
        printed[empty._replace(method="MixUp")].std
    )


def test_orderings_of_seeds_by_brute_force(made, measured):
    """p of basic > MixUp: all 252 ways to share out ten networks' parts and growths."""
    pairs = []
    for method in ("basic", "mixup"):
        grown = index(measured, method, "grid_shuffle", "4x4")[2]
        best = grown.mean(axis=0).argmax()
        pairs.append(np.stack([grown[:, best] / grown.sum(axis=1), grown[:, best]], 1))
    pooled = np.concatenate(pairs)

    def mean(rows):
        return rows[:, 0].mean() * rows[:, 1].mean()

    seen, hits = mean(pairs[0]) - mean(pairs[1]), 0
    for chosen in itertools.combinations(range(10), 5):
        rest = [i for i in range(10) if i not in chosen]
        hits += mean(pooled[list(chosen)]) - mean(pooled[rest]) >= seen - 1e-12
    words = "DI: basic > MixUp"
    told = one(made, "claims", data="CIFAR-10", claim=words, table="Table 1")
    assert float(told["here_p"]) == pytest.approx(hits / 252)
    assert told["here_ranks"] == ""  # Runs share a weight.
    for whose, size in (("text", 2), ("table", 3)):
        of = dict(data="CIFAR-10", table="Table 1", whose=whose)
        family = table(made, "claims", **of)
        p = np.sort(family["here_p"].astype(float))
        holm = np.minimum(np.maximum.accumulate(p * np.arange(len(p), 0, -1)), 1)
        assert len(p) == size
        assert sorted(family["here_holm"].astype(float)) == pytest.approx(holm)
        for row in family.to_dict("records"):
            holds = float(row["here_holm"]) <= 0.025
            assert (row["here_verdict"] == "holds") == holds
    every = table(made, "claims")
    every = every[every["here_p"] != ""]
    both = 2 * every[["here_p", "here_against"]].astype(float).min(axis=1)
    fdr = scipy.stats.false_discovery_control(np.minimum(both, 1))
    assert every["fdr"].astype(float).tolist() == pytest.approx(fdr)


def test_orderings_in_the_paper_are_welch_tests(made):
    """FMix on CIFAR-10: 95.03 and a point with Fashion-MNIST, 94.36 with itself."""
    rows = table(made, "claims", data="CIFAR-10", table="Table 7")
    (told,) = (row for _, row in rows.iterrows() if row["claim"].startswith("FMix"))
    printed = distortion_printed.read(str(PUBLISHED))
    first, second = (
        printed[
            distortion_printed.Cell("accuracy", "CIFAR-10", "FMix", f"mixed with {x}")
        ]
        for x in ("FashionMNIST", "itself")
    )
    assert (first.mean, second.mean, second.std) == (95.03, 94.36, 0.28)
    a, b = first.std**2 / 5, second.std**2 / 5
    df = (a + b) ** 2 / (a**2 / 4 + b**2 / 4)
    p = scipy.stats.t.sf((95.03 + 1 - 94.36) / math.sqrt(a + b), df)
    assert float(told["paper_p"]) == pytest.approx(p, rel=1e-9)
    assert told["paper_verdict"] == "holds"


def test_no_test_of_numbers_that_made_the_claim_or_share_a_weight(made):
    every = pd.concat([table(made, "claims"), table(made, "claims_unmeasured")])
    index = every["claim"].str.startswith("DI: ")
    without = index | (every["whose"] == "table")
    assert set(every["paper_p"][without]) == {""}
    theirs = every["paper_order"] != ""
    assert set(every["paper_verdict"][without & theirs]) == {"no test"}
    tested = every[~without & theirs]
    assert set(tested["table"]) == {"Table 7", "MNIST-CIFAR"}
    assert (tested["paper_p"] != "").all()
    orders = every.drop_duplicates(["table", "data", "claim"])["paper_order"]
    counts = orders.value_counts()
    assert (counts["as claimed"], counts["equal"], counts["opposite"]) == (57, 1, 9)
    of = dict(data="FashionMNIST", claim="DI: basic > MixUp")
    fashion = one(made, "claims_unmeasured", table="Table 3", **of)
    assert fashion["paper_order"] == "opposite"  # 0.44 against 2.59.
    assert fashion["here_verdict"] == fashion["here_order"] == ""


def test_a_printed_deviation_of_zero_is_taken_as_half_a_digit():
    cells = [
        distortion_printed.Cell("cifar", "MNIST-CIFAR", name)
        for name in ("FMix", "basic")
    ]
    values = [distortion_printed.Printed(mean, 0.0) for mean in (10.01, 10.0)]
    (verdict,) = distortion_claims.of_printed(
        dict(zip(cells, values, strict=True))
    ).values()
    p = scipy.stats.t.sf(0.01 / math.sqrt(2 * 0.005**2 / 5), 8)
    assert verdict.p == pytest.approx(p)


def test_claims_of_a_table_are_in_its_order():
    """In the paper's numbers, each claim read off Table 4 is as claimed."""
    found = distortion_claims.of_printed(distortion_printed.read(str(PUBLISHED)))
    for quantity in ("cut_occlusion", "iocclusion"):
        orders = [
            verdict.order
            for claim, verdict in found.items()
            if claim.more.quantity == quantity
        ]
        assert orders == ["as claimed"] * 4


@pytest.mark.slow
def test_no_harm_is_told_by_a_margin(study):
    found = distortion_claims.of_measured(study, "preact_resnet18")
    verdicts = {
        claim.words: verdict.words(0.05)
        for claim, verdict in found.items()
        if claim.table == "Table 7"
    }
    hurt = "MixUp: mixed with itself > mixed with FashionMNIST"
    assert verdicts.pop(hurt) == "holds"
    assert len(verdicts) == 2 and set(verdicts.values()) == {"holds"}


def test_one_seed_has_neither_deviation_nor_test(made, study):
    told = one(
        made, "table1_grid_shuffle", data="FashionMNIST", source="preact_resnet18"
    )
    assert told["std"] == "" and told["low"] == "" and told["n"] == "1"
    caveats = json.loads((made / "results.json").read_text())["caveats"]
    assert any("One seed alone" in line and "FashionMNIST" in line for line in caveats)
    key = distortion_read.Key("preact_resnet18", "FashionMNIST", "basic")
    assert len(study.value("di_grid", key).runs) == 1  # At 2 x 2, its grid.


def test_two_seeds_cannot_tell(made):
    few = table(made, "claims", table="Table 2")
    assert set(few["here_verdict"]) == {"cannot be told"}
    assert set(table(made, "claims_unmeasured", data="ImageNet")["paper_p"]) == {""}
    assert set(few["here_least"].astype(float)) == {1 / 6}


def test_groups_of_other_sizes(measured, tmp_path):
    """5, 4, 3 and 2 seeds: each pair has its ways, and says what it can never pass."""
    sizes = dict(basic=5, mixup=4, fmix=3, cutmix=2)
    for method, size in sizes.items():
        for seed in range(size):
            name = f"{method}-{seed}"
            shutil.copytree(measured / name, tmp_path / name)
    groups, _ = distortion_read.read([f"{tmp_path}/*"])
    study = distortion_values.Study({group.key: group for group in groups})
    printed = distortion_printed.read(str(PUBLISHED))
    frame = distortion_claims.frame(study, printed, alpha=0.03)
    family = frame[(frame["table"] == "Table 3") & (frame["data"] == "CIFAR-10")]
    assert list(family["here_n"]) == ["5 and 4", "5 and 3", "5 and 2"]
    assert list(family["here_least"]) == pytest.approx([1 / 126, 1 / 56, 1 / 21])
    assert (family["here_p"] >= family["here_least"]).all()
    # MixUp's claim is of the table, alone. Holm of the others: 2 / 56; then 1 / 21.
    assert list(family["here_holm_least"]) == pytest.approx([1 / 126, 2 / 56, 1 / 21])
    assert (family["here_holm"] >= family["here_holm_least"]).all()
    first, *_ = distortion_verdicts.of(frame, 0.03)
    shown = [row for row in first.rows if row[0] == "Table 3"]
    assert shown[0][3:6] == ("table", "holds", "no test")
    assert [row[4] for row in shown[1:]] == [
        "cannot be told (p ≥ 0.036)",
        "cannot be told (p ≥ 0.048)",
    ]
    (line,) = [x for x in distortion_verdicts.caveats(frame, 0.03) if "whatever" in x]
    blind = (frame["here_holm_least"] > 0.015).sum()
    assert line.startswith(f"Of {blind} orderings") and "up to 3 claims" in line
    lines = list(distortion_tables.caveats(study))
    words = (
        "seeds are basic 5, MixUp 4, FMix 3, CutMix 2. The DI index of fewer is larger"
    )
    assert sum(words in line for line in lines) == 2  # Tables 1 and 3.


def test_what_is_missing_has_its_command(made):
    missing = table(made, "missing").set_index("missing")
    fmix = missing.loc["networks: FMix on CIFAR-100"]
    assert fmix["of"] == "Table 1 and Table 3"
    assert "distortion.py:method=fmix,data=cifar100,root=DIR " in fmix["command"]
    fourth = missing.loc["DI index, CutOcclusion black of basic on FashionMNIST"]
    assert fourth["command"].startswith("python -m jbias.evaluate --runs=")
    assert not any("on CIFAR-10" == name[-11:] for name in missing.index)
    key = distortion_read.Key("vgg16", "CIFAR-10", "MixUp", "mixed with FashionMNIST")
    assert distortion_missing.train(key) == (
        "python -m jbias.main --config=configs/distortion.py:method=mixup,data=cifar10,"
        "root=DIR,model=vgg16,partner=fashion_mnist,partner_root=DIR "
        "--workdir=runs/distortion/vgg16-mixup-with-fashion_mnist-cifar10"
    )


def test_every_part_is_on_the_page(made):
    page = (made / "index.html").read_text()
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == [
        *("claims", "tables", "figures", "wrong", "curves", "detail"),
        *("caveats", "costs", "made", "missing"),
    ]
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
    drawn = {path.stem for path in (made / "figures").glob("*.svg")}
    assert drawn == {
        *("accuracy_black_cifar10", "iocclusion_black_cifar10"),
        *("curves_black_cifar10", "parts_black_cifar100"),
        *("wrong_grid_cifar10", "wrong_black_cifar10", "wrong_other_cifar10"),
        *("wrong_anywhere_cifar10", "wrong_grid_fashionmnist"),
    }
    for kind in ("png", "pdf"):
        assert len(list((made / "figures").glob(f"*.{kind}"))) == len(drawn)
    tables = {path.stem for path in (made / "tables").glob("*.csv")}
    assert tables == {path.stem for path in (made / "tables").glob("*.tex")}
    seconds = one(made, "seconds", measure="grid_shuffle@test", data="CIFAR-10")
    count = len(distorted.METHODS) * SEEDS
    assert float(seconds["n"]) == count and float(seconds["each"]) == 2
    total = float(one(made, "seconds", model="total")["hours"])
    each = table(made, "seconds")
    assert total == pytest.approx(
        each["hours"][each["model"] != "total"].astype(float).sum()
    )
    assert float(seconds["hours"]) == pytest.approx(2 * count / 3600)


def test_curves_hold_every_fraction(made, measured):
    gaps = table(made, "gaps", method="FMix", fill="black", way="fourier")
    gaps = gaps[gaps["data"] == "CIFAR-10"].astype({"hidden": float})
    assert len(gaps) == 10
    at = gaps[np.isclose(gaps["hidden"], 0.7)].iloc[0]
    values = [
        records(measured / f"fmix-{i}", "occlusion@test")[
            "occlusion/fourier 0.7", "accuracy"
        ]
        for i in range(SEEDS)
    ]
    assert float(at["test"]) == pytest.approx(np.mean(values))
    first = gaps[gaps["hidden"] == 0].iloc[0]
    assert float(first["iocclusion"]) == 1 and float(first["iocclusion_std"]) == 0


def test_what_training_cost_is_what_runs_say(measured, tmp_path, monkeypatch):
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
    monkeypatch.setattr(plots, "to_pdf", lambda fig: b"%PDF left out")
    out = tmp_path / "out"
    args = [f"--measured={folder}", f"--runs={tmp_path}/runs/*", f"--out={out}"]
    assert distortion.main([*args, "--printed="]) == 0
    told, total = (one(out, "training", run=name) for name in (str(run), "total"))
    assert total["energy_kwh"] == told["energy_kwh"] and total["measured"] == 1
    assert told["device_hours"] == 0.25 and told["energy_kwh"] == 0.0045
    assert told["assumed"] == "2 × cpu, 12 W each (a core), 100 % of it in use, PUE 1.5"
    assert (told["seeds"], told["measured"]) == (2, 1)
    seconds = one(out, "seconds", data="Tiny ImageNet")
    assert seconds["energy_kwh"] == 0.006 and "PUE 1.5" in seconds["device"]
    assert not (out / "tables/claims.csv").exists()


@cases.each(
    ("args", "words"),
    [
        (["--measured=nowhere/*"], "nowhere"),
        (["--printed=nowhere"], "--printed: nowhere"),
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
        (group,), _ = distortion_read.read([f"{tmp_path}/{k}-*"])
        place = ("grid_shuffle", "test")
        values[k] = distortion_values.index(group, place, "4x4").runs
    np.testing.assert_allclose(values[20], 2 * values[10])
    path = tmp_path / "20-1/measures/grid_shuffle@test.json"
    told = json.loads(path.read_text())
    for lost in ([], names[:10]):
        path.write_text(json.dumps(told | {"classes": lost}))
        (group,), _ = distortion_read.read([f"{tmp_path}/20-*"])
        with pytest.raises(ValueError, match="@test.json: must have the classes, the"):
            distortion_values.index(group, place, "4x4")


def test_what_is_left_out_is_told(measured, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(measured / "basic-tiny-0", tmp_path / name)
        config = json.loads((tmp_path / name / "config.json").read_text())
        config["run"] = {"digest": "1", "path": name}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for path in (tmp_path / "two/evals").iterdir():
        path.write_text(path.read_text().replace("basic-tiny_imagenet", "again"))
    (group,), notes = distortion_read.read([f"{tmp_path}/*"])
    assert len(group.networks) == 1
    assert notes[0].startswith("The same weights, counted once, as the first: ")


def test_a_file_is_no_folder_of_a_report(tmp_path, capsys):
    """Before anything is read; and a glob that a shell spread is several workdirs."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        distortion.main(["--measured=nowhere", f"--out={tmp_path / 'file'}"])
    assert "--out: must be a folder" in capsys.readouterr().err
    args = ["--measured=nowhere/a", "nowhere/b", "--runs=c", "d", f"--out={tmp_path}"]
    assert distortion.main([*args, "--printed="]) == 2
    assert "nowhere/a" in capsys.readouterr().err


def test_a_seed_measured_twice_is_refused(measured, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(measured / "fashion", tmp_path / name)
    for path in (tmp_path / "two/evals").iterdir():
        path.write_text(path.read_text().replace("basic-fashion_mnist", "again"))
    with pytest.raises(ValueError, match="name the workdirs of one"):
        distortion_read.read([f"{tmp_path}/*"])


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
    ((group,), _) = distortion_read.read([str(tmp_path / "net")])
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
    ((group,), _) = distortion_read.read([str(tmp_path / "net")])
    assert group.key.method == method


def test_models_have_claims_of_their_own(measured, tmp_path):
    """Two models: each has its rows, and what nobody has is told once."""
    for method in ("basic", "mixup"):
        for seed in range(3):
            name = f"{method}-{seed}"
            shutil.copytree(measured / name, tmp_path / name)
            other = tmp_path / f"vgg-{name}"
            shutil.copytree(measured / name, other)
            for path in [*(other / "evals").iterdir(), other / "config.json"]:
                text = path.read_text().replace("preact_resnet18", "vgg16")
                path.write_text(text.replace(f"{method}-cifar10", f"vgg-{method}"))
    groups, _ = distortion_read.read([f"{tmp_path}/*"])
    study = distortion_values.Study({group.key: group for group in groups})
    printed = distortion_printed.read(str(PUBLISHED))
    frame = distortion_claims.frame(study, printed, alpha=0.05)
    key = ["table", "data", "claim"]
    assert not frame.duplicated(["model", *key]).any()
    here = frame[frame["here_verdict"] != ""]
    assert set(here["model"]) == {"preact_resnet18", "vgg16"}
    first, second = (part.set_index(key) for _, part in here.groupby("model"))
    assert first["here_p"].equals(second["here_p"])
    lost = frame[frame["here_verdict"] == ""]
    assert not lost.duplicated(key).any() and set(lost["model"]) == {""}
