"""Errors in a user's algorithm name the user's file and line, and the arguments."""

import functools
import types

import jax
import jax.numpy as jnp
import pytest

from jbias import build, main, models, train
from jbias.algos import base
from jbias.runtime import messages, processes, signals
from tests import cases, smoke_runs

HEAD = "from jbias.algos import base, erm\n"
KEY = """def make(net):
    def losses(params, stats, batch, key, static=None):
        return {"class": batch["images"]}, base.Aux(stats, {})
    return base.Algo(net, losses)
"""
RETURN = "    return erm.make(net.clone(tap=tap))\n"
TAP = (
    "def make(net):\n    def tap(x, site, key):\n        return x @ x[:, :3]\n" + RETURN
)
SHORT = "def make(net):\n    def tap(x):\n        return x\n" + RETURN
WITHIN = """import functools, jax
class Called:
    def __call__(self, params, stats, batch, key, static=None):
        return {"class": batch["images"]}, base.Aux(stats, {})
def losses(params, stats, batch, key, static=None):
    return Called()(params, stats, batch, key)
def bad(net, *args):
    return net["nothing"]
def make(net):
"""
WRONG = {
    "a key": (
        KEY,
        4,
        "in losses: KeyError: 'images'; .*'image': float32\\[2,32,32,3\\]",
    ),
    "a shape": (KEY.replace('images"]', 'image"] @ batch["target"]'), 4, "in losses: "),
    "no scalar": (
        KEY.replace("images", "image"),
        3,
        "loss 'class' must be a scalar, got shape \\(2, 32, 32, 3\\); take jnp.mean or ",
    ),
    "a loss": (
        KEY.replace('"class"', '"entropy"').replace("images", "weight"),
        3,
        "no loss is named 'class' \\(names: 'entropy'\\); return ",
    ),
    "no losses": (
        KEY.replace('"class": batch["images"]', ""),
        3,
        "no loss is named 'class' \\(names: none\\); return ",
    ),
    "a pair": (
        KEY.replace('batch["images"]}, base.Aux(stats, {})', "0.0}"),
        3,
        "losses must return \\(\\{name: loss\\}, base.Aux",
    ),
    "a metric": (
        KEY.replace('batch["images"]}', "0.0}").replace(
            "{})\n", '{"m": batch["target"]})\n'
        ),
        3,
        "metrics of base.Aux must be scalars, got \\{'m': \\(2, 16\\)\\}",
    ),
    "no statistics": (
        KEY.replace('batch["images"]}, base.Aux(stats', "0.0}, base.Aux({}"),
        3,
        "whole new stats, .*expected stats\\['net'\\].* of \\(8,\\), got None",
    ),
    "other statistics": (
        KEY.replace(
            'batch["images"]}, base.Aux(stats',
            '0.0}, base.Aux({**stats, "more": batch["image"]}',
        ),
        3,
        "expected stats\\['more'\\] of None, got \\(2, 32, 32, 3\\)",
    ),
    "a net": (
        "def make(net):\n    return base.Algo(make, net)\n",
        2,
        "net of base.Algo must be a flax module, got <function make",
    ),
    "an empty tap": (
        TAP.replace("return x @ x[:, :3]", "pass"),
        3,
        "a tap must return an array, got None at ",
    ),
    "losses": (KEY.replace("batch, key, static=None", "batch"), 3, "but 5 were given"),
    "make": ("def make():\n    pass\n", 2, "takes 0 positional arguments but 1"),
    "nothing": ("def make(net):\n    pass\n", 2, "must return a base.Algo, got None"),
    "a refusal": ("def make(net):\n    raise ValueError('no')\n", 3, "ValueError: no"),
    "syntax": ("def make(net:\n", 2, "SyntaxError: "),
    "an import": ("import nothing_of_that_name\n", 2, "ModuleNotFoundError: "),
    "a tap": (TAP, 4, "in tap: .*a tap is called with \\(x, site, key\\)"),
    "a tap's arguments": (SHORT, 3, "takes 1 positional argument but 3"),
}


@functools.cache
def net_and_shapes():
    net = models.MODELS["cnn"](16, width=4)
    image = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    return net, jax.eval_shape(net.init, jax.random.key(0), image)


def traced(path):
    """Build the algorithm, and trace its losses."""
    net, shapes = net_and_shapes()
    algo = build.algorithm({"name": f"{path}:make"}, net)
    params, stats = ({"net": shapes.get(key, {})} for key in ("params", "stats"))
    image = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32)
    batch = {"image": image, "target": jax.ShapeDtypeStruct((2, 16), jnp.float32)}
    batch["weight"] = jax.ShapeDtypeStruct((), jnp.float32)
    args = (params, stats, batch, jax.random.key(0))
    return jax.eval_shape(lambda *args: algo.losses(*args, None), *args)


@cases.each("kind", WRONG)
def test_errors_name_the_line_in_the_user_file(kind, tmp_path):
    text, line, pattern = WRONG[kind]
    path = tmp_path / "mine.py"
    path.write_text(HEAD + text)
    with pytest.raises(messages.UserCodeError, match=pattern) as error:
        traced(path)
    message = str(error.value)
    assert message.startswith(f"error in {path}:{line}") and "\n" not in message
    assert message.endswith("JBIAS_TRACEBACK=1 shows the whole traceback")
    assert "removed its internal frames" not in message


TRACED = {
    "if 0 < mean: mean = 0": "TracerBoolConversionError: a Python `if`.*; use jnp.where",
    "mean = float(mean)": "ConcretizationTypeError: .* float\\(\\), .*keep the array",
    "mean = range(mean.astype(int))": "TracerIntegerConversionError: .*; use jnp.take",
    "mean = math.floor(mean)": "ConcretizationTypeError: ",
    "mean = numpy.sqrt(mean)": "TracerArrayConversionError: .*; use the function of jax.numpy",
    "mean = image[image > mean]": "NonConcreteBooleanIndexError: .*; use jnp.where",
}


@cases.each("code", TRACED)
def test_python_on_a_traced_value_is_named_with_its_line_and_a_remedy(code, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        f"import math, numpy\n{HEAD}def make(net):\n"
        "    def losses(params, stats, batch, key, static=None):\n"
        "        image = batch['image']\n        mean = image.mean()\n"
        f"        {code}\n"
        "        return {'class': mean}, base.Aux(stats, {})\n"
        "    return base.Algo(net, losses)\n"
    )
    with pytest.raises(messages.UserCodeError, match=TRACED[code]) as error:
        traced(path)
    message = str(error.value)
    assert message.startswith(f"error in {path}:7, in losses: ")
    assert "called with" not in message and len(message) < len(str(path)) + 300


@cases.each(
    "wrapped",
    [
        "Called()",
        "functools.partial(losses)",
        "jax.jit(losses, static_argnums=4)",
        "functools.partial(jax.checkpoint(losses))",
        "functools.partial(Called())",
    ],
)
def test_errors_of_wrapped_losses_name_the_line_of_the_loss(wrapped, tmp_path):
    """The line of a loss with wrong arguments is named, which no other message does."""
    path = tmp_path / "mine.py"
    path.write_text(HEAD + WITHIN + f"    return base.Algo(net, {wrapped})\n")
    algo = build.algorithm({"name": f"{path}:make"}, net_and_shapes()[0])
    line = 4 if "Called" in wrapped else 6
    with pytest.raises(messages.UserCodeError, match=rf"mine\.py:{line}: TypeError"):
        algo.losses(1)


@cases.each("key", ["static", "decide", "settle"])
def test_errors_of_other_wrapped_functions_name_their_line(key, tmp_path):
    path = tmp_path / "mine.py"
    last_line = (
        f"    return base.Algo(net, losses, {key}=functools.partial(bad, {{}}))\n"
    )
    path.write_text(HEAD + WITHIN + last_line)
    algo = build.algorithm({"name": f"{path}:make"}, net_and_shapes()[0])
    with pytest.raises(
        messages.UserCodeError, match=r"mine\.py:9, in bad: KeyError: 'nothing'"
    ):
        getattr(algo, key)(1, 2)


def test_an_algorithm_without_errors_works(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + "make = erm.make\n")
    (losses, _), net = traced(path), net_and_shapes()[0]
    algo = build.algorithm({"name": f"{path}:make"}, net)
    assert losses["class"].shape == ()
    assert algo.static is base.no_static and algo.settle is base.as_updated


@cases.each("loss", ["0", "0.0", "True", "3 * (key is None)"])
def test_numbers_of_python_are_losses(loss, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + KEY.replace('batch["images"]', loss))
    assert traced(path)[0]["class"].dtype == jnp.float32


def test_statistics_of_another_type_are_accepted(tmp_path):
    """Statistics may change from float32 to bfloat16."""
    path = tmp_path / "mine.py"
    cast = 'jax.tree.map(lambda x: x.astype("bfloat16"), stats)'
    text = KEY.replace('batch["images"]}, base.Aux(stats', f"0}}, base.Aux({cast}")
    path.write_text(f"import jax\n{HEAD}{text}")
    assert traced(path)[0]["class"].shape == ()


def test_an_unknown_function_is_an_error_of_the_config(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + "make = erm.make\n")
    with pytest.raises(
        ValueError, match="no function 'maek'; did you mean 'make'"
    ) as e:
        build.algorithm({"name": f"{path}:maek"}, 1)
    assert not isinstance(e.value, messages.UserCodeError)


@cases.each(("error", "code"), [(messages.UserCodeError, 1), (ValueError, 2)])
def test_errors_in_user_code_and_in_the_config_have_different_exit_codes(
    error, code, monkeypatch, capsys
):
    def run(*args, **kwargs):
        raise error("error in mine.py:3")

    monkeypatch.delenv("JBIAS_TRACEBACK", raising=False)
    monkeypatch.setattr(train, "run", run)
    config = types.SimpleNamespace(value=types.SimpleNamespace(run={}))
    monkeypatch.setattr(main, "_CONFIG", config)
    exit_code = main._guard(
        lambda: main._train(None, "x", processes.ALONE, signals.StopSignal()),
        team=processes.ALONE,
        log_dir=None,
    )
    assert exit_code == code
    assert capsys.readouterr().err == "jbias: error in mine.py:3\n"


@pytest.mark.slow
def test_an_error_in_evaluation_is_no_damaged_image(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from jbias.algos import erm\n\n\n"
        "def decide(variables, image):\n    return variables['oops']\n\n\n"
        "def make(net):\n    return erm.make(net)._replace(decide=decide)\n"
    )
    config = smoke_runs.small(seeds=(0,), epochs=1)
    config.model, config.algo = {"name": "cnn"}, {"name": f"{path}:make"}
    with pytest.raises(messages.UserCodeError, match=r"mine.py:5, in decide") as raised:
        train.run(config, tmp_path / "run")
    assert "prepare check" not in str(raised.value)
    assert (tmp_path / "run/traceback.txt").is_file()
