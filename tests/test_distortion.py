"""The suite of what distortion does: what it asks for, of which sets, and what it refuses."""

import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import data, evaluate, models
from jbias.configs.suites import distortion
from jbias.evals import decisions, networks, probe_registry, runner, suites
from jbias.runs import results
from tests import cases

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


@cases.each("text", ASKED)
def test_measures_are_of_sets_that_are_there_and_options_that_are_taken(text):
    c = distortion.get_config(text)
    for name, options in c.measures.items():
        one = suites.read_measure(name, options.to_dict(), c.sets)
        make = probe_registry.PROBES[one.probe]
        assert {*one.options} <= {*inspect.signature(make).parameters}
        assert one.datasets and "other" not in one.datasets
        hides = one.probe in ("cut_occlusion", "occlusion")
        assert (one.others == "other") == (hides and "other" in c.sets)


TWO = "other=cifar100,other_root=b"


def measures(text: str) -> dict:
    return distortion.get_config(text).measures.to_dict()


@cases.each(
    ("measure", "expected"),
    [
        ("grid_shuffle", dict(grids=(2, 4, 8), sets=("test",))),
        # Beta(2, 1) anywhere; other fills on the same boxes.
        (
            "cut_occlusion",
            dict(
                area="beta",
                placement="unrestricted",
                fills=("black", "mean", "other"),
                sets=("test",),
            ),
        ),
        # The appendix: any area as likely, inside the image.
        ("cut_occlusion_uniform", dict(area="uniform", placement="restricted")),
        # Table 4: 30 % by another data set's images, inside.
        (
            "cut_occlusion_other",
            dict(area=0.3, placement="restricted", fills=("other",), sets=("test",)),
        ),
        (
            "occlusion_other",
            dict(
                fractions=(0.3,),
                orders=("most",),
                fill="other",
                site="stage3",
                sets=("test", "train"),
            ),
        ),
        (
            "occlusion",
            dict(
                fractions=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
                fill="black",
                sets=("test", "train"),
            ),
        ),
        ("mixing", dict(sets=("test",), images=0)),
        ("mixing_train", dict(sets=("train",), crop=4, mirror=True)),
    ],
)
def test_measures_are_those_of_the_paper(measure, expected):
    found = measures(f"data=cifar10,root=a,{TWO}")[measure]
    assert {key: found[key] for key in expected} == expected
    if measure == "mixing":
        assert "crop" not in found and "mirror" not in found


@cases.each(
    ("data", "colour"),
    [
        ("cifar10", (0.4914, 0.4822, 0.4465)),
        ("cifar100", (0.4914, 0.4822, 0.4465)),
        ("mnist", (0.1307,) * 3),
        ("fashion_mnist", (0.1307,) * 3),
        ("tiny_imagenet", (0.485, 0.456, 0.406)),
        ("imagenet", (0.485, 0.456, 0.406)),
    ],
)
def test_the_mean_colour_is_the_set_s_wherever_something_is_hidden(data, colour):
    hiding = [
        one
        for name, one in measures(f"data={data},root=a,{TWO}").items()
        if "occlusion" in name
    ]
    assert len(hiding) == 5 and all(one["mean"] == colour for one in hiding)


@cases.each(
    ("text", "where", "expected"),
    [
        ("data=cifar10,root=a", "train", dict(split="train[:98%]")),
        ("data=cifar10,root=a,train=train", "train", dict(split="train")),
        ("data=cifar10,root=a,small", "train", dict(split="train[:10%]")),
        ("data=cifar10,root=a,small", "test", dict(split="test")),
        ("data=cifar10,root=a,drop=truck", "train", dict(drop="truck")),
        ("data=cifar10,root=a,drop=truck", "test", dict(drop="truck")),
        ("data=cifar10,root=a,keep=b.npy", "train", dict(keep="b.npy")),
        ("data=cifar10,root=a,keep=b.npy", "test", dict(keep=None)),
        # Of 28 pixels beside 32: 2 more on each side.
        ("data=cifar10,root=a,other=mnist,other_root=b", "other", dict(pad=2)),
        ("data=cifar10,root=a,other=fashion_mnist,other_root=b", "other", dict(pad=2)),
        (f"data=cifar10,root=a,{TWO}", "other", dict(pad=None, split="train")),
        (
            "data=fashion_mnist,root=a,other=mnist,other_root=b",
            "other",
            dict(pad=None),
        ),
        ("data=fashion_mnist,root=a,size=32", "test", dict(pad=2)),
        ("data=fashion_mnist,root=a,size=32", "train", dict(pad=2)),
        ("data=fashion_mnist,root=a", "test", dict(pad=None)),
        # Table 2: enlarged to 256 pixels, and of these the middle 224.
        ("data=imagenet,root=a,stimuli=b", "cue-conflict", dict(resize=256)),
        ("data=imagenet,root=a,stimuli=b,size=64", "edge", dict(resize=None)),
        ("data=tiny_imagenet,root=a,stimuli=b", "cue-conflict", dict(resize=None)),
    ],
)
def test_sets_are_what_the_networks_saw(text, where, expected):
    found = distortion.get_config(text).sets[where]
    assert {key: found.get(key) for key in expected} == expected


def test_of_a_million_training_images_fifty_thousand_are_shown():
    full = measures("data=imagenet,root=a")
    assert {one["images"] for one in full.values()} == {50_000}
    assert measures("data=imagenet,root=a,images=9")["occlusion"]["images"] == 9
    assert measures("data=cifar10,root=a")["occlusion"]["images"] == 0


def test_what_else_differs_by_data():
    assert distortion.get_config().run.step == "latest"
    tiny = measures("data=tiny_imagenet,root=a,stimuli=b")
    assert tiny["mixing_train"]["crop"] == 0 and tiny["mixing_train"]["mirror"]
    assert tiny["shape_bias"]["sets"] == ("cue-conflict",)
    stacked = measures("data=stacked,root=a,digits=b")
    assert list(stacked) == ["accuracy"]
    assert stacked["accuracy"]["sets"] == ("stacked_cifar", "stacked_mnist")


@cases.each(
    ("name", "hidden"),
    [("cut_occlusion", dict(fills=("other",))), ("occlusion", dict(fill="other"))],
)
def test_other_images_without_a_set_of_them_are_refused(name, hidden):
    """They would be images of the shown set itself."""
    c = distortion.get_config("smoke").to_dict()
    c["measures"] = {name: {**c["measures"][name], **hidden, "others": ""}}
    said = f"^{name}: fill 'other' needs images.* name a set of the suite by others="
    with pytest.raises(ValueError, match=said):
        suites.open_suite(c, lambda line: None)


@cases.each(
    ("text", "said"),
    [
        ("data=cifar", "unknown data 'cifar'.*cifar10"),
        ("data=cifar10", "data=cifar10 needs root="),
        ("data=stacked,root=a", "needs digits="),
        (
            "data=stacked,root=a,digits=b,other=cifar10",
            "'other' is not used with data=stacked",
        ),
        (
            "data=cifar10,root=a,stimuli=b",
            "it is used with data=tiny_imagenet or data=imag",
        ),
        (
            "small",
            "'small' is not used with data=shapes; it is used with data=cifar10 or",
        ),
        ("root=a", "'root' is not used with data=shapes"),
        (
            "data=mnist,root=a,subset",
            "'subset' is not used.* it is used with data=imagenet$",
        ),
        ("data=mnist,root=a,correlation=0.5", "'correlation' is not used"),
        ("data=mnist,root=a,other_root=b", "not used without other"),
    ],
)
def test_what_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        distortion.get_config(text)


def test_sets_of_other_images_are_opened_without_any_data():
    """All of the embedded suite, and options that its probes take."""
    opened = suites.open_suite(distortion.get_config("smoke"), lambda line: None)
    assert not opened.missing and set(opened.sources) == {"test", "train", "other"}


def test_runs_are_checkpoints_and_the_suite_says_their_step(monkeypatch):
    parse = evaluate.parser().parse_args
    args = parse(["--runs=a", "--checkpoint=b"])
    assert args.checkpoint == ["a", "b"] and not args.step
    asked, given = [], ("--runs=a", "--only=accuracy", "--out=measured")
    monkeypatch.setattr(networks, "is_trained", lambda path: True)
    monkeypatch.setattr(
        networks, "from_run", lambda path, *, step: asked.append(step) or []
    )
    monkeypatch.setattr(networks, "find_checkpoints", lambda paths, **_: paths)
    for step, said in (("", "latest"), ("best", "best"), ("12", "12")):
        evaluate.measure(parse([*given, f"--step={step}", SUITE]), [])
        assert asked.pop() == said
    evaluate.measure(
        parse([*given, SUITE.replace("distortion", "biases")]),
        [],
    )
    assert asked == ["best"]


@cases.each(
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
    network = types.SimpleNamespace(name="net", about=about)
    line = runner.NetworkEvaluation(
        network, asked, None, print
    ).describe_train_difference()
    assert line == (f"trained on {said}" if said else "")


SUITE = "--suite=configs/suites/distortion.py:smoke"


@pytest.mark.slow  # Half a minute of compiling.
def test_all_of_it_on_the_embedded_set(tmp_path):
    """Each measure has its numbers, which are counted again from the decisions kept."""
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
                told = found[dataset, f"{name}/{condition}", "di_index"]
                assert told == pytest.approx(di_of_one(by[""], by[condition]))
            shown = found[dataset, "" if name == "accuracy" else name, "accuracy"]
            assert shown == (by[""].prediction == by[""].columns["label"]).mean()
            for condition in set(by) - {""} if name.startswith("occlusion") else ():
                one = by[condition]
                told = found[dataset, f"{name}/{condition}", "accuracy"]
                assert told == (one.prediction == one.columns["label"]).mean()


INTERFERING = ("grid", "cut", "occlusion")


def di_of_one(clean, distorted) -> float:
    """The index in per cent of one network, by the formula."""
    shares = []
    for one in (clean, distorted):
        wrong = one.prediction[one.prediction != one.columns["label"]]
        shares.append(np.bincount(wrong, minlength=16) / len(wrong))
    grown = np.maximum(shares[1] - shares[0], 0) * 16
    return grown.max() ** 2 / grown.sum() if grown.any() else 0.0
