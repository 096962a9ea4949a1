"""The suite of shape: its measures by data set, and a run from the command to the page."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import evaluate, models
from jbias.configs.suites import shape
from jbias.data.embedded import shapes
from jbias.evals import suites
from jbias.report import measured
from jbias.runs import results
from tests import cases


def open_config(text):
    config = shape.get_config(text).to_dict()
    for name, options in config["measures"].items():
        measure = suites.read_measure(name, options, config["sets"])
        suites.check_measure(measure, config["size"])
    return config


@cases.each(
    ("text", "size", "steps", "points"),
    [
        ("", 32, 2048, 16),
        ("smoke", 32, 8, 16),
        ("data=cifar10,root=x", 32, 2048, 16),
        ("data=tiny_imagenet,root=x,images=9", 64, 2048, 64),
        ("data=imagenet,root=x,subset", 224, 512, 64),
    ],
)
def test_options_follow_the_data_set(text, size, steps, points):
    config = open_config(text)
    cue_options = config["measures"]["cue_decomposition"]
    assert (config["size"], cue_options["steps"], cue_options["points"]) == (
        size,
        steps,
        points,
    )
    has_drawn_images = "data" not in text
    assert (
        ("configural" in config["measures"])
        == ("anagrams" in config["sets"])
        == has_drawn_images
    )
    assert {"tile_order", "odd_one_out", "accuracy"} < {*config["measures"]}


@cases.each(
    ("text", "message"),
    [
        ("data=imagenet", "data=imagenet needs root="),
        ("data=mnist,root=x", "data"),
        ("data=cifar10,root=x,subset", "subset"),
        ("root=x", "root"),
    ],
)
def test_wrong_arguments_are_refused(text, message):
    with pytest.raises(ValueError, match=f"^suite argument.*{message}"):
        shape.get_config(text)


@pytest.mark.slow
def test_the_suite_runs_from_the_command_to_the_page(tmp_path, monkeypatch):
    """The network is untrained, so only bounds of its values are known."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    net = models.MODELS["cnn"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_safetensors(tmp_path / "net.safetensors", net, variables, names="own")
    (tmp_path / "names.txt").write_text("\n".join(shapes.CLASSES))
    out = tmp_path / "measured"
    arguments = (
        f"--checkpoint={tmp_path}/net.safetensors",
        f"--classes={tmp_path}/names.txt",
    )
    suite_file = "--suite=configs/suites/shape.py:smoke"
    assert evaluate.main([*arguments, "--model=cnn", suite_file, f"--out={out}"]) == 0
    page = tmp_path / "page"
    assert measured.main([f"--measured={out}/*", f"--out={page}"]) == 0
    titles = "Shape by the order of parts", "Edges or texture", "Odd one out"
    missing = json.loads((page / "results.json").read_text())["missing"]
    assert missing and not any(line.startswith(titles) for line in missing)
    frame = results.read(f"{out}/*")
    keys = zip(frame["condition"].astype(str), frame["metric"].astype(str))
    values = dict(zip(keys, frame["value"], strict=True))
    accuracy = values["configural", "accuracy"]
    assert (
        max(0, 2 * accuracy - 1)
        <= values["configural", "configural_substitute"]
        <= accuracy
    )
    assert values["tile_order", "order_dependence"] <= values["tile_order", "accuracy"]
    assert 0 <= values["odd_one_out", "odd_one_out"] <= 1
    sites = {key for key, _ in values if key.startswith("odd_one_out/")}
    assert len(sites) == 4
    assert np.isfinite(values["cue_decomposition/diffused", "accuracy"])
    text = (page / "index.html").read_text()
    assert all(title in text for title in titles)
