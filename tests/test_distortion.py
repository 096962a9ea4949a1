"""The suite of what distortion does: what it asks for, of which sets, and what it refuses."""

import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs.suites import distortion
from jbias import (
    checkpoint_paths,
    data,
    evaluate,
    measuring,
    models,
    results,
    subjects,
    suite,
    suite_measure,
    survey,
)
from jbias.evals import decisions, interference, probes

ASKED = [
    "",
    "smoke",
    "other=cifar10,other_root=a",
    *(
        f"data={name},root=a"
        for name in ("cifar10", "cifar100", "mnist", "fashion_mnist")
    ),
    "data=cifar10,root=a,other=cifar100,other_root=b,images=100",
    "data=tiny_imagenet,root=a,stimuli=b",
    "data=imagenet,root=a,subset,other=tiny_imagenet,other_root=b,stimuli=c",
    "data=stacked,root=a,digits=b",
]


@pytest.mark.parametrize("text", ASKED)
def test_measures_are_of_sets_that_are_there_and_options_that_are_taken(text):
    c = distortion.get_config(text)
    for name, options in c.measures.items():
        one = suite_measure.read(name, options.to_dict(), c.sets)
        make = probes.PROBES[one.probe]
        assert {*one.options} <= {*inspect.signature(make).parameters}
        assert one.datasets and "other" not in one.datasets
        uses = "other" in (*one.options.get("fills", ()), one.options.get("fill"))
        assert (one.others == "other") == uses


def test_the_published_protocol():
    c = distortion.get_config("data=cifar10,root=a,other=cifar100,other_root=b")
    m = c.measures
    assert c.run.step == "latest" and m.grid_shuffle.grids == (2, 4, 8)
    assert (m.cut_occlusion.area, m.cut_occlusion.placement) == ("beta", "unrestricted")
    assert m.cut_occlusion.fills == ("black", "mean", "other")
    assert m.cut_occlusion_uniform.area == "uniform"
    one = m.cut_occlusion_other
    assert (one.area, one.placement, one.fills) == (0.3, "restricted", ("other",))
    assert m.occlusion.fractions == tuple(np.round(np.arange(1, 10) / 10, 1))
    assert m.occlusion.sets == m.occlusion_other.sets == ("test", "train")
    assert (m.mixing_train.crop, m.mixing_train.mirror) == (4, True)
    assert "crop" not in m.mixing and m.mixing.sets == ("test",)
    assert c.sets.train.split == "train[:98%]"
    tiny = distortion.get_config("data=tiny_imagenet,root=a,stimuli=b,train=train")
    assert tiny.measures.mixing_train.crop == 0 and tiny.sets.train.split == "train"
    assert tiny.measures.shape_bias.sets == ("cue-conflict",)
    less = distortion.get_config("data=cifar100,root=a,small,drop=cup,keep=b.npy")
    assert less.sets.train.split == "train[:10%]" and less.sets.train.keep == "b.npy"
    assert less.sets.test.drop == less.sets.train.drop == "cup"
    assert "keep" not in less.sets.test
    stacked = distortion.get_config("data=stacked,root=a,digits=b")
    assert stacked.measures.accuracy.sets == ("stacked_cifar", "stacked_mnist")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data=cifar", "unknown data 'cifar'.*cifar10"),
        ("data=cifar10", "data=cifar10 needs root="),
        ("data=stacked,root=a", "needs digits="),
        (
            "data=stacked,root=a,digits=b,other=cifar10",
            "'other' has no say with data=stacked",
        ),
        (
            "data=cifar10,root=a,stimuli=b",
            "it has with data=tiny_imagenet or data=imag",
        ),
        ("small", "'small' has no say with data=shapes; it has with data=cifar10 or"),
        ("root=a", "'root' has no say with data=shapes"),
        (
            "data=mnist,root=a,subset",
            "'subset' has no say.* it has with data=imagenet$",
        ),
        ("data=mnist,root=a,correlation=0.5", "'correlation' has no say"),
        ("data=mnist,root=a,other_root=b", "no say without other"),
    ],
)
def test_what_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        distortion.get_config(text)


def test_sets_of_other_images_are_opened_without_any_data():
    """All of the embedded suite, and options that its probes take."""
    opened = suite.open(distortion.get_config("smoke"), lambda line: None)
    assert not opened.missing and set(opened.sources) == {"test", "train", "other"}


def test_runs_are_checkpoints_and_the_suite_says_their_step(monkeypatch):
    parse = evaluate.parser().parse_args
    args = parse(["--runs=a", "--checkpoint=b"])
    assert args.checkpoint == ["a", "b"] and not args.step
    asked, given = [], ("--runs=a", "--only=accuracy", "--out=measured")
    monkeypatch.setattr(checkpoint_paths, "is_trained", lambda path: True)
    monkeypatch.setattr(
        subjects, "from_run", lambda path, *, step: asked.append(step) or []
    )
    monkeypatch.setattr(checkpoint_paths, "find", lambda paths: paths)
    for step, said in (("", "latest"), ("best", "best"), ("12", "12")):
        measuring.run(parse([*given, f"--step={step}", SUITE]), [])
        assert asked.pop() == said
    measuring.run(
        parse([*given, SUITE.replace("distortion", "biases")]),
        [],
    )
    assert asked == ["best"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({}, ""),
        ({"root": "elsewhere", "batch": 1}, ""),
        ({"split": "train[:10%]"}, "split 'train[:10%]', shown 'train[:98%]'"),
        ({"drop": "truck"}, "drop 'truck', shown ''"),
        ({"keep": "mine.txt"}, "keep 'mine.txt', shown ''"),
        ({"data": "cifar100"}, "data 'cifar100', shown 'cifar10'"),
        (None, ""),  # A file: nobody knows.
    ],
)
def test_other_training_images_than_a_run_had_are_told(own, said):
    sets = distortion.get_config("data=cifar10,root=a").sets.to_dict()
    asked = types.SimpleNamespace(config={"sets": sets})
    about = {} if own is None else {"config": {"train": {**sets["train"], **own}}}
    line = survey._otherwise(types.SimpleNamespace(name="net", about=about), asked)
    assert line == (f"trained on {said}" if said else "")


SUITE = "--suite=configs/suites/distortion.py:smoke"


@pytest.mark.slow  # Half a minute of compiling.
def test_all_of_it_on_the_embedded_set(tmp_path):
    """Each measure has its numbers, which are functions of the decisions kept."""
    net = models.MODELS["preact_resnet18"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_run(tmp_path / "saved", net, variables)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(data.load("shapes", "test", n=48).classes))
    args = [f"--checkpoint={tmp_path / 'saved'}", f"--classes={names}", SUITE]
    assert evaluate.main([*args, f"--out={tmp_path / 'out'}"]) == 0
    (folder,) = (tmp_path / "out").iterdir()
    found = results.read(folder)
    found = found.set_index(["dataset", "condition", "metric"])["value"]
    for name, options in distortion.get_config("smoke").measures.items():
        for dataset in options.sets:
            kept = folder / f"decisions/{dataset}/{name}.parquet"
            by = decisions.read_conditions(kept)
            for condition in set(by) - {""} if name.startswith(INTERFERING) else ():
                one = interference.of_runs([by[""]], [by[condition]], classes=16)
                told = found[dataset, f"{name}/{condition}", "di_index"]
                assert told == one.mean
            shown = found[dataset, "" if name == "accuracy" else name, "accuracy"]
            assert shown == (by[""].prediction == by[""].columns["label"]).mean()
    most = found["train", "occlusion/grad_cam most 0.3", "accuracy"]
    assert 0 <= most <= 1


INTERFERING = ("grid", "cut", "occlusion")
