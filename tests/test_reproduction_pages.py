"""The pages on four papers have the numbers of the stored files."""

import pathlib
import re
from typing import NamedTuple

import pandas as pd
import pytest

from jbias import config as jc
from jbias import run_spec
from jbias.training import setup
from studies import biasbed, gpu_hours, imagenet_models
from tests import cases

ROOT = pathlib.Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "studies" / "results"
PUBLISHED = ROOT / "examples" / "published"
PAGES = ("biasbed", "biases", "distortion", "shifts")
PLACES = (ROOT / "examples", PUBLISHED, RESULTS / "shifts", RESULTS / "biases")
VERDICTS = ("holds", "holds in part", "does not hold", "not tested")
TEXTS = {
    name: (DOCS / f"reproduction-{name}.md").read_text(encoding="utf-8")
    for name in PAGES
}


class Claim(NamedTuple):
    """A row of a page's table of claims."""

    name: str
    words: str
    ours: str
    theirs: str
    verdict: str


def claims(page: str) -> dict[str, Claim]:
    """Return the claims of a page by name."""
    lines = re.findall(r"(?m)^\| ([A-Z]\d+ \|.*) \|$", TEXTS[page])
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return {row[0]: Claim(*row) for row in cells}


CLAIMS = {name: claim for page in PAGES for name, claim in claims(page).items()}


def read(name: str, **filters: str) -> pd.DataFrame:
    """Return the rows of a stored table with the given values of columns."""
    (path,) = (place / name for place in PLACES if (place / name).exists())
    frame = pd.read_csv(path)
    for column, value in filters.items():
        frame = frame[frame[column] == value]
    return frame


def quoted(*values: float, digits: int = 2) -> list[str]:
    """Return the numbers as the pages print them."""
    return [f"{value:.{digits}f}".replace("-", "−") for value in values]


def test_pages_have_one_form():
    assert list(CLAIMS) == [
        *(f"B{i}" for i in range(1, 11)),
        *(f"G{i}" for i in range(1, 13)),
        *(f"D{i}" for i in range(1, 15)),
        *(f"S{i}" for i in range(1, 14)),
    ]
    for text in TEXTS.values():
        heads = re.findall(r"(?m)^## (.*)", text)
        own_heads = [head for head in heads if head != "What small networks show"]
        assert own_heads == ["Claims", "What differs", "In full"]
    for claim in CLAIMS.values():
        assert re.split("[;:,]| among ", claim.verdict)[0] in VERDICTS, claim
        assert claim.ours or claim.verdict.startswith("not tested"), claim


def test_biasbed():
    table = biasbed.table1()
    least, most = -table["recomputed"].max(), -table["recomputed"].min()
    assert CLAIMS["B1"].ours == " to ".join(quoted(least, most, digits=1))
    for name, number in (("B2", 2), ("B3", 3)):
        frame = biasbed.differences(number)
        agree = len(frame) - frame["beyond"].sum()
        assert CLAIMS[name].ours == f"{agree} of {len(frame)} cells"
    for name, setting, pairs in (("B4", "all", "B6"), ("B5", "strict", "B7")):
        listed, of_paper = (
            biasbed.iman_davenport(
                biasbed.inputs()[input_name], biasbed.settings()[setting]
            )
            for input_name in ("means of the runs of C.2", "the paper's configuration")
        )
        ours = CLAIMS[name].ours
        assert (
            f"F {listed.f:.3f}, p {listed.p:.1e}" in ours
            and f"{of_paper.f:.3f}" in ours
        )
        theirs = f"F {biasbed.PRINTED_F[setting]}, p {biasbed.PRINTED_P[setting]}"
        assert CLAIMS[name].theirs == theirs
        frame = biasbed.pairs(setting)
        assert f"{(frame['exact'] < 0.05).sum()}" in CLAIMS[pairs].ours
        assert CLAIMS[pairs].theirs == f"{(frame['p'] < 0.05).sum()} of {len(frame)}"
        erm = frame[(frame["algorithm_a"] == "ERM") | (frame["algorithm_b"] == "ERM")]
        assert f"{erm['exact'].min():.3f}" in CLAIMS["B8"].ours
        assert f"{erm['p'].min():.3f}" in CLAIMS["B8"].theirs


def test_biases():
    cells = imagenet_models.printed_cells()
    frame = cells[cells["table"] == 1]
    assert CLAIMS["G1"].ours == f"{frame['agrees'].sum()} of {len(frame)} cells"
    tables = (DOCS / "reproduction-biases-tables.md").read_text(encoding="utf-8")
    figures = re.findall(r"\| Figure \d+, .* \| (\d+) \| (\d+) \|", tables)
    num_read, agree = (sum(map(int, column)) for column in zip(*figures, strict=True))
    assert CLAIMS["G7"].ours == f"{agree} of {num_read}"
    frame = cells[cells["table"] == 2]
    assert CLAIMS["G2"].ours == f"{frame['agrees'].sum()} of {len(frame)} cells"
    correlations = read("correlations.csv").set_index(["models", "x", "y"])
    quoted_rho = {
        "G3": [("all", "shape bias", "ID", True)],
        "G4": [
            ("adversarial training", "shape bias", "ID", False),
            ("not adversarial training", "shape bias", "ID", False),
        ],
        "G5": [("all", "low-frequency bias", "Adversarial", True)],
        "G6": [
            ("all", "high-frequency bias", "ID", True),
            ("all", "high-frequency bias", "Robustness", True),
        ],
        "G9": [("all", "shape bias", "Concepts", True)],
    }
    for name, rows in quoted_rho.items():
        for *key, interval in rows:
            row = correlations.loc[tuple(key)]
            rho, low, high = quoted(row["statistic"], row["low"], row["high"])
            expected = f"{rho} [{low}, {high}]" if interval else rho
            assert expected in CLAIMS[name].ours, name
            assert rho in CLAIMS[name].theirs or CLAIMS[name].theirs == "n.s."
    all_models = correlations.loc["all"]
    p, holm = ((all_models[column] <= 0.05).sum() for column in ("pvalue", "holm"))
    assert CLAIMS["G8"].ours == f"{p} of {len(all_models)}; after Holm {holm}"


# Printed numbers by claim: the file, its rows, and a column with the values of each number.
QUOTED = {
    "D1": (
        "distortion_table1.csv",
        dict(dataset="CIFAR-10"),
        "model=basic,FMix,CutMix",
    ),
    "D2": (
        "distortion_table3.csv",
        dict(dataset="CIFAR-10"),
        "model=basic,FMix,CutMix",
    ),
    "D3": (
        "distortion_table4.csv",
        dict(measure="DI index"),
        "model=basic,FMix,CutMix,RM",
    ),
    "D4": ("distortion_table4.csv", dict(measure="CutOcclusion"), "model=CutMix,RM"),
    "D5": ("distortion_table4.csv", dict(measure="CutOcclusion"), "model=FMix,basic"),
    "D6": (
        "distortion_table5.csv",
        dict(measure="Affinity"),
        "augmentation=FMix,MixUp",
    ),
    "D8": ("distortion_table4.csv", dict(measure="iOcclusion"), "model=CutMix,basic"),
    "D10": (
        "distortion_simplicity.csv",
        dict(training_msda="none"),
        "evaluated_label=mnist",
    ),
    "D11": (
        "distortion_simplicity.csv",
        dict(training_msda="fmix_on_mnist_half"),
        "evaluated_label=cifar10,mnist",
    ),
    "D13": ("distortion_table6.csv", dict(dataset="CIFAR-10"), "model=MixUp,FMix"),
    "D14": ("distortion_table1.csv", dict(dataset="ImageNet"), "model=basic,FMix"),
    "S3": (
        "ood_table1.csv",
        dict(dataset="ColoredMNIST", model="Average"),
        "shift=marginal,conditional,joint",
    ),
    "S13": (
        "ood_table1.csv",
        dict(dataset="CelebA", model="Average"),
        "shift=marginal,conditional,joint",
    ),
    "S12": ("ood_table3.csv", dict(model="ResNet18"), "train_cluster=D1,D8"),
}
COLUMNS = ("drop_pct", "ood_acc_avg", "di_index_mean", "accuracy_mean", "mean")


@cases.each("name", QUOTED)
def test_printed_numbers_equal_those_of_the_tables(name):
    file, filters, selection = QUOTED[name]
    column, values = selection.split("=")
    printed = []
    for value in values.split(","):
        (row,) = read(file, **filters, **{column: value}).to_dict("records")
        printed += quoted(next(row[c] for c in COLUMNS if c in row))
    numbers = re.findall(r"−?\d+\.\d+", CLAIMS[name].theirs)
    assert numbers == printed


def test_kinds_of_shift():
    kinds = read("table1_kinds.csv").query("model != 'cnn'")
    paper = read("ood_table1.csv", dataset="ColoredMNIST").query("model != 'Average'")
    drops = kinds.groupby("kind")["drop_percent"].mean()
    order = ["marginal", "conditional", "joint"]
    assert CLAIMS["S3"].ours == ", ".join(quoted(*drops[order], digits=0)) + " %"
    worst = kinds[kinds["kind"] == "conditional"]["drop_percent"]
    assert worst.min() > 99.5 and CLAIMS["S1"].ours.startswith("drops of 100 to 100 %")
    theirs = paper[paper["shift"] == "conditional"]["drop_pct"]
    assert CLAIMS["S1"].theirs == " to ".join(quoted(theirs.min(), theirs.max())) + " %"
    for frame, kind, drop in (
        (kinds, "kind", "drop_percent"),
        (paper, "shift", "drop_pct"),
    ):
        wide = frame.pivot(index="model", columns=kind, values=drop)
        assert (wide["joint"] > wide["marginal"]).sum() == len(wide) == 5
    rows = kinds[kinds["model"] == "resnet18"].set_index("kind")
    intervals = [
        "{} [{}, {}]".format(
            *quoted(*rows.loc[kind, ["drop_percent", "low", "high"]], digits=0)
        )
        for kind in ("joint", "marginal")
    ]
    assert " and ".join(intervals) in CLAIMS["S2"].ours


def test_ranks_levels_and_clusters():
    ranks = read("ranks.csv")
    for name, kind in (("S4", "conditional"), ("S5", "marginal"), ("S6", "joint")):
        our_ranks = ranks[(ranks["whose"] == "here") & (ranks["kind"] == kind)].iloc[0]
        celeba = ranks[(ranks["data"] == "CelebA") & (ranks["kind"] == kind)].iloc[0]
        for text, row in (
            (CLAIMS[name].ours, our_ranks),
            (CLAIMS[name].theirs, celeba),
        ):
            assert text.startswith(
                "τ {}, p {}".format(*quoted(row["tau"], row["tau_p"]))
            )
        if name != "S6":  # The interval of S6 is nearly [-1, 1].
            assert "τ is {} to {}".format(
                *quoted(our_ranks["low"], our_ranks["high"])
            ) in (CLAIMS[name].verdict)
    levels = read("levels.csv").set_index("level")["drop"]
    assert (
        CLAIMS["S7"].ours
        == f"{levels['C6']:.0f} points at C6, {levels['C5']:.0f} at C5"
    )
    assert (
        CLAIMS["S8"].ours
        == f"{levels['M3']:.0f} points at M3, {levels['M4']:.0f} at M4"
    )
    clusters = read("table3_clusters.csv")
    assert (
        CLAIMS["S11"].ours
        == " and ".join(quoted(clusters["id"].mean(), clusters["ood"].mean(), digits=1))
        + " %"
    )
    ends = clusters.set_index("level")["ood"][["only-D1", "only-D8"]]
    assert CLAIMS["S12"].ours == " and ".join(quoted(*ends, digits=1)) + " %"
    theirs = read("ood_table3.csv", model="ResNet18")[["id_acc", "ood_acc_avg"]].mean()
    assert CLAIMS["S11"].theirs.startswith(" and ".join(quoted(*theirs)))


def test_single_colours():
    ours, theirs = read("table2_single_values.csv"), read("ood_table2_drops.csv")
    other_colours = ours[ours["value"] != ours["tested"]].assign(
        few=ours["images"] < 1500
    )
    other_colours = other_colours.groupby(["model", "few"])["accuracy"].mean()
    printed = theirs.groupby(["model", "train_size"])["mean_ood_acc"].mean()
    for name, model, printed_model in (
        ("S9", "resnet18", "ResNet18"),
        ("S10", "cnn", "2-layer CNN"),
    ):
        few, all_ = other_colours[model, True], other_colours[model, False]
        assert CLAIMS[name].ours == " to ".join(quoted(few, all_, digits=1)) + " %"
        few, all_ = printed[printed_model, "1K"], printed[printed_model, "Full"]
        assert CLAIMS[name].theirs == " to ".join(quoted(few, all_)) + " %"


@pytest.mark.slow
def test_hours_equal_the_output_of_the_command():
    index = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert gpu_hours.table() in index
    for train, size in ((True, 256), (True, 224), (False, 224)):
        rate = 1 / gpu_hours.min_seconds("resnet50", size, train, "h200")
        assert f"{rate:,.0f}" in index
    rate = 1 / gpu_hours.min_seconds("resnet50", 224, True, "a100")
    assert f"{2470 / rate:.0%}".replace("%", " %") in index


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")
def test_configs_for_the_full_runs_are_valid(monkeypatch):
    monkeypatch.chdir(ROOT)
    sections = [text.split("## In full")[1] for text in TEXTS.values()]
    named = re.findall(r"--config=(\S+)", "\n".join(sections))
    assert sum(name.startswith("configs/biasbed/") for name in named) == 8
    for name in named:
        setup.check_names(
            run_spec.RunSpec.from_config(jc.load(name, flag="config").to_dict())
        )
