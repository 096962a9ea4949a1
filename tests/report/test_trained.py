"""What algorithms trained on: from settings, from a file."""

import pytest

from jbias.report import trained, workdirs

TESTS = {
    "cue_conflict": {"split": "cue_conflict", "data": "shapes", "correlation": 0.9},
    "stylized": {"split": "stylized", "data": "shapes", "correlation": 0.9},
    "test": {"split": "test", "data": "shapes", "correlation": 0.9},
    "corrupted": {"split": "corrupted", "data": "shapes", "correlation": 0.9},
    "cae": {"split": "val", "data": "folder", "root": "prepared/cae"},
    "edsr": {"split": "val", "data": "folder", "root": "prepared/edsr"},
}
SHAPES = {"data": "shapes", "split": "train", "correlation": 0.9, "n": 64}


def run(label, **settings):
    settings = {"train": SHAPES, "inputs": [], "stages": [], "tests": TESTS} | settings
    return workdirs.Run(
        workdir=label,
        name=label,
        algorithm=label,
        variant="",
        seeds=(0,),
        config={},
        provenance={},
        finished=True,
        settings=settings,
        label=label,
    )


def cae(split):
    return {"data": "folder", "root": "prepared/cae", "split": split}


def test_settings_tell_what_an_algorithm_trained_on():
    runs = [
        run("erm"),
        run("stylized_erm", inputs=[{"name": "flip"}, {"name": "stylize"}]),
        run("noise", inputs=[{"name": "gaussian_noise"}]),
        run("deepaugment", train={**SHAPES, "also": [cae("train")]}),
        run("staged", stages=[{"train": cae("train[:50%]")}]),
        run("on_test_set", train={**SHAPES, "split": "cue_conflict"}),
    ]
    assert trained.of_runs(runs, list(TESTS)) == {
        ("stylized_erm", "stylized"),
        ("noise", "corrupted"),
        ("deepaugment", "cae"),
        ("staged", "cae"),
        ("on_test_set", "cue_conflict"),
        # The one that trained elsewhere sees it as out of distribution.
        *((name, "test") for name in ("erm", "stylized_erm", "noise")),
        *((name, "test") for name in ("deepaugment", "staged")),
    }


def test_what_all_trained_on_is_a_test_for_all():
    runs = [run("erm"), run("sagnet")]
    assert trained.of_runs(runs, list(TESTS)) == set()
    runs.append(run("none", tests={}))
    assert trained.of_runs(runs[2:], list(TESTS)) == set()


def test_other_correlations_are_other_distributions():
    other = run("other", train={**SHAPES, "correlation": 0.5})
    found = trained.of_runs([run("erm"), other], list(TESTS))
    assert found == {("erm", "test")}


def test_reads_a_file(tmp_path):
    path = tmp_path / "trained.csv"
    path.write_text("algorithm,dataset\nA, x\nB,y\n")
    assert trained.read(path, ["A", "B"], ["x", "y"]) == {("A", "x"), ("B", "y")}
    path.write_text("algorithm,dataset\nA,x\nC,y\n")
    with pytest.raises(
        ValueError, match=r"trained.csv:3: must be one of A, B, got 'C'"
    ):
        trained.read(path, ["A", "B"], ["x", "y"])
    path.write_text("algorithm\nA\n")
    with pytest.raises(ValueError, match=r"trained.csv:1: .*got algorithm"):
        trained.read(path, ["A"], ["x"])
