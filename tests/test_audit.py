"""Audits of networks: from the weight file to the report, without training."""

import json
import re

import jax
import jax.numpy as jnp
import pandas as pd
import pytest

from jbias import audit, data, models, train
from jbias.evals import decision_files
from tests import cases, smoke_runs

N = 320
DATA = ("--data=shapes", "--data.factors=True", f"--data.n={N}")
QUICK = ("--draws=100", "--pairs=2", "--size=32")


def write(folder, name, seed):
    """Write an untrained network and class names of the embedded set; return the arguments."""
    net = models.MODELS["cnn"](16, width=4)
    variables = net.init(jax.random.key(seed), jnp.zeros((1, 32, 32, 3)))
    path = folder / f"{name}.safetensors"
    models.save_safetensors(path, net, variables, names="own")
    classes = folder / "names.txt"
    classes.write_text("\n".join(data.load("shapes", "test", n=48).classes))
    return f"--checkpoint={path}", f"--classes={classes}", "--zoo="


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write(tmp_path_factory.mktemp("network"), "small", 0)


@pytest.fixture(scope="module")
def audited(network, tmp_path_factory):
    out = tmp_path_factory.mktemp("audit")
    attributes = "--attributes=background,size,pattern,attribute"
    command = [*network, *DATA, *QUICK, attributes, f"--out={out}"]
    assert audit.main(command) == 0
    return out, command


@pytest.mark.slow
def test_numbers_follow_from_the_decisions(audited):
    out, _ = audited
    path = out / "networks/small/decisions/audited/accuracy.parquet"
    decided = decision_files.read_conditions(path)[""]
    right = decided.prediction == decided.columns["label"]
    tree = json.loads((out / "results.json").read_text())
    assert tree["images"] == N
    assert tree["accuracy"] == pytest.approx(right.mean())
    cells = pd.read_csv(out / "tables/cells.csv").query("attribute == 'background'")
    assert len(cells) == 32
    source = data.load("shapes", "test", n=N, factors=True)
    for row in cells.sample(5, random_state=0).to_dict("records"):
        in_cell = decided.columns["label"] == source.classes.index(row["class"])
        value = source.values["background"].index(row["value"])
        in_cell &= decided.columns["background"] == value
        assert row["images"] == in_cell.sum()
        assert row["accuracy"] == pytest.approx(right[in_cell].mean())


def test_attributes_that_cannot_be_tested_are_named(audited):
    """With the usual correlation each class has its own texture."""
    out, _ = audited
    tree = json.loads((out / "results.json").read_text())
    verdicts = {row["attribute"]: row["verdict"] for row in tree["ranked"]}
    assert verdicts["attribute"] == "untestable"
    assert verdicts["background"] == verdicts["size"] == "none"
    assert any(
        re.search("attribute: cannot be tested: .* has 0 of", line)
        for line in tree["caveats"]
    )


def test_the_headline_says_that_an_untrained_network_guesses(audited):
    out, _ = audited
    tree = json.loads((out / "results.json").read_text())
    assert tree["chance"]["verdict"] == "guesses"
    assert tree["chance"]["chance"] == 1 / 16
    assert re.match(
        r"small: accuracy .* chance is 6.25 %, .* guesses", tree["headline"]
    )


def test_a_second_audit_shows_no_image_again(audited, capsys):
    out, command = audited
    text = (out / "results.json").read_text()
    capsys.readouterr()
    assert audit.main(command) == 0
    assert "1 measure is there already" in capsys.readouterr().err
    assert (out / "results.json").read_text() == text


@pytest.mark.slow
def test_a_run_is_one_model_and_broken_files_are_named(network, tmp_path, capsys):
    train.run(smoke_runs.small(epochs=0.25), str(tmp_path / "run"))
    (tmp_path / "broken.pth").write_bytes(b"no weights")
    out = tmp_path / "audit"
    paths = [f"--runs={tmp_path / name}" for name in ("run", "broken.pth")]
    command = [*paths, "--zoo=", *DATA, *QUICK, "--attributes=size", f"--out={out}"]
    assert audit.main(command) == 1
    assert "not audited: " in capsys.readouterr().err
    tree = json.loads((out / "results.json").read_text())
    assert len(tree["networks"]) == 2
    assert any("broken.pth" in line for line in tree["caveats"])
    assert audit.main([*command, "--apart", f"--out={tmp_path / 'apart'}"]) == 1
    tree = json.loads((tmp_path / "apart/results.json").read_text())
    assert len(tree["models"]) == 2
    for model in tree["models"]:
        assert (tmp_path / "apart" / model["folder"] / "index.html").exists()


@cases.each(
    ("change", "words"),
    [
        (
            ["--attributes=hair"],
            "--attributes: must be columns of shapes/test, got 'hair'",
        ),
        (
            ["--data=mnist", "--root=nowhere"],
            "--data: root must be an existing folder, got",
        ),
        (
            ["--split=edge", "--data.factors=False"],
            "shapes/edge must have a column of attributes, got label; name",
        ),
        (["--data.colour=red"], "got 'colour'"),
        (["--split=tset"], "did you mean 'test'"),
        (["--model=cnnn"], "--model: unknown 'cnnn'"),
        (["--step=3"], "--step: has no effect on files"),
    ],
)
def test_wrong_arguments_are_one_line(network, tmp_path, capsys, change, words):
    options = [] if "--data=mnist" in change else DATA
    command = [*network, *options, *QUICK, *change, f"--out={tmp_path / 'out'}"]
    assert audit.main(command) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert words in lines[-1]
    assert lines[-1].startswith("jbias: ")


@cases.each(
    ("arguments", "words"),
    [
        (["--data=shapes"], "--checkpoint is missing"),
        (["--checkpoint=x"], "--data is missing"),
        (["--checkpoint=x", "--data=shapes", "y.pth"], "unknown argument 'y.pth'"),
        (["--checkpoint=x", "--data=shapes", "--data.n"], "must be --data.KEY=VALUE"),
        (["--tau=-1"], "argument --tau: must be a number from 0 to below 100"),
        (["--draws=10"], "argument --draws: must be a whole number of at least 100"),
        (["--attributes=a,a"], "argument --attributes: must be different names"),
    ],
)
def test_arguments_that_cannot_be_read(arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        audit.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
