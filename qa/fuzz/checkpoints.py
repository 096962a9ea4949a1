"""Malformed checkpoints: of a jbias run, and files of weights as others publish them."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from jbias import models
from jbias.models import state_dicts
from qa.fuzz import attempts, mutations

_OTHERS = ("net.safetensors", "net.npz", "net.pth", "stream.pth")


def write_inputs(folder: pathlib.Path) -> None:
    """Write a network as a workdir, as `jbias prepare export` does, and as files."""
    net = models.MODELS["cnn"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_run(folder / "run", net, variables)
    path = folder / "net.safetensors"
    models.save_safetensors(path, net, variables, names="own")
    np.savez(folder / "net.npz", **state_dicts.read(path).arrays)
    oracles = pathlib.Path(__file__).parents[2] / "tests/oracles"
    for file, oracle in (
        ("net.pth", "torch_zip.pth"),
        ("stream.pth", "torch_stream.pth"),
    ):
        (folder / file).write_bytes((oracles / oracle).read_bytes())


def _argv(folder: pathlib.Path, out: pathlib.Path, file: str) -> tuple[str, ...]:
    """Return the arguments that export a checkpoint."""
    path, model = folder / file, () if file == "run" else ("--model=cnn",)
    return (
        "export",
        f"--checkpoint={path}",
        f"--out={out}/x.safetensors",
        "--names=own",
        *model,
    )


@st.composite
def ours(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a file of a run with other bytes, or with another value in its config."""
    checkpoint = folder / "run/checkpoints"
    paths = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    config = folder / "run/config.json"
    path = draw(st.sampled_from([*paths, config, config, config]))
    data = path.read_bytes()
    if path == config and draw(st.booleans()):
        data = mutations.to_json(draw(mutations.changed(json.loads(data)))[0])
    else:
        data = draw(mutations.edited(data))
    file = str(path.relative_to(folder))
    return attempts.Case(file, _argv(folder, out, "run"), file, data)


@st.composite
def others(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a file of weights with other bytes."""
    file = draw(st.sampled_from(_OTHERS))
    data = (folder / file).read_bytes()
    head = data[:4096]
    if draw(st.booleans()):
        data = draw(mutations.edited(head)) + data[4096:]
    else:
        data = draw(mutations.edited(data))
    return attempts.Case(file, _argv(folder, out, file), file, data)
