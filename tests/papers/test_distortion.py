"""The report on the paper: measured and printed numbers, its claims, and missing parts."""

import csv
import itertools
import math
import pathlib
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias.papers import distortion
from jbias.papers import distortion_published as published
from jbias.report.pages.distortion import distortion_groups
from tests import cases
from tests.report import distorted

pytestmark = pytest.mark.slow

PUBLISHED = pathlib.Path(__file__).parents[2] / "examples/published"


PRINTED = f"--printed={PUBLISHED}"
measured = distorted.measured


@pytest.fixture(scope="module")
def report_folder(measured, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return distorted.report(distortion, f"{measured}/*", out, PRINTED)


@pytest.fixture(scope="module")
def printed():
    return published.read(str(PUBLISHED))


def test_tables_of_the_paper_agree_with_the_table_of_values(report_folder):
    """The paper's tables contain exactly the values of the table of all values."""

    def rows(name):
        path = report_folder / f"tables/{name}.csv"
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        frame = frame[frame["source"] != "paper"].drop(columns="training")
        return set(frame.itertuples(index=False, name=None))

    names = [path.stem for path in (report_folder / "tables").glob("table[1-7]_*.csv")]
    assert len(names) == 7
    for name in (*names, "mnist_cifar"):
        assert rows(name) and rows(name) <= rows("values")


def test_networks_without_a_class_are_in_table_6(report_folder):
    dropped = distorted.row(
        report_folder, "table6_without_class", source="preact_resnet18", method="MixUp"
    )
    assert dropped["dominant"] == "ship" and dropped["training"] == "without "


def test_printed_numbers_are_untouched(report_folder, printed):
    """Every number of the files is in the tables, and no other number is the paper's."""
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
        path = next((report_folder / "tables").glob(f"{name}_*.csv"), None)
        frame = pd.read_csv(path or report_folder / "tables/mnist_cifar.csv")
        theirs = frame["mean"][frame["source"] == "paper"]
        assert sorted(theirs) == sorted(numbers)
    basic = published.NumberKey("di_grid", "CIFAR-10", "basic")
    assert printed.numbers[basic] == dict(mean=2.9, std=1.1, n=5)
    empty = basic._replace(data="ImageNet", method="CutMix")
    assert empty not in printed.numbers and empty in printed.tables["Table 1"]
    single = printed.numbers[empty._replace(method="MixUp")]
    assert math.isnan(single["std"]) and single["n"] is None


def test_orderings_of_seeds_by_brute_force(report_folder, measured):
    """p of basic > MixUp equals the count over all 252 splits of ten networks."""
    pairs = []
    for method in ("basic", "mixup"):
        errors = distorted.di_index(measured, method, "grid_shuffle", "4x4")[2]
        dominant = errors.mean(axis=0).argmax()
        pairs.append(
            np.stack([errors[:, dominant] / errors.sum(axis=1), errors[:, dominant]], 1)
        )
    pooled = np.concatenate(pairs)

    def mean(rows):
        return rows[:, 0].mean() * rows[:, 1].mean()

    observed, count = mean(pairs[0]) - mean(pairs[1]), 0
    for first in itertools.combinations(range(10), 5):
        second = [i for i in range(10) if i not in first]
        count += mean(pooled[list(first)]) - mean(pooled[second]) >= observed - 1e-12
    words = "DI: basic > MixUp"
    claim = distorted.row(
        report_folder, "claims", data="CIFAR-10", claim=words, table="Table 1"
    )
    assert float(claim["here_p"]) == pytest.approx(count / 252)
    assert claim["here_ranks"] == ""  # Runs share a weight.
    for origin, size in (("text", 2), ("table", 3)):
        family = distorted.table(
            report_folder, "claims", data="CIFAR-10", table="Table 1", whose=origin
        )
        p = np.sort(family["here_p"].astype(float))
        holm = np.minimum(np.maximum.accumulate(p * np.arange(len(p), 0, -1)), 1)
        assert len(p) == size
        assert sorted(family["here_holm"].astype(float)) == pytest.approx(holm)
        for row in family.to_dict("records"):
            holds = float(row["here_holm"]) <= 0.025
            assert (row["here_verdict"] == "holds") == holds
    claims = distorted.table(report_folder, "claims")
    claims = claims[claims["here_p"] != ""]
    two_sided = 2 * claims[["here_p", "here_against"]].astype(float).min(axis=1)
    fdr = scipy.stats.false_discovery_control(np.minimum(two_sided, 1))
    assert claims["fdr"].astype(float).tolist() == pytest.approx(fdr)


def test_orderings_in_the_paper_are_welch_tests(report_folder, printed):
    """FMix on CIFAR-10: 95.03 plus a point with Fashion-MNIST, 94.36 with itself."""
    rows = distorted.table(report_folder, "claims", data="CIFAR-10", table="Table 7")
    (claim,) = (row for _, row in rows.iterrows() if row["claim"].startswith("FMix"))
    (first, a, n), (second, b, _) = (
        printed.numbers[
            published.NumberKey("accuracy", "CIFAR-10", "FMix", f"mixed with {x}")
        ].values()
        for x in ("FashionMNIST", "itself")
    )
    assert (first, second, b, n) == (95.03, 94.36, 0.28, 5)
    a, b = a**2 / 5, b**2 / 5
    df = (a + b) ** 2 / (a**2 / 4 + b**2 / 4)
    p = scipy.stats.t.sf((95.03 + 1 - 94.36) / math.sqrt(a + b), df)
    assert float(claim["paper_p"]) == pytest.approx(p, rel=1e-9)
    assert claim["paper_verdict"] == "holds"


def test_claims_read_off_a_table_or_of_dependent_numbers_are_not_tested(report_folder):
    claims = pd.concat(
        [
            distorted.table(report_folder, "claims"),
            distorted.table(report_folder, "claims_unmeasured"),
        ]
    )
    is_index = claims["claim"].str.startswith("DI: ")
    is_untested = is_index | (claims["whose"] == "table")
    assert set(claims["paper_p"][is_untested]) == {""}
    is_printed = claims["paper_order"] != ""
    assert set(claims["paper_verdict"][is_untested & is_printed]) == {"no test"}
    tested = claims[~is_untested & is_printed]
    assert set(tested["table"]) == {"Table 7", "MNIST-CIFAR"}
    assert (tested["paper_p"] != "").all()
    orders = claims.drop_duplicates(["table", "data", "claim"])["paper_order"]
    counts = orders.value_counts()
    assert (counts["as claimed"], counts["equal"], counts["opposite"]) == (57, 1, 9)
    fashion = distorted.row(
        report_folder,
        "claims_unmeasured",
        table="Table 3",
        data="FashionMNIST",
        claim="DI: basic > MixUp",
    )
    assert fashion["paper_order"] == "opposite"  # 0.44 against 2.59.
    assert fashion["here_verdict"] == fashion["here_order"] == ""


def test_a_printed_deviation_of_zero_is_taken_as_half_a_digit():
    cells = [
        published.NumberKey("cifar", "MNIST-CIFAR", name) for name in ("FMix", "basic")
    ]
    larger, smaller = cells
    claim = published.Claim("MNIST-CIFAR", "", larger, smaller, published.TEXT)
    means = (10.01, 10.0)
    numbers = {x: dict(mean=m, std=0.0, n=5) for x, m in zip(cells, means, strict=True)}
    p = scipy.stats.t.sf(0.01 / math.sqrt(2 * 0.005**2 / 5), 8)
    assert published.of_printed(claim, numbers)["p"] == pytest.approx(p)


def test_claims_of_a_table_are_in_its_order(printed):
    """All claims that were read off Table 4 hold in the printed numbers."""
    orders = {"cut_occlusion": [], "iocclusion": []}
    for claim in printed.claims():
        if claim.more.quantity in orders:
            side = published.of_printed(claim, printed.numbers)
            orders[claim.more.quantity].append(side["order"])
    assert list(orders.values()) == [["as claimed"] * 4] * 2


def test_claims_are_made_for_other_data_too(printed):
    """Claims on mixing with Fashion-MNIST and on stacked images are not repeated."""
    known = list(printed.claims())
    other = [x for x in printed.claims(["shapes"]) if x not in known]
    assert {x.more.data for x in other} == {"shapes"} and len(known) == 70
    assert {x.table for x in other} == {f"Table {i}" for i in range(1, 7)}
    first = [x.words for x in known if x.family[:1] == ("Table 1",)][:5]
    assert first == [x.words for x in other if x.table == "Table 1"]


def test_noninferiority_is_tested_with_a_margin(report_folder):
    rows = distorted.table(report_folder, "claims", table="Table 7")
    verdicts = dict(zip(rows["claim"], rows["here_verdict"], strict=True))
    assert verdicts == dict.fromkeys(
        [
            "MixUp: mixed with itself > mixed with FashionMNIST",
            "FMix: mixed with FashionMNIST ≥ mixed with itself less 1 point",
            "CutMix: mixed with FashionMNIST ≥ mixed with itself less 1 point",
        ],
        "holds",
    )


def test_iocclusion_is_tested_by_the_gaps_of_all_seeds(tmp_path, printed):
    """Seeds without a gap of their own count; without a mean gap there is no test."""
    large_gap, small_gap, no_gap = (0.95, 0.80), (0.95, 0.90), (0.9, 0.9)
    gaps = {
        "basic": [large_gap] * 3,
        "mixup": [large_gap, large_gap, small_gap, no_gap, large_gap],
    }
    for method, accuracies in (gaps | {"cutmix": [small_gap, (0.92, 0.9)]}).items():
        for seed, (train, test) in enumerate(accuracies):
            measurements = {
                ("occlusion", "occlusion", split): (
                    [
                        distorted.accuracy(clean),
                        distorted.accuracy(hidden, "grad_cam most 0.3"),
                    ],
                    None,
                    {"fill": "other"},
                )
                for split, clean, hidden in (
                    ("train", train, 0.4),
                    ("test", test, 0.37),
                )
            }
            folder = tmp_path / f"{method}-{seed}"
            distorted.write(
                folder, measurements, method=method, data="cifar10", seed=seed
            )
    study, _ = distortion_groups.read([f"{tmp_path}/*"])
    tests = {
        claim.words: published.of_measured(claim, study, "preact_resnet18")
        for claim in printed.claims(study.names("data"))
        if claim.more.quantity == "iocclusion" and claim.more.data == "CIFAR-10"
    }
    mixup = tests["iOcclusion: MixUp > basic"]
    assert mixup["n"] == "5 and 3" and mixup["least"] == 1 / 56
    assert math.isnan(mixup["ranks"])
    assert (mixup["more"], mixup["less"]) == pytest.approx((0.03 / 0.1, 0.2))
    untested = tests["iOcclusion: CutMix > MixUp"]
    assert untested["n"] == "0 and 5" and math.isnan(untested["p"])


def test_two_seeds_are_too_few_for_a_verdict(report_folder):
    claims = distorted.table(report_folder, "claims", table="Table 2")
    assert set(claims["here_verdict"]) == {"cannot be told"}
    assert set(
        distorted.table(report_folder, "claims_unmeasured", data="ImageNet")["paper_p"]
    ) == {""}
    assert set(claims["here_least"].astype(float)) == {1 / 6}


def test_groups_of_unequal_sizes(measured, printed, tmp_path):
    """Groups of 5, 4, 3 and 2 seeds have the exact smallest possible p."""
    sizes = dict(basic=5, mixup=4, fmix=3, cutmix=2)
    for method, size in sizes.items():
        for seed in range(size):
            name = f"{method}-{seed}"
            shutil.copytree(measured / name, tmp_path / name)
    study, _ = distortion_groups.read([f"{tmp_path}/*"])
    frame = published.frame(study, printed, alpha=0.03)
    family = frame[(frame["table"] == "Table 3") & (frame["data"] == "CIFAR-10")]
    assert list(family["here_n"]) == ["5 and 4", "5 and 3", "5 and 2"]
    assert list(family["here_least"]) == pytest.approx([1 / 126, 1 / 56, 1 / 21])
    assert (family["here_p"] >= family["here_least"]).all()
    # MixUp's claim is of the table, alone. Holm of the others: 2 / 56; then 1 / 21.
    assert list(family["here_holm_least"]) == pytest.approx([1 / 126, 2 / 56, 1 / 21])
    assert (family["here_holm"] >= family["here_holm_least"]).all()
    first, *_ = published.claim_tables(frame, 0.03)
    shown = [row for row in first.rows if row[0] == "Table 3"]
    assert shown[0][3:6] == ("table", "holds", "no test")
    assert [row[4] for row in shown[1:]] == [
        "cannot be told (p ≥ 0.036)",
        "cannot be told (p ≥ 0.048)",
    ]
    (line,) = [x for x in published.claim_caveats(frame, 0.03) if "whatever" in x]
    blind = (frame["here_holm_least"] > 0.015).sum()
    assert line.startswith(f"{blind} orderings") and "up to 3 claims" in line


def test_missing_measurements_have_commands(report_folder):
    missing = distorted.table(report_folder, "missing").set_index("missing")
    fmix = missing.loc["networks: FMix on CIFAR-100"]
    assert fmix["of"] == "Table 1 and Table 3"
    assert "distortion.py:method=fmix,data=cifar100,root=DIR " in fmix["command"]
    fourth = missing.loc["DI index, CutOcclusion black of basic on FashionMNIST"]
    assert fourth["command"].startswith("jbias evaluate --runs=")
    assert not any("on CIFAR-10" == name[-11:] for name in missing.index)
    key = distortion_groups.GroupKey(
        "vgg16", "CIFAR-10", "MixUp", "mixed with FashionMNIST"
    )
    assert published.train_command(key) == (
        "jbias train --config=configs/distortion.py:method=mixup,data=cifar10,"
        "root=DIR,model=vgg16,partner=fashion_mnist,partner_root=DIR "
        "--workdir=runs/distortion/vgg16-mixup-with-fashion_mnist-cifar10"
    )


def test_every_part_is_on_the_page(report_folder):
    page = (report_folder / "index.html").read_text()
    assert re.findall(r'<section id="(\w+)">', page) == [
        *("claims", "tables", "values", "figures", "wrong", "curves", "detail"),
        *("caveats", "costs", "made", "missing"),
    ]
    tables = {path.stem for path in (report_folder / "tables").glob("*.csv")}
    assert {"claims", "claims_unmeasured", "missing"} < tables
    assert tables == {path.stem for path in (report_folder / "tables").glob("*.tex")}


def test_empty_tables_name_a_first_command(tmp_path):
    """Only the measures of Table 4 exist; the other tables name a command."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        measurements = {
            ("occlusion", "occlusion", split): (
                distorted.fake_occlusion(rng, "basic", split),
                None,
                {"fill": "other"},
            )
            for split in ("test", "train")
        }
        folder = tmp_path / f"in/{seed}"
        distorted.write(folder, measurements, method="basic", data="cifar10", seed=seed)
    out = distorted.report(distortion, f"{tmp_path}/in/*", tmp_path / "out", PRINTED)
    text = (out / "index.html").read_text()
    empty = re.findall(r"<li>(\S+ ?\d?): no measurements\. For ([^<]*)</li>", text)
    assert [name for name, _ in empty] == [
        *(f"Table {i}" for i in (1, 2, 3, 5, 6, 7)),
        "MNIST-CIFAR",
    ]
    assert all("jbias " in words for _, words in empty)
    assert "MixUp on CIFAR-10, without CLASS: " in dict(empty)["Table 6"]
    assert dict(empty)["Table 1"].startswith(
        "DI index"
    )  # Measuring comes before training.
    assert not (out / "tables/claims.csv").exists()
    missing = set(distorted.table(out, "missing")["missing"])
    assert "networks: MixUp on CIFAR-10" in missing
    assert not any("iOcclusion of basic" in name for name in missing)


@cases.each(
    ("args", "words"),
    [
        (
            ["--printed=nowhere"],
            "--printed: nowhere/distortion_table1.csv does not exist",
        ),
        (["--measured=nowhere/*"], "nowhere"),
    ],
)
def test_wrong_arguments_are_one_line(measured, tmp_path, capsys, args, words):
    arguments = [f"--measured={measured}/*-tiny-*", f"--printed={PUBLISHED}"]
    arguments = [
        x for x in arguments if x.partition("=")[0] != args[0].partition("=")[0]
    ]
    assert distortion.main([*arguments, *args, f"--out={tmp_path / 'out'}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and words in error
    assert not (tmp_path / "out").exists()


@cases.each(
    ("table", "old", "new"),
    [
        ("table1", "2.9,1.1", "many,1.1"),
        ("table2", "shape_mean", "shape"),
        ("table7", "target_dataset", "target"),
    ],
)
def test_files_that_are_not_as_published_are_refused(tmp_path, table, old, new):
    for path in PUBLISHED.glob("distortion_*.csv"):
        shutil.copy(path, tmp_path)
    path = tmp_path / f"distortion_{table}.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=rf"{path.name}:2: must be as published"):
        published.read(str(tmp_path))


def test_claims_are_tested_per_model(measured, printed, tmp_path):
    """Each of two models has its own rows; a claim without measurements has one row."""
    for method in ("basic", "mixup"):
        for seed in range(3):
            name = f"{method}-{seed}"
            shutil.copytree(measured / name, tmp_path / name)
            other = tmp_path / f"vgg-{name}"
            shutil.copytree(measured / name, other)
            for path in [*(other / "evals").iterdir(), other / "config.json"]:
                text = path.read_text().replace("preact_resnet18", "vgg16")
                path.write_text(text.replace(f"{method}-cifar10", f"vgg-{method}"))
    study, _ = distortion_groups.read([f"{tmp_path}/*"])
    frame = published.frame(study, printed, alpha=0.05)
    key = ["table", "data", "claim"]
    assert not frame.duplicated(["model", *key]).any()
    measured_claims = frame[frame["here_verdict"] != ""]
    assert set(measured_claims["model"]) == {"preact_resnet18", "vgg16"}
    first, second = (
        rows.set_index(key) for _, rows in measured_claims.groupby("model")
    )
    assert first["here_p"].equals(second["here_p"])
    unmeasured_claims = frame[frame["here_verdict"] == ""]
    assert not unmeasured_claims.duplicated(key).any() and set(
        unmeasured_claims["model"]
    ) == {""}
