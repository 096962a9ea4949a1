"""Entries of a config: there, known, and of the kind that they must be."""

import copy

import pytest

from jbias import build, errors, run_spec
from jbias import config as jc
from jbias.configs import padain
from tests import cases


def whole() -> dict:
    return jc.to_dict(padain.get_config("smoke,seeds=1"))


def test_a_config_of_ours_passes():
    run_spec.check_entries(whole())


@cases.each(
    ("key", "value", "match"),
    [
        ("epochs", None, r"config\.epochs: must be a number, got None"),
        ("epochs", float("nan"), r"config\.epochs: must be a finite number"),
        ("size", 10**30, r"config\.size: must be a number of 64 bits"),
        ("seeds", True, r"config\.seeds: must be a list, got True"),
        ("inputs", [1], r"config\.inputs: must be a list, got \[1\]"),
        ("variant", "a\nb", r"config\.variant: must be text on one line"),
        ("variant", "\x1b[2J", r"config\.variant: must be text on one line"),
        ("algo", 1e-300, r"config\.algo: must be entries"),
        ("algo.name", ["x"], r"config\.algo\.name: must be text"),
        ("optim.schedule.name", 3, r"config\.optim\.schedule\.name: must be text"),
        ("train.batch", 2.5, r"config\.train\.batch: must be a whole number"),
        ("run", "x", r"config\.run: must be entries"),
        ("run.profile", 1, r"config\.run\.profile: must be True or False"),
        ("run.loading", {}, r"config\.run\.loading: 'gib' is missing"),
        ("run.loading.prefetch", 2, r"config\.run\.loading: unknown 'prefetch'"),
        ("tests", {"a": 1}, r"config\.tests\.a: must be entries"),
        ("stages", [{"algo": {}}], r"config\.stages\[0\]\.algo: 'name' is missing"),
        ("stages", [{"epochs": "1"}], r"config\.stages\[0\]\.epochs: must be a number"),
    ],
)
def test_entries_of_a_wrong_type_are_refused_by_key(key, value, match):
    config = whole()
    *parents, last = key.split(".")
    inner = config
    for name in parents:
        inner = inner[name]
    inner[last] = value
    with pytest.raises(ValueError, match=match):
        run_spec.check_entries(config)


@cases.each(
    ("entries", "match"),
    [
        ({"crop": "hots"}, "crop: must be host, device, True or False, got 'hots'"),
        ({"window": 32}, "window: needs crop='device', got crop=None; remove window"),
        ({"crop": "host", "canvas": 9}, "canvas: needs crop='device', got crop='host'"),
        (
            {"pair": "class"},
            "pair: belongs to the second set; move it to .*train.other",
        ),
        ({"other": {"balance": "x"}}, "other.balance: labels of a second set are not"),
        ({"other": {"pair": "label"}}, "other.pair: must be 'class', got 'label'"),
        (
            {"other": {"crop": "hots"}},
            "other.crop: must be host, device, True or False",
        ),
    ],
)
def test_options_of_the_training_sets_are_refused_without_data(entries, match):
    config = whole()
    config["train"] |= entries
    with pytest.raises(ValueError, match=rf"^config\.train\.{match}"):
        run_spec.RunSpec.from_config(config)


def test_a_test_set_has_data_and_a_split():
    config = whole() | {"tests": {"edge": {"data": "shapes"}}}
    with pytest.raises(ValueError, match="^config.tests.edge: 'split' is missing$"):
        run_spec.RunSpec.from_config(config)


@cases.each(
    ("key", "value", "match"),
    [
        ("precision", "half", "must be one of auto, float32, bfloat16, got 'half'"),
        ("run.evaluate", "there", "must be here or elsewhere, got 'there'"),
        ("run.eval_norm", "no", "must be one of auto, exact, folded, got 'no'"),
        ("run.log", "xml", "must be one of text, json, got 'xml'"),
        ("run.strategy", "magic", "must be one of auto, unrolled, .*, got 'magic'"),
        ("run.keep", 1, "must be 2 or more, got 1"),
        ("optim.rate", 0, "must be positive, got 0"),
    ],
)
def test_the_schema_refuses_unknown_choices_and_numbers_out_of_range(key, value, match):
    """No data set, network or device is needed; entries of the whole config have no stage."""
    config = {**whole(), "stages": [{}, {"epochs": 1}]}
    *parents, last = key.split(".")
    inner = config
    for name in parents:
        inner = inner[name]
    inner[last] = value
    place = r"config\.stages\[0\]" if key.startswith("optim.") else "config"
    with pytest.raises(ValueError, match=rf"^{place}\.{key}: {match}"):
        run_spec.RunSpec.from_config(config)


def test_values_without_json_are_refused():
    with pytest.raises(ValueError, match="config.variant: must be text, a number, "):
        jc.to_dict({**whole(), "variant": {1, 2}})


def make(net, *, p: float = 0.1, name: str | None = None, sides: tuple[int, ...] = ()):
    return net, p, name, sides


@cases.each(
    ("options", "match"),
    [
        (dict(p="x"), r"here\.p: must be a number, got 'x'"),
        (dict(p=True), r"here\.p: must be a number, got True"),
        (dict(name=1), r"here\.name: must be text or None, got 1"),
        (dict(sides=[1, "x"]), r"here\.sides: must be a list"),
        (dict(sides=3), r"here\.sides: must be a list, got 3"),
    ],
)
def test_options_are_of_the_kinds_that_a_function_says(options, match):
    with pytest.raises(ValueError, match=match):
        build.call_checked("here", make, "net", **options)


def test_options_of_valid_types_are_accepted():
    options = dict(p=1, name=None, sides=[1, 2])
    copied = copy.deepcopy(options)
    assert build.call_checked("here", make, "net", **options) == (
        "net",
        1,
        None,
        [1, 2],
    )
    assert options == copied
    errors.check_annotations("here", make, {"p": object()})  # A number that is traced.


NAMES = ["", "..", "a/b", "/outside/x", "a\\b", "n" * 151, "é" * 80]


@cases.each("name", NAMES)
def test_a_name_of_which_no_folder_can_be_is_refused(name):
    config = padain.get_config("smoke,seeds=1")
    config = jc.to_dict(config)
    config["tests"] = {name: config["valid"]}
    with pytest.raises(ValueError, match="config.tests: a name: must be a plain name"):
        run_spec.RunSpec.from_config(config)


@cases.each("name", ["edge", "Cue conflict (16)", "été", "v1.5", "n" * 150])
def test_a_name_of_a_folder_is_taken(name):
    errors.check_folder_name("config.tests", name)


@cases.each(
    ("key", "value"),
    [
        ("epochs", 1e300),
        ("run.keep", -1),
        ("run.keep", 1),
        ("run.log_seconds", -1.0),
        ("run.loading.gib", -1.0),
        ("run.loading.threads", -1),
    ],
)
def test_numbers_out_of_range_are_refused_before_anything_is_made(key, value):
    config = jc.to_dict(padain.get_config("smoke,seeds=1"))
    part = config
    *parents, last = key.split(".")
    for parent in parents:
        part = part[parent]
    part[last] = value
    with pytest.raises(ValueError, match=f"config.{key}: must be"):
        run_spec.RunSpec.from_config(config)


def test_a_spec_with_another_option_of_the_run_has_it_in_its_branches():
    vary = [{"key": "optim.rate", "values": [0.1, 0.2]}]
    spec = run_spec.RunSpec.from_config({**whole(), "vary": vary})
    changed = spec.with_run(profile=True)
    assert changed.run.profile and not spec.run.profile
    assert [branch.config["run"]["profile"] for branch in changed.branches] == [
        True
    ] * 2
    assert [member.branch for member in changed.members] == [*changed.branches]
    assert changed.name == spec.name
    assert run_spec.RunSpec.from_config(changed.config).run == changed.run
