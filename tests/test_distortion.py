"""The suite of distortion: its measures, their sets and options, and invalid arguments."""

import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import data, evaluate, models
from jbias.configs.suites import distortion
from jbias.evals import decision_files, networks, registry, runner, suites
from jbias.runs import results
from tests import cases

ARGUMENTS = [
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


@cases.each("text", ARGUMENTS)
def test_measures_have_sets_of_the_suite_and_valid_options(text):
    c = distortion.get_config(text)
    for name, options in c.measures.items():
        measure = suites.read_measure(name, options.to_dict(), c.sets)
        make = registry.PROBES[measure.probe].load()
        assert {*measure.options} <= {*inspect.signature(make).parameters}
        assert measure.datasets and "other" not in measure.datasets
        is_occlusion = measure.probe in ("cut_occlusion", "occlusion")
        assert (measure.others == "other") == (is_occlusion and "other" in c.sets)


OTHER_SET = "other=cifar100,other_root=b"


def measure_configs(text: str) -> dict:
    return distortion.get_config(text).measures.to_dict()


@cases.each(
    ("measure", "expected"),
    [
        ("grid_shuffle", dict(grids=(2, 4, 8), sets=("test",))),
        # Areas have the distribution Beta(2, 1); all fills have the same boxes.
        (
            "cut_occlusion",
            dict(
                area="beta",
                placement="unrestricted",
                fills=("black", "mean", "other"),
                sets=("test",),
            ),
        ),
        # The appendix: uniform areas inside the image.
        ("cut_occlusion_uniform", dict(area="uniform", placement="restricted")),
        # Table 4: 30 % hidden by images of another data set, inside the image.
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
def test_measures_equal_the_papers(measure, expected):
    measure_config = measure_configs(f"data=cifar10,root=a,{OTHER_SET}")[measure]
    assert {key: measure_config[key] for key in expected} == expected
    if measure == "mixing":
        assert "crop" not in measure_config and "mirror" not in measure_config


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
def test_occlusion_measures_have_the_mean_colour_of_the_set(data, colour):
    occlusion_measures = [
        options
        for name, options in measure_configs(f"data={data},root=a,{OTHER_SET}").items()
        if "occlusion" in name
    ]
    assert len(occlusion_measures) == 5 and all(
        options["mean"] == colour for options in occlusion_measures
    )


@cases.each(
    ("text", "set_name", "expected"),
    [
        ("data=cifar10,root=a", "train", dict(split="train[:98%]")),
        ("data=cifar10,root=a,train=train", "train", dict(split="train")),
        ("data=cifar10,root=a,small", "train", dict(split="train[:10%]")),
        ("data=cifar10,root=a,small", "test", dict(split="test")),
        ("data=cifar10,root=a,drop=truck", "train", dict(drop="truck")),
        ("data=cifar10,root=a,drop=truck", "test", dict(drop="truck")),
        ("data=cifar10,root=a,keep=b.npy", "train", dict(keep="b.npy")),
        ("data=cifar10,root=a,keep=b.npy", "test", dict(keep=None)),
        # Images of 28 pixels are padded by 2 pixels to 32.
        ("data=cifar10,root=a,other=mnist,other_root=b", "other", dict(pad=2)),
        ("data=cifar10,root=a,other=fashion_mnist,other_root=b", "other", dict(pad=2)),
        (f"data=cifar10,root=a,{OTHER_SET}", "other", dict(pad=None, split="train")),
        (
            "data=fashion_mnist,root=a,other=mnist,other_root=b",
            "other",
            dict(pad=None),
        ),
        ("data=fashion_mnist,root=a,size=32", "test", dict(pad=2)),
        ("data=fashion_mnist,root=a,size=32", "train", dict(pad=2)),
        ("data=fashion_mnist,root=a", "test", dict(pad=None)),
        # Table 2: images are resized to 256 pixels and cropped to 224.
        ("data=imagenet,root=a,stimuli=b", "cue-conflict", dict(resize=256)),
        ("data=imagenet,root=a,stimuli=b,size=64", "edge", dict(resize=None)),
        ("data=tiny_imagenet,root=a,stimuli=b", "cue-conflict", dict(resize=None)),
    ],
)
def test_sets_equal_those_of_training(text, set_name, expected):
    set_config = distortion.get_config(text).sets[set_name]
    assert {key: set_config.get(key) for key in expected} == expected


def test_imagenet_is_limited_to_fifty_thousand_images():
    full = measure_configs("data=imagenet,root=a")
    assert {options["images"] for options in full.values()} == {50_000}
    assert measure_configs("data=imagenet,root=a,images=9")["occlusion"]["images"] == 9
    assert measure_configs("data=cifar10,root=a")["occlusion"]["images"] == 0


def test_other_options_that_depend_on_the_data():
    assert distortion.get_config().run.step == "latest"
    tiny = measure_configs("data=tiny_imagenet,root=a,stimuli=b")
    assert tiny["mixing_train"]["crop"] == 0 and tiny["mixing_train"]["mirror"]
    assert tiny["shape_bias"]["sets"] == ("cue-conflict",)
    stacked = measure_configs("data=stacked,root=a,digits=b")
    assert list(stacked) == ["accuracy"]
    assert stacked["accuracy"]["sets"] == ("stacked_cifar", "stacked_mnist")


@cases.each(
    ("name", "fill_options"),
    [("cut_occlusion", dict(fills=("other",))), ("occlusion", dict(fill="other"))],
)
def test_other_images_without_a_set_of_them_are_refused(name, fill_options):
    """Without a set they would come from the shown set itself."""
    c = distortion.get_config("smoke").to_dict()
    c["measures"] = {name: {**c["measures"][name], **fill_options, "others": ""}}
    message = f"^{name}: fill 'other' needs images.* name a set of the suite by others="
    with pytest.raises(ValueError, match=message):
        suites.open_suite(c, lambda line: None)


@cases.each(
    ("text", "message"),
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
def test_invalid_arguments_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        distortion.get_config(text)


def test_sets_of_other_images_are_opened_without_any_data():
    """All sets of the smoke suite are embedded."""
    suite = suites.open_suite(distortion.get_config("smoke"), lambda line: None)
    assert not suite.missing and set(suite.sources) == {"test", "train", "other"}


def test_runs_are_checkpoints_and_the_suite_says_their_step(monkeypatch):
    parse = evaluate.parser().parse_args
    args = parse(["--runs=a", "--checkpoint=b"])
    assert args.checkpoint == ["a", "b"] and not args.step
    steps_asked, arguments = [], ("--runs=a", "--only=accuracy", "--out=measured")
    monkeypatch.setattr(networks, "is_trained", lambda path: True)
    monkeypatch.setattr(
        networks, "from_run", lambda path, *, step: steps_asked.append(step) or []
    )
    monkeypatch.setattr(networks, "find_checkpoints", lambda paths, **_: paths)
    for step, expected_step in (("", "latest"), ("best", "best"), ("12", "12")):
        evaluate.measure(parse([*arguments, f"--step={step}", SUITE]), [])
        assert steps_asked.pop() == expected_step
    evaluate.measure(
        parse([*arguments, SUITE.replace("distortion", "biases")]),
        [],
    )
    assert steps_asked == ["best"]


@cases.each(
    ("train_changes", "message"),
    [
        ({}, ""),
        ({"root": "elsewhere", "batch": 1}, ""),
        ({"split": "train[:10%]"}, "split 'train[:10%]', shown 'train[:98%]'"),
        ({"drop": "truck"}, "drop 'truck', shown ''"),
        ({"keep": "mine.txt"}, "keep 'mine.txt', shown ''"),
        ({"data": "cifar100"}, "data 'cifar100', shown 'cifar10'"),
        (None, ""),  # The training images of a file are unknown.
    ],
)
def test_a_difference_to_the_training_images_is_reported(train_changes, message):
    sets = distortion.get_config("data=cifar10,root=a").sets.to_dict()
    suite = types.SimpleNamespace(config={"sets": sets})
    network_info = (
        {}
        if train_changes is None
        else {"config": {"train": {**sets["train"], **train_changes}}}
    )
    network = types.SimpleNamespace(name="net", about=network_info)
    line = runner.NetworkEvaluation(
        network, suite, None, print
    ).describe_train_difference()
    assert line == (f"trained on {message}" if message else "")


SUITE = "--suite=configs/suites/distortion.py:smoke"


@pytest.mark.slow  # Half a minute of compiling.
def test_the_suite_runs_on_the_embedded_set(tmp_path):
    """All numbers are recomputed from the stored decisions."""
    net = models.MODELS["preact_resnet18"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_run(tmp_path / "saved", net, variables)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(data.load("shapes", "test", n=48).classes))
    args = [f"--checkpoint={tmp_path / 'saved'}", f"--classes={names}", SUITE]
    assert evaluate.main([*args, f"--out={tmp_path / 'out'}"]) == 0
    (folder,) = (tmp_path / "out").iterdir()
    values = results.read(folder)
    values = values.set_index(["dataset", "condition", "metric"])["value"]
    for name, options in distortion.get_config("smoke").measures.items():
        for dataset in options.sets:
            decisions_file = folder / f"decisions/{dataset}/{name}.parquet"
            decided = decision_files.read_conditions(decisions_file)
            for condition in (
                set(decided) - {""} if name.startswith(INTERFERING) else ()
            ):
                recorded = values[dataset, f"{name}/{condition}", "di_index"]
                assert recorded == pytest.approx(
                    di_of_one(decided[""], decided[condition])
                )
            recorded_accuracy = values[
                dataset, "" if name == "accuracy" else name, "accuracy"
            ]
            assert (
                recorded_accuracy
                == (decided[""].prediction == decided[""].columns["label"]).mean()
            )
            for condition in (
                set(decided) - {""} if name.startswith("occlusion") else ()
            ):
                occluded = decided[condition]
                recorded = values[dataset, f"{name}/{condition}", "accuracy"]
                assert (
                    recorded
                    == (occluded.prediction == occluded.columns["label"]).mean()
                )


INTERFERING = ("grid", "cut", "occlusion")


def di_of_one(clean, distorted) -> float:
    """Return the index of one network in per cent, by the formula."""
    shares = []
    for decided in (clean, distorted):
        wrong = decided.prediction[decided.prediction != decided.columns["label"]]
        shares.append(np.bincount(wrong, minlength=16) / len(wrong))
    increase = np.maximum(shares[1] - shares[0], 0) * 16
    return increase.max() ** 2 / increase.sum() if increase.any() else 0.0
