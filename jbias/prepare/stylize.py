r"""Make a stylised copy of a data set, as Stylized-ImageNet.

jbias prepare stylize --data=folder --root=photos --size=224 --out=photos-stylized
jbias prepare stylize --data=folder --root=photos --size=224 --style=paintings \
    --transfer=vgg --weights=vgg_adain.npz --out=photos-stylized

Writes the images OUT/<split>/<class>/<number>.png, their settings OUT/<split>.json, and a figure
with samples OUT/<split>.png. If you start the command again, it makes only the missing images:
each image depends only on the data set, the styles, the options and its number. To train on the
result, use data=folder,root=OUT in the config.

The style transfer `small` can transfer only colours and sixteen textures, and may make
photographs hard to recognise. If the figure with samples shows this, lower --alpha, or use
`vgg`, the published style transfer.
"""

import argparse
import os
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jbias import build
from jbias.data import base, decoding
from jbias.data.forms import listing
from jbias.models import weight_files
from jbias.prepare import dataset

_WHERE = "prepare stylize"
_BATCH = 16  # Images per call of the transfer.
_EXAMPLES = 8  # Images on the sheet.
SELF = "self"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare stylize` to its parser."""
    add = parser.add_argument
    dataset.add_options(parser, out="folder to write the images into")
    style_help = (
        "folder of style images, such as paintings, also in subfolders; or self, which "
    )
    style_help += "uses other images of the same data set as styles (default: self)"
    add("--style", default=SELF, metavar="DIR|self", help=style_help)
    transfer_help = (
        "style transfer: small (the network of this package) or vgg (the published "
    )
    transfer_help += "AdaIN, which needs --weights) (default: small)"
    add("--transfer", default="small", metavar="NAME", help=transfer_help)
    weights_help = (
        "weights file of the style transfer: for vgg, where it is required, a file "
    )
    weights_help += (
        "of `jbias prepare weights`; for small, a file of `jbias prepare style` "
    )
    weights_help += "(default for small: the weights in the package)"
    add("--weights", default="", metavar="FILE", help=weights_help)
    alpha_help = (
        "strength of the style, from 0 (the image keeps its own style) to 1 (the "
    )
    alpha_help += "style of the style image) (default: 1)"
    add("--alpha", type=float, default=1.0, metavar="SHARE", help=alpha_help)
    seed_help = "random seed that assigns styles to images (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed_help)


def run(args: argparse.Namespace) -> str:
    """Write the missing images; return a line with their count and the options that read them.

    Also write the sheet of samples. args: the flags of `add`. ValueError for an unknown data
    set, transfer or option, damaged images, and a folder with images of different settings.
    """
    alpha, seed, weights = args.alpha, args.seed, args.weights
    if not 0 <= alpha <= 1:
        raise ValueError(f"{_WHERE}: --alpha must be in [0, 1], got {alpha}")
    split = args.split.partition("[")[0]
    source = dataset.open_source(args)
    options = {"name": args.transfer}
    if weights:
        options["weights"] = weights
    transfer = build.resolve_functions(_WHERE, {"transfer": options})
    styles = _Styles(args.style, source)
    folder = pathlib.Path(args.out).expanduser()
    settings = {
        "made_by": "jbias.prepare stylize",
        **dataset.describe_source(source),
        "style": styles.digest,
        "alpha": alpha,
        "seed": seed,
        "transfer": args.transfer,
        "weights": (
            weight_files.blob_id(weights) if os.path.isfile(weights) else weights
        ),
    }
    paths = dataset.image_paths(folder / split, source, "png", out=folder)
    dataset.claim(_WHERE, folder, split=split, settings=settings)
    num_made = _make_images(
        transfer["transfer"],
        source,
        styles=styles,
        paths=paths,
        alpha=alpha,
        seed=seed,
    )
    _write_samples(
        folder / f"{split}.png", source, styles=styles, paths=paths, seed=seed
    )
    summary = dataset.summary(folder, split, num_made=num_made, source=source)
    return f"{summary}; {folder / split}.png shows some"


class _Styles:
    """The style images: the images of a folder, or of the data set itself.

    style: path of a folder of images, at any depth; SELF: the images of `source`.
    source: the images to stylise.
    digest: fingerprint of the style images.
    ValueError for a folder without images and, with SELF, for a source of a single image.
    """

    def __init__(self, style: str, source: base.Source):
        self._source, self._paths = source, []
        self.digest = source.fingerprint
        if style != SELF:
            style = os.path.expanduser(style)
            root = listing.require_folder(_WHERE, style, "--style")
            parent, name = os.path.split(os.path.abspath(root))
            files = listing.scan(_WHERE, parent, classes=(name,), ignore=("*",))
            self._paths = [os.path.join(parent, file) for file in files.names]
            self.digest = listing.digest(files)
        elif len(source) < 2:
            raise ValueError(
                f"{_WHERE}: --style={SELF} needs two images or more, got {len(source)}; name a "
                "folder of style images"
            )

    def choose(self, index: int, seed: int) -> int:
        """Return the index of a random style image for the source's image at `index`.

        The choice depends only on `seed`, `index` and the number of style images. With SELF, an
        image is never its own style.
        """
        rng = np.random.default_rng([seed, index])
        if self._paths:
            return int(rng.integers(len(self._paths)))
        n = len(self._source)
        return int((index + rng.integers(1, n)) % n)

    def image(self, style: int) -> dataset.Picture:
        """Return the style image at index `style`, in the size of the source's images."""
        if not self._paths:
            return self._source[style]["image"]
        return decoding.read(self._paths[style], decoding.preprocess(self._source.size))


def _make_images(
    transfer: Callable,
    source: base.Source,
    *,
    styles: _Styles,
    paths: Sequence[pathlib.Path],
    alpha: float,
    seed: int,
) -> int:
    """Stylise and write the images of a source that have no file yet; return their number.

    transfer: (batch, permute, alpha, style) -> images, from models.TRANSFERS.
    paths: paths of all images of the source. alpha: strength of the transfer, in [0, 1].
    seed: seed of the choice of styles.
    """

    @jax.jit
    def run(content, style):
        content, style = (x.astype(jnp.float32) / 255 for x in (content, style))
        image = transfer({"image": content}, lambda tree: tree, alpha, {"image": style})
        height, width = content.shape[1:3]
        return jnp.rint(255 * jnp.clip(image[:, :height, :width], 0, 1))

    def read(block: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        content = np.stack([source[i]["image"] for i in block])
        style = np.stack([styles.image(styles.choose(i, seed)) for i in block])
        return content, style

    missing = [i for i, path in enumerate(paths) if not path.exists()]
    blocks = [missing[i : i + _BATCH] for i in range(0, len(missing), _BATCH)]
    with dataset.map_ahead(
        "stylising", read, items=blocks, total=len(missing), size=len
    ) as results:
        for block, (content, style) in results:
            # The last block is padded, so that all blocks use one compiled program.
            shape = (_BATCH, *content.shape[1:])
            stylised = run(np.resize(content, shape), np.resize(style, shape))
            for i, image in zip(block, np.asarray(stylised).astype(np.uint8)):
                dataset.write_image(paths[i], image, "PNG")
    return len(missing)


def _write_samples(
    path: pathlib.Path,
    source: base.Source,
    *,
    styles: _Styles,
    paths: Sequence[pathlib.Path],
    seed: int,
) -> None:
    """Write a sheet to `path`: a row of up to 8 evenly spaced images, their styles, the results.

    paths: paths of the results, one for each image of the source. seed: see `_Styles.choose`.
    """
    count = min(_EXAMPLES, len(source))
    index = np.linspace(0, len(source) - 1, count).astype(int).tolist()
    rows = {
        "image": [source[i]["image"] for i in index],
        "style": [styles.image(styles.choose(i, seed)) for i in index],
        "made": [dataset.read_image(paths[i]) for i in index],
    }
    dataset.write_sheet(str(path), rows, foot=source.cite)
