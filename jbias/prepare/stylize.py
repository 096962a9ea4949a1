r"""Stylises a set once and for all, as Stylized-ImageNet is made.

jbias prepare stylize --data=folder --root=photos --size=224 --out=photos-stylized
jbias prepare stylize --data=folder --root=photos --size=224 --style=paintings \
    --transfer=vgg --weights=vgg_adain.npz --out=photos-stylized

--style is a folder of images, at any depth, or "self": other images of the set. Writes
OUT/<split>/<class>/<number>.png, OUT/<split>.json, what they were made by, and
OUT/<split>.png, some of them. Image i is a function of the set, the styles, the options and
i: started again, the command makes what is missing. To train on it: data='folder',
root=OUT. The style transfer `small` knows colours and sixteen textures, under which photographs
are hard to read: look at the sheet, lower --alpha, or take `vgg`, the published one.
"""

import argparse
import os
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jbias import build
from jbias.data import base, decoding
from jbias.data.forms import listing
from jbias.models import weight_files
from jbias.prepare import dataset

_WHERE, _TOGETHER, _EXAMPLES = "prepare stylize", 16, 8
SELF = "self"


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    dataset.add_options(parser, out="the folder to write into")
    add("--style", default=SELF, help="a folder of images, or self")
    add("--transfer", default="small", help="small, or vgg with --weights")
    add("--weights", default="", help="the file of that transfer")
    add("--alpha", type=float, default=1.0, help="how far to go, from 0 to 1")
    add("--seed", type=int, default=0, help="of who gets which style")


def run(args: argparse.Namespace) -> str:
    """Makes the missing images of one split; returns what it did.

    Raises ValueError, one line, for an unknown set, transfer or option, damaged images,
    and a folder that holds images of other settings.
    """
    alpha, seed, weights = args.alpha, args.seed, args.weights
    if not 0 <= alpha <= 1:
        raise ValueError(f"{_WHERE}: --alpha must be in [0, 1], got {alpha}")
    split = args.split.partition("[")[0]
    source = dataset.open_source(args)
    options = {"name": args.transfer} | ({"weights": weights} if weights else {})
    transfer = build.resolve_functions(_WHERE, {"transfer": options})
    styles = _Styles(args.style, source)
    folder = pathlib.Path(args.out).expanduser()
    own = {"made_by": "jbias.prepare stylize", **dataset.made_of(source)}
    own |= dict(style=styles.digest, alpha=alpha, seed=seed, transfer=args.transfer)
    own["weights"] = (
        weight_files.blob_id(weights) if os.path.isfile(weights) else weights
    )
    paths = dataset.image_paths(folder / split, source, "png", out=folder)
    dataset.claim(_WHERE, folder, split, own)
    made = _make(transfer["transfer"], source, styles, paths, alpha, seed)
    _show(folder / f"{split}.png", source, styles, paths, seed)
    summary = dataset.summary(folder, split, made, source)
    return f"{summary}; {folder / split}.png shows some"


class _Styles:
    """Images to take styles from, by number."""

    def __init__(self, style: str, source: base.Source):
        self._source, self._paths = source, []
        self.digest = source.fingerprint
        if style != SELF:
            style = os.path.expanduser(style)
            root = listing.require_folder(_WHERE, style, "--style")
            above, name = os.path.split(os.path.abspath(root))
            files = listing.scan(_WHERE, above, (name,), ignore=("*",))
            self._paths = [os.path.join(above, file) for file in files.names]
            self.digest = listing.digest(files)

    def chosen(self, index: int, seed: int) -> int:
        """Which style an image gets; of the set itself never its own."""
        rng = np.random.default_rng([seed, index])
        if self._paths:
            return int(rng.integers(len(self._paths)))
        n = len(self._source)
        return int((index + rng.integers(1, max(n, 2))) % n)

    def image(self, style: int) -> np.ndarray:
        """Decodes a style."""
        if not self._paths:
            return self._source[style]["image"]
        return decoding.read(self._paths[style], decoding.preprocess(self._source.size))


def _make(transfer, source, styles, paths, alpha, seed) -> int:
    """Makes the missing images; returns how many."""

    @jax.jit
    def run(content, style):
        content, style = (x.astype(jnp.float32) / 255 for x in (content, style))
        image = transfer({"image": content}, lambda tree: tree, alpha, {"image": style})
        height, width = content.shape[1:3]
        return jnp.rint(255 * jnp.clip(image[:, :height, :width], 0, 1))

    def read(block: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        content = np.stack([source[i]["image"] for i in block])
        style = np.stack([styles.image(styles.chosen(i, seed)) for i in block])
        return content, style

    todo = [i for i, path in enumerate(paths) if not path.exists()]
    blocks = [todo[i : i + _TOGETHER] for i in range(0, len(todo), _TOGETHER)]
    with dataset.map_ahead("stylising", read, blocks, len(todo), size=len) as pairs:
        for block, images in pairs:
            # The last block is filled up, so that all are of one program.
            whole = (np.resize(x, (_TOGETHER, *x.shape[1:])) for x in images)
            for i, image in zip(block, np.asarray(run(*whole)).astype(np.uint8)):
                dataset.write_image(paths[i], image, "PNG")
    return len(todo)


def _show(path: pathlib.Path, source, styles: _Styles, paths, seed: int) -> None:
    chosen = np.linspace(0, len(source) - 1, min(_EXAMPLES, len(source))).astype(int)
    rows = {
        "image": [source[i]["image"] for i in chosen.tolist()],
        "style": [styles.image(styles.chosen(i, seed)) for i in chosen.tolist()],
        "made": [dataset.read_image(paths[i]) for i in chosen],
    }
    dataset.write_sheet(str(path), rows, foot=source.cite)
