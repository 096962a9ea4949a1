"""Users' algorithms with a mistake; the message must name file and line of the mistake."""

import pathlib
from collections.abc import Iterator

from qa.hostile import attempt

_GOOD = """
import jax
import jax.numpy as jnp

from jbias.algos import base


def tap(x, site, key):
    return x


def make(net):
    net = net

    def losses(params, stats, batch, key, static=None):
        image = batch["image"]
        logits, seen = base.forward(net, params["net"], stats["net"], image, key)
        loss = base.objective(logits, batch)
        return {"class": loss}, base.Aux({**stats, "net": seen}, {})

    return base.Algo(net, losses)
"""
_TAPPED = ("    net = net\n", "    net = net.clone(tap=tap)\n")
# Replacements in the file that make a mistake.
_MISTAKES = (
    (('batch["image"]', 'batch["images"]'),),
    (('batch["image"]', 'batch["x"]'),),
    (('batch["image"]', "batch.image"),),
    (('batch["image"]', 'batch["image"][:, :3]'),),
    (('batch["image"]', 'batch["image"].reshape(-1)'),),
    (('batch["image"]', 'batch["domain"]'),),
    (('params["net"]', 'params["network"]'),),
    (('stats["net"], image', 'stats["nets"], image'),),
    (('stats["net"], image, key', 'stats["net"], key, image'),),
    (("base.objective(logits, batch)", "base.objective(batch, logits)"),),
    (("base.objective(logits, batch)", "base.objective(logits)"),),
    (("base.objective(logits, batch)", "logits"),),
    (("base.objective(logits, batch)", "0"),),
    (("base.objective(logits, batch)", "float(logits.sum())"),),
    (("base.objective(logits, batch)", "1 if logits.sum() > 0 else 0"),),
    (("base.objective(logits, batch)", "jnp.zeros(3)"),),
    (("base.objective(logits, batch)", "jax.nn.softmax(undefined)"),),
    (("base.objective(logits, batch)", "1 / 0"),),
    (("base.objective(logits, batch)", 'int("x")'),),
    (("base.objective(logits, batch)", "jnp.ones((2, 3)) @ jnp.ones((2, 3))"),),
    (('{"class": loss}', '{"classes": loss}'),),
    (('{"class": loss}', "loss"),),
    (('{"class": loss}', "{}"),),
    (('base.Aux({**stats, "net": seen}, {})', "{}"),),
    (('{**stats, "net": seen}', "{}"),),
    (('{**stats, "net": seen}', '{"net": image}'),),
    (('return {"class": loss}, ', "return "),),
    (("params, stats, batch, key, static=None", "params, batch"),),
    (
        (
            "params, stats, batch, key, static=None",
            "params, stats, batch, key, static, x",
        ),
    ),
    (("return base.Algo(net, losses)", "return losses"),),
    (("return base.Algo(net, losses)", "return None"),),
    (("return base.Algo(net, losses)", "pass"),),
    (("return base.Algo(net, losses)", "return base.Algo(losses, net)"),),
    (("def make(net)", "def make()"),),
    (("def make(net)", "def make(net, strength)"),),
    (("def make(net)", "def make(network)"),),
    (("import jax\n", "import jaxx\n"),),
    (("import jax\n", "import jax\n\nraise RuntimeError('x\\x1b[2J\\ny')\n"),),
    (("import jax\n", "import jax\n\n1 +\n"),),
    (("import jax\n", "\timport jax\n"),),
    (_TAPPED,),
    (_TAPPED, ("    return x\n\n", "    return x[:, ::2]\n\n")),
    (_TAPPED, ("    return x\n\n", "    return None\n\n")),
    (_TAPPED, ("    return x\n\n", "    return x.mean()\n\n")),
    (_TAPPED, ("    return x\n\n", "    return x @ x\n\n")),
    (_TAPPED, ("    return x\n\n", "    return x * 2 if site == 'stage77' else x\n\n")),
    (_TAPPED, ("def tap(x, site, key)", "def tap(x)")),
    (_TAPPED, ("def tap(x, site, key)", "def tap(x, site, key, more)")),
)
# Regular expressions that must match in the message, instead of the file's name.
_EXPECTS = {
    "0": "finished",  # A loss of zero is valid.
    'batch["image"][:, :3]': "finished",  # An image of three rows is valid.
    "def make(net, strength)": "strength",
}


def cases() -> Iterator[attempt.Case]:
    """Yield every mistake as input of `jbias train`."""
    for replacements in _MISTAKES:
        text = _GOOD
        for old, new in replacements:
            assert old in text, old
            text = text.replace(old, new, 1)

        def write(root: pathlib.Path, text: str = text) -> list[str]:
            (root / "mine.py").write_text(text)
            return [
                "-m",
                "jbias.main",
                "--config=configs/erm.py:smoke,seeds=1",
                f"--config.algo.name={root}/mine.py:make",
                f"--workdir={root}/run",
            ]

        _, last_new = replacements[-1]
        expects = _EXPECTS.get(last_new, r"mine\.py")
        words = " and ".join(new.strip() for _, new in replacements)
        yield attempt.Case(words, write, expects)
