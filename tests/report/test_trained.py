"""Pairs of algorithms and data sets of their training, from settings and from a file."""

import dataclasses
import importlib
import json

import pytest

from jbias.report import workdirs
from jbias.report.pages.benchmark import trained
from tests import cases

TESTS = {
    "cue_conflict": {"split": "cue_conflict", "data": "shapes", "correlation": 0.9},
    "stylized": {"split": "stylized", "data": "shapes", "correlation": 0.9},
    "test": {"split": "test", "data": "shapes", "correlation": 0.9},
    "corrupted": {"split": "corrupted", "data": "shapes", "correlation": 0.9},
    "cae": {"split": "val", "data": "folder", "root": "prepared/cae"},
    "edsr": {"split": "val", "data": "folder", "root": "prepared/edsr"},
}
SHAPES = {"data": "shapes", "split": "train", "correlation": 0.9, "n": 64}


def make_run(label, /, **settings):
    settings = {"train": SHAPES, "inputs": [], "stages": [], "tests": TESTS} | settings
    return workdirs.Run(
        workdir=label,
        name=label,
        algorithm=label,
        variant="",
        seeds=(0,),
        provenance={},
        finished=True,
        settings=settings,
        label=label,
    )


def cae_data(split):
    return {"data": "folder", "root": "prepared/cae", "split": split}


def test_data_of_training_are_read_from_settings():
    runs = [
        make_run("erm"),
        make_run("stylized_erm", inputs=[{"name": "flip"}, {"name": "stylize"}]),
        make_run("noise", inputs=[{"name": "gaussian_noise"}]),
        make_run("deepaugment", train={**SHAPES, "also": [cae_data("train")]}),
        make_run("staged", stages=[{}, {"train": cae_data("train[:50%]")}]),
        make_run("on_test_set", train={**SHAPES, "split": "cue_conflict"}),
    ]
    assert trained.of_runs(runs, list(TESTS)) == {
        ("stylized_erm", "stylized"),
        ("noise", "corrupted"),
        ("deepaugment", "cae"),
        ("staged", "cae"),
        ("on_test_set", "cue_conflict"),
        # The other two did not train on plain shapes.
        *((name, "test") for name in ("erm", "noise", "deepaugment", "staged")),
    }


def run_of_config(name, arg="", label=None, **tests):
    """Return a run by its config file, with test sets `tests`."""
    config = importlib.import_module(f"jbias.configs.{name}").get_config(arg)
    settings = json.loads(json.dumps(config.to_dict()))
    return make_run(label or name, **settings | {"tests": settings["tests"] | tests})


def test_data_of_training_are_read_from_configs():
    names = ("erm", "stylized_erm", "debiased", "sin_in", "gaussian_noise", "sagnet")
    runs = [run_of_config(name) for name in names]
    runs.append(run_of_config("deepaugment", "nets=cae"))
    assert trained.of_runs(runs, list(runs[0].settings["tests"])) == {
        *((name, "stylized") for name in ("stylized_erm", "debiased", "sin_in")),
        ("gaussian_noise", "corrupted"),
        *((run.label, "test") for run in runs if run.label != "stylized_erm"),
    }


def test_data_of_training_are_read_from_imagenet_configs():
    sets = {
        "sin": {"data": "stylized_imagenet", "root": "/d/sin/", "split": "val"},
        "released": {"data": "deepaugment", "root": "/d/da", "split": "cae"},
        "own": {"data": "folder", "root": "/d/p/../p/cae/", "split": "val"},
        "edsr": {"data": "deepaugment", "root": "/d/da", "split": "edsr"},
    }
    data = "data=imagenet,root=/d/in"
    runs = [run_of_config(name, data, **sets) for name in ("erm", "debiased", "sin_in")]
    runs.append(run_of_config("stylized_erm", data, **sets))
    runs.append(run_of_config("deepaugment", f"nets=cae,prepared=/d/p,{data}", **sets))
    # Stylized-ImageNet prepared earlier and read like ImageNet.
    sin = run_of_config("erm", "data=imagenet,root=/d/sin", label="sin")
    runs.append(make_run("sin", **sin.settings | {"tests": runs[0].settings["tests"]}))
    assert trained.of_runs(runs, ["val", *sets]) == {
        *((name, "sin") for name in ("debiased", "sin_in", "stylized_erm", "sin")),
        *(("deepaugment", name) for name in ("released", "own")),
        *((name, "val") for name in ("erm", "debiased", "sin_in", "deepaugment")),
    }


STYLIZE = [{"name": "stylize"}]


@cases.each(
    ("settings", "has_clean"),
    [
        ({"inputs": STYLIZE}, False),
        ({"inputs": [{"name": "stylize", "p": 0.5}]}, True),
        ({"stages": [{"inputs": STYLIZE}, {"inputs": STYLIZE}]}, False),
        ({"stages": [{}, {"inputs": STYLIZE}]}, True),
        ({"train": {**SHAPES, "also": [{**SHAPES, "inputs": STYLIZE}]}}, True),
        ({"train": {**SHAPES, "also": [SHAPES]}, "inputs": STYLIZE}, False),
        ({"algo": {"name": "debiased", "transfer": {"name": "small"}}}, True),
    ],
)
def test_all_settings_that_stylise_count(settings, has_clean):
    pairs = trained.of_runs(
        [make_run("erm"), make_run("other", **settings)], list(TESTS)
    )
    expected = {("other", "stylized")} | (set() if has_clean else {("erm", "test")})
    assert pairs == expected


def test_settings_that_never_stylise_do_not_count():
    none = [{"name": "stylize", "p": 0.0}]
    plain = {"name": "debiased", "transfer": {"name": "small"}, "stylised": False}
    runs = [
        make_run("erm"),
        make_run("none", inputs=none),
        make_run("plain", algo=plain),
    ]
    assert trained.of_runs(runs, list(TESTS)) == set()


def test_the_same_folder_with_another_reader_is_other_data():
    digits = {"data": "mnist", "root": "/d/mnist", "split": "train"}
    tests = {"colours": {"data": "colored_mnist", "root": "/d/mnist", "split": "test"}}
    runs = [make_run("erm", tests=tests), make_run("digits", train=digits, tests=tests)]
    assert trained.of_runs(runs, ["colours"]) == set()


def test_links_to_folders_are_resolved(tmp_path):
    (tmp_path / "disc").mkdir()
    (tmp_path / "cae").symlink_to(tmp_path / "disc")
    train = {"data": "folder", "root": f"{tmp_path}/cae", "split": "train"}
    tests = {
        "same": {"data": "folder", "root": f"{tmp_path}/disc", "split": "val"},
        "released": {"data": "deepaugment", "root": "/d/da", "split": "cae"},
    }
    runs = [make_run("erm", tests=tests), make_run("cae", tests=tests, train=train)]
    assert trained.of_runs(runs, list(tests)) == {("cae", "same"), ("cae", "released")}


def test_runs_without_settings_are_ignored():
    unknown = dataclasses.replace(make_run("unknown"), settings={})
    assert (
        trained.of_runs([make_run("erm"), make_run("sagnet"), unknown], list(TESTS))
        == set()
    )
    fewer = make_run("fewer", tests={"stylized": TESTS["stylized"]})
    assert trained.of_runs([make_run("erm"), fewer], list(TESTS)) == set()


def test_data_that_all_trained_on_stay_test_sets():
    runs = [make_run("erm"), make_run("sagnet")]
    assert trained.of_runs(runs, list(TESTS)) == set()
    runs.append(make_run("none", tests={}))
    assert trained.of_runs(runs[2:], list(TESTS)) == set()


def test_another_correlation_is_another_distribution():
    other = make_run("other", train={**SHAPES, "correlation": 0.5})
    pairs = trained.of_runs([make_run("erm"), other], list(TESTS))
    assert pairs == {("erm", "test")}


def test_data_of_training_are_read_from_a_file(tmp_path):
    path = tmp_path / "trained.csv"
    path.write_text("algorithm,dataset\nA, x\nB,y\n")
    assert trained.read(path, ["A", "B"], ["x", "y"]) == {("A", "x"), ("B", "y")}
    path.write_text("algorithm,dataset\nA,x\nC,y\n")
    with pytest.raises(
        ValueError, match=r"trained.csv:3: there are no scores of 'C'; use one of A, B"
    ):
        trained.read(path, ["A", "B"], ["x", "y"])
    path.write_text("algorithm\nA\n")
    with pytest.raises(ValueError, match=r"trained.csv:1: .*got algorithm"):
        trained.read(path, ["A"], ["x"])
