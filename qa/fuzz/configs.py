"""Malformed configs: arguments, entries changed on the command line, and user files."""

import json
import pathlib

import jax
import jax.numpy as jnp
from hypothesis import strategies as st

from jbias import config as jc
from jbias import models
from jbias.configs import common, erm, padain
from qa.fuzz import attempts, mutations

_SMALL = "smoke,seeds=1,model=cnn"
_CHANGES = (
    "model.width=4",
    "train.n=64",
    "valid.n=32",
    "train.batch=32",
    "epochs=1",
    "tests={}",
)
PRESETS = ("erm", "padain", "mixup", "sagnet", "simclr", "group_dro", "sin_in", "pgd")


def small() -> dict:
    """Return a small, complete config with entries of every kind."""
    c = padain.get_config(_SMALL)
    with c.unlocked():
        c.model.width, c.train.n, c.train.batch, c.valid.n = 4, 64, 32, 32
        c.epochs, c.algo.mix_group = 2, 8
        c.tests = dict(edge=dict(data="shapes", split="edge", n=48))
        c.inputs = (dict(name="flip"), dict(name="mixup", alpha=0.2))
        c.stages = (dict(epochs=1), dict(algo=dict(name="erm"), epochs=1))
    return jc.to_dict(c)


def write_inputs(folder: pathlib.Path) -> None:
    """Write a config file, a suite, the JSON files that they read, and a network."""
    (folder / "mine.py").write_text(
        "import json, pathlib\nimport ml_collections\n\n"
        "def get_config(arg=''):\n"
        "    path = pathlib.Path(__file__).with_name('mine.json')\n"
        "    return ml_collections.ConfigDict(json.loads(path.read_text()))\n"
    )
    (folder / "mine.json").write_text(json.dumps(small()))
    text = (folder / "mine.py").read_text()
    (folder / "suite.py").write_text(text.replace("mine.json", "suite.json"))
    (folder / "suite.json").write_text(json.dumps(suite()))
    net = models.MODELS["cnn"](1000, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_safetensors(folder / "net.safetensors", net, variables, names="own")


@st.composite
def files(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a config file in which one entry has another type, is missing, or is new."""
    tree, words = draw(mutations.changed(small()))
    return attempts.Case(
        words,
        (f"--config={folder}/mine.py", f"--workdir={out}/run"),
        "mine.json",
        json.dumps(tree).encode(),
    )


def suite() -> dict:
    """Return the config of a small suite with three kinds of probes."""
    sets = {name: dict(data="shapes", split=name, n=48) for name in ("edge", "test")}
    measures = dict(
        accuracy=dict(probe="plain", sets=[*sets], images=16, aggregates=["mean_prob"]),
        pgd=dict(sets=["test"], steps=2, eps=[0.01, 0.02]),
        occlusion=dict(sets=["test"]),
    )
    run = dict(step="best", batch=32, precision="auto", gib=1.0, threads=1)
    return dict(size=32, sets=sets, measures=measures, run=run)


@st.composite
def suites(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a suite in which one entry has another type, is missing, or is new."""
    tree, words = draw(mutations.changed(suite()))
    argv = (
        f"--suite={folder}/suite.py",
        f"--checkpoint={folder}/net.safetensors",
        "--model=cnn",
        f"--out={out}/measured",
    )
    return attempts.Case(words, argv, "suite.json", json.dumps(tree).encode())


@st.composite
def changes(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a flag --config.key=TEXT for an existing or a wrong key."""
    flat = sorted(jc.flatten(jc.to_dict(erm.get_config(_SMALL))))
    key = draw(st.sampled_from([*flat, "x", "algo.x", "run", "optim.schedule.name.x"]))
    text = draw(st.sampled_from(mutations.TEXTS))
    preset = draw(st.sampled_from(PRESETS))
    argv = [f"--config=configs/{preset}.py:{_SMALL}"]
    argv += [f"--config.{change}" for change in _CHANGES]
    flag = f"--config.{key}={text}"
    return attempts.Case(flag, (*argv, flag, f"--workdir={out}/run"))


@st.composite
def arguments(
    draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path
) -> attempts.Case:
    """Draw arguments after the colon of --config, and unknown flags."""
    known = sorted(vars(common.parse_arguments("")))
    name = draw(st.sampled_from([*known, "sedes", "", "x"]))
    text = draw(st.sampled_from(mutations.TEXTS))
    joined = draw(
        st.sampled_from((f"{name}={text}", name, text, f"{name}={text},{name}"))
    )
    preset = draw(st.sampled_from(PRESETS))
    argv = [f"--config=configs/{preset}.py:{_SMALL},{joined}"]
    argv += [f"--config.{change}" for change in _CHANGES]
    argv += draw(st.sampled_from(([], [], [], [text], ["--wrkdir=x"], [f"--{name}"])))
    return attempts.Case(argv[0] + argv[-1], (*argv, f"--workdir={out}/run"))
