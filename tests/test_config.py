import os
import sys

import ml_collections
import pytest

from jbias import config as jc
from tests import cases


def test_entries_are_flat_by_dotted_keys():
    tree = {"a": {"b": 1, "c": {"d": [2]}}, "e": {}, "f": None}
    assert jc.flatten(tree) == {"a.b": 1, "a.c.d": [2], "e": {}, "f": None}


def test_argument_takes_the_types_of_the_defaults():
    arg = jc.parse_arg("seeds=5,model=resnet50,smoke,rate=1e-2", seeds=3, model="a",
                       smoke=False, rate=0.1)  # fmt: skip
    assert (arg.seeds, arg.model, arg.smoke, arg.rate) == (5, "resnet50", True, 0.01)


@pytest.mark.parametrize("text", ["", None])
def test_no_argument_leaves_the_defaults(text):
    assert jc.parse_arg(text, seeds=3).seeds == 3


def test_unknown_argument_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="unknown 'seed'; did you mean 'seeds'"):
        jc.parse_arg("seed=3", seeds=3, model="resnet18")


@cases.each(
    ("text", "message"),
    [
        ("seeds=three", "seeds must be a whole number, got 'three'"),
        ("seeds", "seeds must be a whole number, got nothing"),
        ("rate=fast", "rate must be a number, got 'fast'"),
        (
            "smoke=yes",
            "smoke must be true or false, got 'yes'; write smoke or smoke=false",
        ),
    ],
)
def test_value_of_another_type_is_refused(text, message):
    with pytest.raises(ValueError, match=f"^suite argument: {message}$"):
        jc.parse_arg(text, "suite argument", seeds=3, smoke=False, rate=0.1)


@cases.each(
    ("duration", "expected"),
    [
        ("500 steps", 500),
        ("1 step", 1),
        ("1 epoch", 64),
        ("2.5 epochs", 160),
        ("10 %", 32),
        ("50percent", 160),
        ("0.001 epochs", 1),
    ],
)
def test_durations_are_steps(duration, expected):
    assert jc.to_steps(duration, steps_per_epoch=64, total=320) == expected


@cases.each("duration", ["", "5", "five epochs", "1 day", "-1 steps", "1e999 steps", 3])
def test_other_durations_are_refused(duration):
    with pytest.raises(ValueError, match="duration: must be"):
        jc.to_steps(duration, steps_per_epoch=64, total=320)


def config(**changes) -> ml_collections.ConfigDict:
    entries = {
        "algo": {"name": "erm"},
        "train": {"data": "shapes"},
        "seeds": (0, 1),
        "run": {"workers": 1},
    }
    return ml_collections.ConfigDict({**entries, **changes})


def test_identity_is_all_but_run_and_label():
    assert jc.digest(config()) == jc.digest(config(run={"workers": 8}, label="mine"))
    assert jc.digest(config()) != jc.digest(config(seeds=(0, 2)))


def test_identity_does_not_depend_on_the_folder_of_the_data():
    first = config(train={"data": "pacs", "root": "/here"})
    assert jc.digest(first) == jc.digest(config(train={"data": "pacs", "root": "/x"}))
    assert jc.diff(first, config(train={"data": "pacs", "root": "/x"})) == []


def test_a_test_set_named_root_is_part_of_the_identity():
    def tests(split, place):
        options = {"data": "pacs", "split": split, "root": place}
        return config(tests={"root": options})

    assert jc.digest(tests("photo", "/a")) != jc.digest(tests("sketch", "/a"))
    assert jc.digest(tests("photo", "/a")) == jc.digest(tests("photo", "/b"))
    changed = ["tests.root.split: 'photo' != 'sketch'"]
    assert jc.diff(tests("photo", "/a"), tests("sketch", "/b")) == changed


def test_an_option_root_that_is_a_number_is_part_of_the_identity():
    algorithms = [config(algo={"name": "mine.py:make", "root": n}) for n in (2, 3)]
    assert jc.digest(algorithms[0]) != jc.digest(algorithms[1])


def test_identity_survives_json():
    """A config read from config.json is the same run as the original config."""
    assert jc.digest(jc.to_dict(config())) == jc.digest(config())
    assert jc.diff(jc.to_dict(config()), config()) == []


def test_differences_name_the_keys():
    other = config(seeds=(0, 1, 2), algo={"name": "erm", "p": 0.1})
    assert jc.diff(config(), other) == [
        "algo.p: absent != 0.1",
        "seeds: [0, 1] != [0, 1, 2]",
    ]


def test_run_name_holds_algorithm_data_and_digest():
    name = jc.run_name(config())
    assert name == f"erm-shapes-{jc.digest(config())}"


def test_run_name_of_a_users_own_algorithm_is_a_file_name():
    user_config = config(algo={"name": "some/where/mine.py:make"})
    assert jc.run_name(user_config).startswith("mine-shapes-")


def test_stages_inherit_entries_that_they_do_not_set():
    stages = jc.stage_configs({"algo": 1, "epochs": 5, "stages": [{}, {"epochs": 2}]})
    assert [stage["epochs"] for stage in stages] == [5, 2]
    assert [stage["algo"] for stage in stages] == [1, 1]


def test_stage_with_an_unknown_key_is_refused():
    with pytest.raises(ValueError, match=r"stages\[0\]: unknown key 'epoch'"):
        jc.stage_configs({"stages": [{"epoch": 2}]})


def test_an_edited_file_is_not_run_from_stale_bytecode(tmp_path, monkeypatch):
    """Python itself would use stale bytecode if the file has the same second and size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for value in (1, 2):
        path.write_text(f"VALUE = {value}\n")
        os.utime(path, (0, 0))
        assert jc.import_file("mine", str(path)).VALUE == value
