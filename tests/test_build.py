"""What a config names is made, with its options, or refused by name."""

import json

import pytest
from flax import linen as nn

from jbias import augment, build
from tests import cases, methods

DEBIASED = {"name": "debiased", "transfer": {"name": "small"}, "mix_group": 8}


def test_functions_among_the_options_are_made():
    made = build.resolve_functions("here", {**DEBIASED, "mix": {"name": "mixup"}})
    assert callable(made["transfer"]) and callable(made["mix"])
    assert build.resolve_functions("here", {"transfer": methods.recoloured}) == {
        "transfer": methods.recoloured
    }


def test_a_mix_gets_the_groups_that_stand_beside_it(monkeypatch):
    seen = {}

    def make(*, mix_group=32, alpha=1.0):
        seen.update(mix_group=mix_group, alpha=alpha)
        return lambda batch, key: batch

    known = {**augment.AUGMENTS, "spy": make}
    monkeypatch.setattr(build, "TRANSFORMS", build.TRANSFORMS._replace(known=known))
    build.resolve_functions("here", {**DEBIASED, "mix": {"name": "spy", "alpha": 0.5}})
    assert seen == {"mix_group": 8, "alpha": 0.5}
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


def test_a_network_of_a_config_that_was_kept_is_the_same():
    """JSON has no tuples; programs are found again by their network."""
    model = dict(name="preact_resnet18", width=8, mean=(0.1, 0.2, 0.3), depths=(1,) * 4)
    config = dict(model=model, precision="float32")
    one, other = (
        build.network(config, 3),
        build.network(json.loads(json.dumps(config)), 3),
    )
    assert one == other and hash(one) == hash(other)


def test_a_missing_option_is_named():
    with pytest.raises(
        ValueError, match=r"inputs\[0\]: must have the option 'transfer'"
    ):
        build.transforms("inputs", [{"name": "stylize"}])


def test_weights_of_ones_own_are_told_from_others(tmp_path):
    path = tmp_path / "mine.npz"
    config = {
        "algo": {"name": "erm"},
        "inputs": [
            {"name": "stylize", "transfer": {"name": "small", "weights": str(path)}}
        ],
    }
    found = []
    for content in (b"one", b"two"):
        path.write_bytes(content)
        found.append(build.user_file_digests(config)[str(path)])
    assert found[0] != found[1]
    path.unlink()
    assert build.user_file_digests(config) == {}


def test_an_algorithm_is_told_the_columns_that_it_takes(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(
        "from jbias.algos import base\n"
        "def make(net, *, columns=None):\n"
        "    return base.Algo(net, lambda *args: None, mix_group=columns)\n"
    )
    columns = methods.COLUMNS
    mine = {"name": f"{own}:make"}
    net = nn.Dense(1)
    assert build.algorithm(mine, net, columns).mix_group == columns
    assert build.algorithm(mine, net).mix_group is None
    assert build.algorithm({"name": "erm"}, net, columns).net == net
    with pytest.raises(ValueError, match="config.algo.columns: is filled in"):
        build.algorithm({"name": "irm", "columns": {}}, 1, columns)
