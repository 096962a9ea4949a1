"""Headers of pandas: statistics, metrics and roles in any of several lines are understood.

The expected scores are computed with groupby of pandas, for any form of the file.
"""

import numpy as np
import pandas as pd
import pytest

from jbias import scores
from tests import cases

METHODS = ("ERM", "RSC", "Ours")
SETS = ("PACS", "VLCS", "TerraInc", "DomainNet")


def runs():
    """Return a tidy frame of three seeds, whose means differ strongly from their deviations."""
    rng = np.random.default_rng(0)
    rows = [
        (method, dataset, seed, 70 + 3 * i + rng.normal(), rng.uniform(0.2, 0.9))
        for i, method in enumerate(METHODS)
        for dataset in SETS
        for seed in range(3)
    ]
    return pd.DataFrame(rows, columns=["method", "dataset", "seed", "acc", "loss"])


def pivot(statistics, values="acc"):
    return runs().pivot_table(
        index="method", columns="dataset", values=values, aggfunc=statistics
    )


def flat(frame, order):
    """Return a frame with one header line, its names joined by "_"."""
    names = ["_".join(name[i] for i in order) for name in frame.columns]
    return frame.set_axis(names, axis=1)


def write(frame, path):
    frame.to_excel(path) if path.suffix == ".xlsx" else frame.to_csv(path)
    return path


def source_of(frame, ending, folder):
    """Return an input of `scores.read`: the frame, or its file with this ending."""
    return frame if ending == "frame" else write(frame, folder / f"t.{ending}")


FORMS = {
    "statistics above": lambda: pivot(["mean", "std"]),
    "statistics below": lambda: pivot(["mean", "std"]).swaplevel(axis=1),
    "statistics below, sorted": lambda: (
        pivot(["count", "mean", "std"]).swaplevel(axis=1).sort_index(axis=1)
    ),
    "counts above": lambda: pivot(["count", "mean", "std", "max"]),
    "three levels": lambda: pivot(["mean", "std"], values=["acc"]),
    "grouped and unstacked": lambda: (
        runs().groupby(["method", "dataset"])["acc"].agg(["mean", "std"]).unstack()
    ),
    "grouped by a dict": lambda: (
        runs()
        .groupby(["method", "dataset"])
        .agg({"acc": ["size", "mean", "std"]})
        .unstack()
    ),
    "grouped, long": lambda: (
        runs().groupby(["method", "dataset"]).agg({"acc": ["mean", "std", "min"]})
    ),
    "named aggregation": lambda: (
        runs()
        .groupby(["method", "dataset"])
        .agg(acc_mean=("acc", "mean"), acc_sd=("acc", "std"))
        .unstack()
    ),
    "data sets in rows": lambda: (
        runs().groupby(["dataset", "method"])["acc"].agg(["mean", "std"]).unstack()
    ),
    "prefixes": lambda: flat(pivot(["mean", "std"]), order=(0, 1)),
    "a metric and prefixes": lambda: flat(
        pivot(["mean", "std"], values=["acc"]), order=(1, 0, 2)
    ),
    "tuples": lambda: pivot(["mean", "std"]).pipe(
        lambda frame: frame.set_axis([str(name) for name in frame.columns], axis=1)
    ),
    "rows with numbers": lambda: pivot(["mean", "std"]).reset_index(),
    "endings": lambda: flat(pivot(["count", "mean", "std"]), order=(1, 0)),
}


@cases.each("form", FORMS)
@cases.each("ending", ["csv", "xlsx", "frame"])
def test_statistics_in_a_header_are_no_data_sets(tmp_path, form, ending):
    reading = scores.read(source_of(FORMS[form](), ending, tmp_path))
    groups = runs().groupby(["method", "dataset"])["acc"]
    tidy = reading.tidy.set_index(["algorithm", "dataset"]).sort_index()
    prefix = "acc_" if form == "a metric and prefixes" else ""
    pairs = [(method, prefix + dataset) for method in METHODS for dataset in SETS]
    assert list(tidy.index) == sorted(pairs)
    np.testing.assert_allclose(tidy["score"], groups.mean().sort_index())
    np.testing.assert_allclose(tidy["deviation"], groups.std().sort_index())
    assert reading.is_summary


def test_statistics_that_are_not_used_are_named(tmp_path):
    path = write(pivot(["count", "mean", "std", "max"]), tmp_path / "t.csv")
    assert scores.read(path).description[2].endswith("not used: count, max")


@cases.each("statistics", [["std", "count"], ["max", "min"], ["mean", "max"]])
@cases.each("is_flat", [False, True])
def test_statistics_without_a_mean_and_a_spread_are_refused_with_the_flag(
    tmp_path, statistics, is_flat
):
    """A mean and a maximum may be two methods of pooling; the flag says that they are not."""
    frame = pivot(statistics)
    path = write(flat(frame, order=(0, 1)) if is_flat else frame, tmp_path / "t.csv")
    first, last = statistics
    with pytest.raises(scores.UnclearError, match=f"--columns=score={first} or"):
        scores.read(path)
    reading = scores.read(path, columns=f"score={last}")
    tidy = reading.tidy.set_index(["algorithm", "dataset"])["score"].sort_index()
    right = runs().groupby(["method", "dataset"])["acc"].agg(last).sort_index()
    np.testing.assert_allclose(tidy, right)
    assert list(tidy.index) == list(right.index) and not reading.is_summary


def test_a_data_set_may_end_as_a_deviation_does(tmp_path):
    """Photo-SD, drawn by Stable Diffusion: its scores are no deviations."""
    path = tmp_path / "t.csv"
    path.write_text("method,Photo,Photo-SD\nERM,80.5,70\nRSC,81,72\n")
    assert set(scores.read(path).tidy["dataset"]) == {"Photo", "Photo-SD"}
    path.write_text("method,Photo,Photo SD\nERM,80.5,1.2\nRSC,81,0.7\n")
    tidy = scores.read(path).tidy
    assert set(tidy["dataset"]) == {"Photo"} and tidy["deviation"].tolist() == [
        1.2,
        0.7,
    ]


def test_a_mean_beside_its_deviation_has_the_name_above(tmp_path):
    """This also holds if another data set has no line of statistics."""
    path = tmp_path / "t.csv"
    path.write_text(",PACS,PACS,VLCS\nmethod,mean,std,\nERM,70,1,60\nRSC,71,2,61\n")
    tidy = scores.read(path).tidy.set_index(["algorithm", "dataset"])
    assert tidy["score"].to_dict() == {
        ("ERM", "PACS"): 70,
        ("ERM", "VLCS"): 60,
        ("RSC", "PACS"): 71,
        ("RSC", "VLCS"): 61,
    }


def test_methods_and_networks_may_have_names_of_statistics(tmp_path):
    """Mean and max are names of pooling methods; SE-ResNet is a network."""
    path = tmp_path / "t.csv"
    path.write_text("dataset,mean,max,gem\nPACS,71.5,72,74\nVLCS,61.5,63,64\n")
    assert set(scores.read(path).tidy["algorithm"]) == {"mean", "max", "gem"}
    path.write_text(
        "dataset,ResNet50,SE-ResNet50,se_vit,vit\nPACS,71.5,72,73,74\nVLCS,61,6,7,63\n"
    )
    tidy = scores.read(path).tidy
    names = {"ResNet50", "SE-ResNet50", "se_vit", "vit"}
    assert set(tidy["algorithm"]) == names and "deviation" not in tidy
    path.write_text(
        "dataset,ResNet50,SE-ResNet50\nPACS,71.5 ± 0.2,72 ± 0.3\nVLCS,61 ± 0.1,62 ± 0.4\n",
        "utf-8",
    )
    assert scores.read(path).tidy["deviation"].tolist() == [0.2, 0.3, 0.1, 0.4]


@cases.each("order", [(0, 1), (1, 0)])
def test_several_metrics_over_data_sets_are_refused_with_the_flag(tmp_path, order):
    frame = (
        runs()
        .rename(columns={"acc": "accuracy"})
        .pivot_table(index="method", columns="dataset", values=["accuracy", "loss"])
        .reorder_levels(order, axis=1)
    )
    path = write(frame, tmp_path / "t.csv")
    with pytest.raises(scores.UnclearError, match="--columns=score=accuracy or"):
        scores.read(path)
    tidy = scores.read(path, columns="score=accuracy").tidy
    assert set(tidy["dataset"]) == set(SETS) and tidy["score"].min() > 60


def test_accuracies_of_the_first_guess_and_of_five_are_two_metrics(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        ",A,A,B,B\nmethod,Top-1 acc,Top-5 acc,Top-1 acc,Top-5 acc\n"
        "ERM,80,90,70,80\nRSC,81,91,71,82\n"
    )
    with pytest.raises(scores.UnclearError, match="--columns=score=Top-1 acc or"):
        scores.read(path)
    tidy = scores.read(path, columns="score=Top-1 acc").tidy
    assert tidy["score"].tolist() == [80, 70, 81, 71]


@cases.each("order", ["{metric}_{dataset}", "{dataset} {metric}"])
def test_several_metrics_in_one_header_line_are_refused(tmp_path, order):
    frame = runs().pivot_table(index="method", columns="dataset", values="acc")
    for metric in ("acc", "error"):
        columns = {x: order.format(metric=metric, dataset=x) for x in SETS}
        frame = frame.join(frame[list(SETS)].rename(columns=columns))
    frame = frame.drop(columns=list(SETS))
    path = write(frame, tmp_path / "t.csv")
    with pytest.raises(scores.UnclearError, match="--columns=score=acc or"):
        scores.read(path)
    tidy = scores.read(path, columns="score=acc").tidy
    assert tidy["dataset"].nunique() == 4 and tidy["score"].min() > 60


def test_words_before_one_metric_only_group_data_sets(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        ",ID accuracy,OOD accuracy,OOD accuracy\nmethod,ImageNet,Sketch,ImageNet-R\n"
        "ERM,70.5,60,61\nRSC,71,62,63\n"
    )
    names = {"ImageNet", "Sketch", "ImageNet-R"}
    assert set(scores.read(path).tidy["dataset"]) == names


WITH_ROLES = {
    "one metric": lambda: runs().pivot(
        index="seed", columns=["method", "dataset"], values="acc"
    ),
    "other order": lambda: runs().pivot(
        index="seed", columns=["dataset", "method"], values="acc"
    ),
    "metric above": lambda: (
        runs().drop(columns="loss").pivot(index="seed", columns=["method", "dataset"])
    ),
}


@cases.each("form", WITH_ROLES)
@cases.each("ending", ["csv", "xlsx", "frame"])
def test_header_lines_with_names_are_read_by_these(tmp_path, form, ending):
    tidy = scores.read(source_of(WITH_ROLES[form](), ending, tmp_path)).tidy
    tidy = tidy.assign(run=tidy["run"].astype(int))
    tidy = tidy.set_index(["algorithm", "dataset", "run"])["score"].sort_index()
    right = runs().set_index(["method", "dataset", "seed"])["acc"].sort_index()
    assert list(tidy.index) == list(right.index)
    np.testing.assert_allclose(tidy, right)


def test_an_algorithm_of_named_header_lines_may_have_fewer_seeds(tmp_path):
    frame = WITH_ROLES["one metric"]()
    frame.loc[2, "RSC"] = np.nan
    tidy = scores.read(write(frame, tmp_path / "t.csv")).tidy
    counts = tidy.groupby("algorithm")["run"].nunique().to_dict()
    assert counts == {"ERM": 3, "RSC": 2, "Ours": 3} and not tidy["score"].isna().any()


def test_header_lines_without_names_are_no_algorithms_of_one_data_set(tmp_path):
    frame = WITH_ROLES["one metric"]().rename_axis(columns=[None, None])
    path = write(frame, tmp_path / "t.csv")
    for columns in ("", "algorithm=header"):
        with pytest.raises(scores.UnclearError, match="name each in the first cell"):
            scores.read(path, columns=columns)
    with pytest.raises(ValueError, match="need two header lines with a name each"):
        scores.read(path, columns="algorithm=header,dataset=header")


DOUBLED = {
    "roles in header lines": "method,A,A,B,B,A,A\ndataset,x,y,x,y,x,y\nseed,,,,,,\n"
    "0,70,71,72,73,10,11\n1,71,72,73,74,11,12\n",
    "prefixes": "method,mean_x,std_x,mean_x,mean_y,std_y\nA,70.5,1,60,50,1\nB,71,1,61,51,1\n",
}


@cases.each("form", DOUBLED)
def test_two_columns_of_one_name_are_refused(tmp_path, form):
    path = tmp_path / "t.csv"
    path.write_text(DOUBLED[form])
    with pytest.raises(ValueError, match="every column must be named once, got"):
        scores.read(path)


STANDARD_ERRORS = {
    "of an evaluation harness": 'model,task,"acc,none","acc_stderr,none"\n{}',
    "long": "model,task,acc,acc_stderr\n{}",
    "called sem": "model,task,accuracy,sem\n{}",
    "an interval": "model,task,accuracy,ci95\n{}",
    "in cells": "model,task,acc ± stderr\nA,x,50.5 ± 0.1\nA,y,60 ± 0.1\nB,x,51 ± 1\nB,y,61 ± 2\n",
    "wide": "model,x,x_stderr,y,y_stderr\nA,50.5,.1,60,.1\nB,51,.1,61,.2\n",
    "two lines": ",x,x,y,y\nmodel,acc,stderr,acc,stderr\nA,50.5,.1,60,.1\nB,51,.1,61,.2\n",
}


@cases.each("form", STANDARD_ERRORS)
def test_a_standard_error_is_no_deviation_over_runs(tmp_path, form):
    rows = "A,x,50.5,0.1\nA,y,60,0.1\nB,x,51,0.2\nB,y,61,0.1\n"
    path = tmp_path / "t.csv"
    path.write_text(STANDARD_ERRORS[form].format(rows), "utf-8")
    reading = scores.read(path)
    assert not reading.is_summary and "deviation" not in reading.tidy
    tidy = reading.tidy.set_index(["algorithm", "dataset"])["score"].to_dict()
    right = {("A", "x"): 50.5, ("A", "y"): 60, ("B", "x"): 51, ("B", "y"): 61}
    assert tidy == right
    assert reading.description[1].startswith("one score each; the ")
    assert reading.description[1].endswith(") is not used")


def test_a_deviation_beside_a_standard_error_is_the_one_that_counts(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "model,task,acc,stderr,std\nA,x,50,1,2\nA,y,60,1,2\nB,x,51,1,2\nB,y,1,1,2\n"
    )
    reading = scores.read(path)
    assert reading.is_summary and set(reading.tidy["deviation"]) == {2}
    assert "standard error" not in reading.description[1]


FORMS_OF_PREFIXES = {
    "long": "method,dataset,seed,score\n"
    "A,{0}x,0,50.5\nA,{0}y,0,51\nB,{0}x,0,50\nB,{0}y,0,51\n",
    "wide": "method,{0}x,{0}y\nA,50.5,51\nB,50,51\n",
    "data sets in rows": "dataset,A,B\n{0}x,50.5,50\n{0}y,51,51\n",
    "two lines of runs": ",{0}x,{0}x,{0}y,{0}y\nmethod,seed0,seed1,seed0,seed1\n"
    "A,50.5,50,51,51\nB,50,50,51,51\n",
    "two lines of statistics": ",{0}x,{0}x,{0}y,{0}y\nmethod,mean,std,mean,std\n"
    "A,50.5,1,51,1\nB,50,1,51,1\n",
    "statistics above": ",mean,mean,std,std\nmethod,{0}x,{0}y,{0}x,{0}y\n"
    "A,50.5,51,1,1\nB,50,51,1,1\n",
}


@cases.each("form", FORMS_OF_PREFIXES)
def test_a_metric_before_all_names_of_data_sets_is_no_part_of_these(tmp_path, form):
    path = tmp_path / "t.csv"
    for prefix, names in (
        ("test/acc/", {"x", "y"}),
        ("test_acc/", {"x", "y"}),
        ("pacs/", {"pacs/x", "pacs/y"}),
    ):
        path.write_text(FORMS_OF_PREFIXES[form].format(prefix))
        assert set(scores.read(path).tidy["dataset"]) == names
