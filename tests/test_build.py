"""Functions and networks that a config names are built with its options, or refused."""

import json

import pytest
from flax import linen as nn

from jbias import augment, build
from tests import cases, methods

DEBIASED = {"name": "debiased", "transfer": {"name": "small"}, "mix_group": 8}


def test_functions_among_the_options_are_built():
    options = build.resolve_functions("here", {**DEBIASED, "mix": {"name": "mixup"}})
    assert callable(options["transfer"]) and callable(options["mix"])
    assert build.resolve_functions("here", {"transfer": methods.recoloured}) == {
        "transfer": methods.recoloured
    }


def test_a_mix_gets_the_group_size_of_its_algorithm(monkeypatch):
    arguments = {}

    def make(*, mix_group=32, alpha=1.0):
        arguments.update(mix_group=mix_group, alpha=alpha)
        return lambda batch, key: batch

    known = {**augment.AUGMENTS, "spy": make}
    monkeypatch.setattr(build, "TRANSFORMS", build.TRANSFORMS._replace(known=known))
    build.resolve_functions("here", {**DEBIASED, "mix": {"name": "spy", "alpha": 0.5}})
    assert arguments == {"mix_group": 8, "alpha": 0.5}
    build.resolve_functions("here", {**DEBIASED, "mix": {"name": "random_erasing"}})


@cases.each(
    ("change", "message"),
    [
        ({"mix": {"alpha": 0.4}}, "here.mix: must have a name, got {'alpha': 0.4}"),
        ({"mix": {"name": "mixap"}}, "here.mix.name: unknown 'mixap'; did you mean"),
        ({"mix": {"name": "mixup", "alhpa": 1}}, "here.mix: unknown option 'alhpa'"),
        ({"transfer": {"name": "smal"}}, "did you mean 'small'"),
        ({"transfer": {"name": "render", "a": 1}}, "here.transfer: unknown option 'a'"),
    ],
)
def test_refuses_in_one_line(change, message):
    with pytest.raises(ValueError, match=message) as refused:
        build.resolve_functions("here", {**DEBIASED, **change})
    assert "\n" not in str(refused.value)


def test_a_network_of_a_config_restored_from_json_is_equal():
    """JSON has no tuples; compiled programs are cached by their network."""
    model = dict(name="preact_resnet18", width=8, mean=(0.1, 0.2, 0.3), depths=(1,) * 4)
    config = dict(model=model, precision="float32")
    network = build.network(config, 3)
    restored = build.network(json.loads(json.dumps(config)), 3)
    assert network == restored and hash(network) == hash(restored)


def test_a_missing_option_is_named():
    with pytest.raises(
        ValueError, match=r"inputs\[0\]: must have the option 'transfer'"
    ):
        build.transforms("inputs", [{"name": "stylize"}])


def test_weight_files_are_distinguished_by_content(tmp_path):
    path = tmp_path / "mine.npz"
    config = {
        "algo": {"name": "erm"},
        "inputs": [
            {"name": "stylize", "transfer": {"name": "small", "weights": str(path)}}
        ],
    }
    digests = []
    for content in (b"one", b"two"):
        path.write_bytes(content)
        digests.append(build.user_file_digests(config)[str(path)])
    assert digests[0] != digests[1]
    path.unlink()
    assert build.user_file_digests(config) == {}


def test_an_algorithm_receives_the_columns_that_it_takes(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from jbias.algos import base\n"
        "def make(net, *, columns=None):\n"
        "    return base.Algo(net, lambda *args: None, mix_group=columns)\n"
    )
    columns = methods.COLUMNS
    algorithm = {"name": f"{path}:make"}
    net = nn.Dense(1)
    assert build.algorithm(algorithm, net, columns).mix_group == columns
    assert build.algorithm(algorithm, net).mix_group is None
    assert build.algorithm({"name": "erm"}, net, columns).net == net
    with pytest.raises(ValueError, match="config.algo.columns: is filled in"):
        build.algorithm({"name": "irm", "columns": {}}, 1, columns)
