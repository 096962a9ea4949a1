"""The suite of shape: what it asks of which data, and that it runs from command to page."""

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


def asked(text):
    config = shape.get_config(text).to_dict()
    for name, options in config["measures"].items():
        one = suites.read_measure(name, options, config["sets"])
        suites.check_measure(one, config["size"])
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
def test_what_it_asks(text, size, steps, points):
    config = asked(text)
    told = config["measures"]["cue_decomposition"]
    assert (config["size"], told["steps"], told["points"]) == (size, steps, points)
    drawn = "data" not in text
    assert (
        ("configural" in config["measures"]) == ("anagrams" in config["sets"]) == drawn
    )
    assert {"tile_order", "odd_one_out", "accuracy"} < {*config["measures"]}


@cases.each(
    ("text", "said"),
    [
        ("data=imagenet", "data=imagenet needs root="),
        ("data=mnist,root=x", "data"),
        ("data=cifar10,root=x,subset", "subset"),
        ("root=x", "root"),
    ],
)
def test_wrong_arguments_are_refused(text, said):
    with pytest.raises(ValueError, match=f"^suite argument.*{said}"):
        shape.get_config(text)


@pytest.mark.slow
def test_from_the_command_to_the_page(tmp_path, monkeypatch):
    """Untrained: nothing is known of its values, but what bounds them."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    net = models.MODELS["cnn"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_safetensors(tmp_path / "net.safetensors", net, variables, names="own")
    (tmp_path / "names.txt").write_text("\n".join(shapes.CLASSES))
    out = tmp_path / "measured"
    given = (
        f"--checkpoint={tmp_path}/net.safetensors",
        f"--classes={tmp_path}/names.txt",
    )
    suite_file = "--suite=configs/suites/shape.py:smoke"
    assert evaluate.main([*given, "--model=cnn", suite_file, f"--out={out}"]) == 0
    page = tmp_path / "page"
    assert measured.main([f"--measured={out}/*", f"--out={page}"]) == 0
    titles = "Shape by the order of parts", "Edges or texture", "Odd one out"
    missing = json.loads((page / "results.json").read_text())["missing"]
    assert missing and not any(line.startswith(titles) for line in missing)
    frame = results.read(f"{out}/*")
    keys = zip(frame["condition"].astype(str), frame["metric"].astype(str))
    by = dict(zip(keys, frame["value"], strict=True))
    right = by["configural", "accuracy"]
    assert max(0, 2 * right - 1) <= by["configural", "configural_substitute"] <= right
    assert by["tile_order", "order_dependence"] <= by["tile_order", "accuracy"]
    assert 0 <= by["odd_one_out", "odd_one_out"] <= 1
    sites = {key for key, _ in by if key.startswith("odd_one_out/")}
    assert len(sites) == 4
    assert np.isfinite(by["cue_decomposition/diffused", "accuracy"])
    text = (page / "index.html").read_text()
    assert all(title in text for title in titles)
