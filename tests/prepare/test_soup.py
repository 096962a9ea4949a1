"""Soups: means of the weights of seeds that start from one network."""

import dataclasses
import itertools
import json

import jax
import numpy as np
import pandas as pd
import pytest

from jbias import data, models, prepare, train
from jbias.evals import networks
from jbias.measuring import cli as measuring_cli
from jbias.models import class_names, trained
from jbias.prepare import soup
from jbias.report import measured
from jbias.report.pages.benchmark import inputs
from jbias.runs import results
from tests import smoke_runs
from tests.evals import test_ensembles


def member(seed, start="", **fix):
    """Return the network of a seed of a run with config.init = `start`, and config.fix."""
    config = {"init": start, "fix": fix, "valid": {"data": "shapes"}, "size": 32}
    network = test_ensembles.seed_network(seed)
    return dataclasses.replace(network, about={"path": "run", "config": config})


def assert_equal(a, b):
    """Assert that two trees are equal to the bit."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_mean_of_one_network_is_the_network_to_the_bit():
    variables = member(0).variables
    assert_equal(soup.mean_of([variables]), jax.device_get(variables))


def test_a_mean_of_networks_is_numpys_mean_rounded_once():
    trees = [member(seed).variables for seed in range(3)]
    leaves = [jax.tree.leaves(tree) for tree in trees]
    for i, mean in enumerate(jax.tree.leaves(soup.mean_of(trees))):
        expected = np.mean([np.asarray(x[i], np.float64) for x in leaves], axis=0)
        np.testing.assert_array_equal(mean, expected.astype(np.float32))


def greedy_subset(values, score):
    """Return the indices of a greedy soup, in Wortsman et al.'s Recipe 1."""
    order = sorted(range(len(values)), key=lambda i: -score([values[i]]))
    ingredients = []
    for i in order:
        with_i = score([values[j] for j in (*ingredients, i)])
        without = score([values[j] for j in ingredients]) if ingredients else -1
        if with_i >= without:
            ingredients.append(i)
    return ingredients


@pytest.mark.parametrize("number", range(20))
def test_a_greedy_soup_has_the_members_of_the_published_recipe(number):
    """Networks are numbers here, and the accuracy falls with their mean's distance from 0."""
    values = np.random.default_rng(number).normal(size=6).round(1).astype(np.float32)
    members = [
        dataclasses.replace(member(seed), variables={"params": {"w": value}})
        for seed, value in enumerate(values)
    ]
    accuracy = lambda variables: -round(abs(float(variables["params"]["w"])), 1)
    trials = soup.select_greedily(members, accuracy, finish=lambda variables: variables)
    score = lambda x: -round(abs(float(np.mean(np.asarray(x, np.float64)))), 1)
    expected = greedy_subset([*values], lambda x: 100 + score(x))
    assert seeds_of(trial for trial in trials if trial.joins) == expected
    order = sorted(range(len(values)), key=lambda i: -score([values[i]]))
    assert seeds_of(trials) == order
    assert [trial.accuracy for trial in trials] == [score([values[i]]) for i in order]


def seeds_of(trials):
    """Return the seeds of trials of a greedy soup, in order."""
    return [trial.member.fields["seed"] for trial in trials]


def test_each_trial_compares_the_soup_so_far_with_and_without_a_network():
    """Networks are numbers, and the accuracy falls with their mean's distance from 0."""
    values = (0.25, 0.5, -0.75)
    members = [
        dataclasses.replace(
            member(seed), variables={"params": {"w": np.float32(value)}}
        )
        for seed, value in enumerate(values)
    ]
    accuracy = lambda variables: 1 - abs(float(variables["params"]["w"]))
    trials = soup.select_greedily(members, accuracy, finish=lambda x: x)
    numbers = [(x.accuracy, x.accuracy_with, x.accuracy_without) for x in trials]
    assert numbers == [
        (0.75, 0.75, None),
        (0.5, 0.625, 0.75),  # The mean of 0.25 and 0.5.
        (0.25, 0.75, 0.75),  # The mean of 0.25 and -0.75.
    ]
    assert [trial.joins for trial in trials] == [True, False, True]


def test_the_first_network_of_a_greedy_soup_is_compared_with_new_statistics():
    """New statistics add 0.5: the first network alone is then worse than with the second."""
    members = [
        dataclasses.replace(
            member(seed), variables={"params": {"w": np.float32(value)}}
        )
        for seed, value in enumerate((0.0, -1.2))
    ]
    accuracy = lambda variables: -abs(float(variables["params"]["w"]))
    finish = lambda variables: {"params": {"w": variables["params"]["w"] + 0.5}}
    trials = soup.select_greedily(members, accuracy, finish=finish)
    assert seeds_of(trial for trial in trials if trial.joins) == [0, 1]
    assert [trial.accuracy for trial in trials] == pytest.approx([0.0, -1.2])
    assert trials[0].accuracy_with == trials[1].accuracy_without == -0.5


def test_seeds_that_trained_on_the_validation_set_get_a_note():
    members = [member(0, init=0), member(1, init=0)]
    valid = {"data": "pacs", "root": "x", "split": "photo[90%:]"}
    for split, count in (("photo", 1), ("photo[:95%]", 1), ("photo[:90%]", 0)):
        for network in members:
            network.about["config"].update(valid=valid, train={**valid, "split": split})
        notes = soup.check_members(members, any_init=False)
        assert ["chooses by training images" in note for note in notes] == [
            True
        ] * count


def test_seeds_with_different_initial_weights_are_refused_with_a_remedy():
    members = [member(0), member(1)]
    with pytest.raises(ValueError, match=r"fix\.init=0, or give --any-init"):
        soup.check_members(members, any_init=False)
    (note,) = soup.check_members(members, any_init=True)
    assert note.startswith("note: ") and "no good network" in note


def test_seeds_with_one_initial_network_are_accepted(tmp_path):
    shared = [member(0, init=0), member(1, init=0)]
    assert soup.check_members(shared, any_init=False) == []
    net = shared[0].net
    classes = class_names.Classes(shared[0].classes, "names")
    models.save_run(tmp_path / "one", net, shared[0].variables, classes, size=32)
    from_one = [member(seed, str(tmp_path / "one")) for seed in (0, 1)]
    assert soup.check_members(from_one, any_init=False) == []
    from_unknown = [member(seed, str(tmp_path / "gone")) for seed in (0, 1)]
    with pytest.raises(ValueError, match="must start from one network"):
        soup.check_members(from_unknown, any_init=False)


@pytest.mark.parametrize("num_classes", [3, None])
def test_seeds_that_draw_their_linear_layer_anew_are_refused(num_classes, tmp_path):
    """The run that they start from has other classes, or its classes are unknown."""
    net = models.MODELS["cnn"](num_classes or 5, width=2)
    variables = net.init(jax.random.key(0), np.zeros((1, 32, 32, 3), np.float32))
    names = tuple("abc") if num_classes else tuple("abcde")
    classes = class_names.Classes(names, "names")
    models.save_run(tmp_path / "one", net, variables, classes, size=32)
    if num_classes is None:
        path = tmp_path / "one" / "config.json"
        entries = json.loads(path.read_text())
        del entries["class_names"]
        path.write_text(json.dumps(entries))
    members = [member(seed, str(tmp_path / "one")) for seed in (0, 1)]
    with pytest.raises(ValueError, match="must start from one network"):
        soup.check_members(members, any_init=False)


def test_seeds_with_different_validation_sets_are_refused():
    first, second = member(0, init=0), member(1, init=0)
    second.about["config"]["valid"] = {"data": "colored_mnist"}
    with pytest.raises(ValueError, match="the validation sets must be equal"):
        soup.check_members([first, second], any_init=True)


def test_flags_have_the_documented_defaults():
    words = ["soup", "--runs", "a", "b", "--out=c"]
    options = vars(prepare.parser({"soup"}).parse_args(words))
    expected = {
        "runs": ["a", "b"],
        "out": "c",
        "kind": "uniform",
        "step": "best",
        "statistics": "recompute",
        "batches": 100,
        "any_init": False,
    }
    assert {name: options[name] for name in expected} == expected
    with pytest.raises(SystemExit):
        prepare.parser({"soup"}).parse_args([*words, "--batches=0"])


@pytest.mark.parametrize("name", ["file", "folder"])
def test_a_path_that_is_not_new_is_refused_and_nothing_is_read(name, tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file", tmp_path / "folder" / "content"):
        path.write_text("kept")
    words = ["soup", f"--runs={tmp_path / 'gone'}", f"--out={tmp_path / name}"]
    with pytest.raises(ValueError, match="--out: must be new"):
        soup.run(prepare.parser({"soup"}).parse_args(words))


def test_trials_are_printed_in_their_order_with_the_accuracies_that_decided():
    trials = [
        soup.Trial(member(1), 0.987654, accuracy_with=0.9, accuracy_without=None),
        soup.Trial(member(2), 0.7, accuracy_with=0.8, accuracy_without=0.9),
        soup.Trial(member(0), 0.5, accuracy_with=0.9, accuracy_without=0.9),
    ]
    name = "erm-shapes-1-seed"
    assert soup.describe_trials(trials) == [
        f"1. {name}1: validation accuracy 98.77 %; soup with it 90.00 %: first in the soup",
        f"2. {name}2: validation accuracy 70.00 %; soup with it 80.00 %, without it 90.00 %: left out",
        f"3. {name}0: validation accuracy 50.00 %; soup with it 90.00 %, without it 90.00 %: joins the soup",
        "validation accuracy of the soup: 90.00 %",
    ]


def write_soup(folder, entries):
    """Write a network of the shapes' classes as a folder of models.save_run."""
    classes = class_names.Classes(data.load("shapes", "test", n=16).classes, "names")
    net = models.MODELS["cnn"](len(classes.names), width=2)
    variables = net.init(jax.random.key(0), np.zeros((1, 48, 48, 3), np.float32))
    models.save_run(folder, net, variables, classes, size=48, entries=entries)


ENTRIES = {
    "train": {"data": "shapes"},
    "soup": {"kind": "uniform", "statistics": "average", "members": ["a", "b"]},
}


def test_a_soup_is_measured_on_the_images_of_its_runs_and_reported_as_one_network(
    tmp_path, capsys
):
    """The command needs no folder of images; the set and the size are those of the runs."""
    write_soup(tmp_path / "soup", ENTRIES)
    out = tmp_path / "measured"
    words = [str(tmp_path / "soup"), "--only=accuracy", "--images=8", f"--out={out}"]
    assert measuring_cli.main(words) == 0
    assert "images: 48 pixels (the run)" in capsys.readouterr().err
    config = json.loads((out / "soup/config.json").read_text())
    assert config["train"] == ENTRIES["train"] and config["soup"] == ENTRIES["soup"]
    report = tmp_path / "report"
    assert measured.main([f"--measured={out}/*", f"--out={report}"]) == 0
    notes = json.loads((report / "results.json").read_text())["missing"]
    assert any("soup is a soup, the mean of the weights of 2 seeds" in x for x in notes)
    assert any("It is one network" in x for x in notes)


def test_training_data_given_by_the_caller_replace_those_of_a_soup(tmp_path):
    write_soup(tmp_path / "soup", ENTRIES)
    network = networks.from_file(str(tmp_path / "soup"))
    assert network.fields["train_data"] == "shapes" and network.about["size"] == 48
    network = networks.from_file(str(tmp_path / "soup"), about={"train_data": "pacs"})
    assert network.fields["train_data"] == "pacs"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"train": {"data": 3}}, "train.data: must be text"),
        ({"train": []}, "with train.data"),
        ({"soup": {"members": "ab"}}, "soup.members: must be"),
    ],
)
def test_damaged_entries_of_a_soup_are_refused(entries, message, tmp_path):
    write_soup(tmp_path / "soup", entries)
    with pytest.raises(ValueError, match=message):
        trained.read_entries(tmp_path / "soup")


def test_a_report_of_a_soup_names_the_commands_that_compare_it(tmp_path):
    write_soup(tmp_path / "soup", ENTRIES)
    with pytest.raises(ValueError, match=r"evals/\*\.jsonl") as error:
        results.find_workdirs(tmp_path / "soup")
    for words in ("jbias evaluate --checkpoint=", "jbias report measured", "a soup"):
        assert words in str(error.value)
    _, empty = results.find_workdirs(f"{tmp_path}/*")
    (note,) = inputs._notes(
        empty, (), pd.DataFrame({"dataset": [], "run": [], "stage": []})
    )
    assert "soup is one network" in note and "jbias report measured" in note


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(net=models.MODELS["cnn"](5, width=3)), "the models must be equal"),
        (dict(classes=tuple("vwxyz")), "the classes must be equal"),
        (dict(), r"have two seeds or more, got 1; train more .*--config\.seeds.*runs"),
    ],
)
def test_networks_that_have_no_mean_are_refused(change, message):
    first = member(0, init=0)
    members = [first, dataclasses.replace(member(1, init=0), **change)]
    with pytest.raises(ValueError, match=message):
        soup.check_members(members if change else [first], any_init=True)


@pytest.mark.slow
def test_the_command_writes_soups_that_runs_start_from(tmp_path):
    """Validation accuracies are those of the runs; a greedy soup is at least as accurate."""
    config = smoke_runs.small(epochs=2.0, seeds=(0, 1, 2))
    with config.unlocked():
        del config.model
        config.model = dict(name="cnn", width=4)
        config.fix.init = 0
    workdir = tmp_path / "run"
    train.run(config, workdir)
    members = [*networks.from_run(str(workdir), step="latest")]
    accuracy = soup._make_validator(members)
    records = results.read(workdir)
    records = records[
        (records["dataset"] == "valid") & (records["metric"] == "accuracy")
    ]
    last = records[records["step"] == records["step"].max()].sort_values("seed")
    accuracies = [accuracy(network.variables) for network in members]
    np.testing.assert_allclose(accuracies, last["value"])

    def cook(kind, statistics):
        """Write a soup; return its variables."""
        out = tmp_path / f"{kind}-{statistics}"
        words = ["soup", f"--runs={workdir}", f"--out={out}", f"--kind={kind}"]
        words += [f"--statistics={statistics}", "--step=latest", "--batches=2"]
        assert prepare.main(words) == 0
        entries = trained.read_entries(out)
        assert entries["train_data"] == "shapes" and entries["size"] == config.size
        assert entries["soup"]["kind"] == kind
        assert len(entries["soup"]["members"]) == 3 or kind == "greedy"
        return models.load(out)[1]

    soups = {
        (kind, statistics): cook(kind, statistics)
        for kind, statistics in itertools.product(soup.KINDS, ("average", "recompute"))
    }
    expected = soup.mean_of([network.variables for network in members])
    assert_equal(jax.device_get(soups["uniform", "average"]), expected)
    recomputed = jax.device_get(soups["uniform", "recompute"])
    assert_equal(recomputed["params"], expected["params"])
    differs = jax.tree.map(
        lambda a, b: (a != b).any(), recomputed["stats"], expected["stats"]
    )
    assert all(jax.tree.leaves(differs))
    assert accuracy(soups["greedy", "recompute"]) >= max(accuracies)
    assert accuracy(soups["greedy", "average"]) >= max(accuracies)
    with config.unlocked():
        config.init = str(tmp_path / "uniform-average")
        config.optim.rate, config.optim.decay = 1e-30, 0.0
    assert train.run(config, tmp_path / "next")
    _, variables = models.load(tmp_path / "next", seed=1)
    assert_equal(jax.device_get(variables["params"]), expected["params"])
