"""Data sets in files without a preset of their own: `data=NAME,root=DIR` trains them."""

import types

import pytest

from jbias import config as jc
from jbias import data, run_spec, train
from jbias.configs import datasets, erm
from jbias.data import config_sets, tables
from jbias.data.sets import kinds
from jbias.runs import results
from tests import cases


@pytest.fixture
def office_home(tree):
    """Root of a small copy of Office-Home, in the authors' folders: 65 classes, 3 domains."""
    domains = {"Art": 5, "Clipart": 1, "Real World": 1}
    folders = {
        f"{domain}/{name}": n
        for domain, n in domains.items()
        for name in tables.class_names("office_home")
    }
    return tree(folders)


def test_the_splits_are_those_that_the_user_named(office_home):
    text = f"data=office_home,root={office_home},train=art,tests=clipart+real_world"
    config = erm.get_config(text)
    assert config.size == 224
    entries = {"train": config.train, "valid": config.valid, **config.tests}
    sources = {
        name: config_sets.open_source(
            name,
            {k: entry[k] for k in ("data", "split", "root")},
            config.size,
        )
        for name, entry in entries.items()
    }
    assert [*sources] == ["train", "valid", "clipart", "real_world"]
    assert [len(source) for source in sources.values()] == [260, 65, 65, 65]
    for source in sources.values():
        assert source.classes == tables.class_names("office_home")
        assert source.shape == (224, 224)
    assert not {*sources["train"].files} & {*sources["valid"].files}


@pytest.mark.slow
def test_a_run_trains_and_is_tested_on_the_named_splits(office_home, tmp_path):
    text = f"data=office_home,root={office_home},train=art,tests=clipart"
    config = erm.get_config(f"{text},smoke,seeds=1,size=32,model=cnn")
    assert train.run(config, tmp_path / "run")
    assert {*results.read([tmp_path / "run"])["dataset"]} == {
        "train",
        "valid",
        "clipart",
    }


NEW = kinds.FileSet(
    name="new",
    read="jbias.data.sets.folder:read",
    pixels=48,
    cite="nobody",
    licence="none",
    about="images in folders",
    splits=("train", "valid", "test"),
)


def test_a_new_set_with_the_usual_splits_needs_only_its_root(monkeypatch):
    monkeypatch.setattr(data, "DATASETS", types.MappingProxyType({"new": NEW}))
    config = erm.get_config("data=new,root=DIR")
    entries = (config.train, config.valid, config.tests.test)
    assert [entry.split for entry in entries] == ["train", "valid", "test"]
    assert {entry.data for entry in entries} == {"new"}
    assert {entry.root for entry in entries} == {"DIR"}
    assert config.size == 48


@cases.each(
    ("text", "message"),
    [
        ("data=office_home", "data=office_home needs root=<directory>"),
        (
            "data=office_home,root=DIR",
            (
                "data=office_home needs train=<split> and tests=<split>+<split>, of art,"
                " clipart, product, real_world"
            ),
        ),
        (
            "data=office_home,root=DIR,train=art",
            (
                "data=office_home needs tests=<split>+<split>, of art, clipart, product,"
                " real_world"
            ),
        ),
        (
            "data=imagenet_c,root=DIR,tests=fog/3",
            "data=imagenet_c needs train=<split>, of gaussian_noise/1, ",
        ),
        (
            "data=office_home,root=DIR,train=Art",
            "unknown split 'Art'; did you mean 'art'? Known: art, clipart, ",
        ),
        (
            "data=office_home,root=DIR,train=art,tests=clipart+realworld[:50%]",
            "unknown split 'realworld'; did you mean 'real_world'?",
        ),
        ("data=office_home,root=DIR,style=art", "'style' is not used with data=office"),
        ("data=imagenet_real,root=DIR", "data=imagenet_real has no preset; name it in"),
        ("data=fractals", "data=fractals has no preset; name it in a config of your"),
        ("data=ofice_home", "unknown data 'ofice_home'; did you mean 'office_home'?"),
    ],
)
def test_what_is_missing_is_named(text, message):
    with pytest.raises(ValueError) as error:
        erm.get_config(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_shift_replaces_the_tests():
    config = erm.get_config("data=office_home,root=DIR,train=art,shift=C6")
    assert [*config.tests] == ["id", "ood"]
    assert config.train.split == "art"


@cases.each("name", data.DATASETS)
def test_every_set_has_a_preset_or_is_refused_in_one_line(name):
    try:
        preset = datasets.find(name)
    except ValueError as error:
        assert str(error).startswith(f"config argument: data={name} has no preset")
        assert name in ("fractals", "anagrams", "cues", "imagenet_real")
    else:
        assert preset.arguments.keys() <= datasets.ARGUMENTS.keys()


def test_presets_agree_on_the_defaults_of_arguments():
    for preset in (*datasets.PRESETS.values(), datasets.GENERAL):
        for name, default in preset.arguments.items():
            assert datasets.ARGUMENTS[name] == default
            assert type(datasets.ARGUMENTS[name]) is type(default)


NAMED_SETS = [
    name
    for name, data_set in data.DATASETS.items()
    if data_set.splits and name not in ("fractals", "anagrams", "cues", "imagenet_real")
]


@cases.each("name", NAMED_SETS)
def test_every_split_can_be_a_test_of_the_general_preset(name):
    splits = set(data.DATASETS[name].splits) - {"train", "valid"}
    if datasets.find(name) is not datasets.GENERAL:
        return
    arguments = f"train={min(splits)},tests={'+'.join(splits)}"
    config = jc.load(f"jbias:erm:data={name},root=DIR,{arguments}", flag="config")
    spec = run_spec.RunSpec.from_config(config)
    assert {test["split"] for test in spec.config["tests"].values()} == splits
