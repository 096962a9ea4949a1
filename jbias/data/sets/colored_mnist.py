"""Colored MNIST: digits whose colour is a shortcut to the label, or independent of it.

Two classes, two colours (red 0, green 1), three environments. The label is 1 for digits
below 5, flipped with probability 0.25; the colour is the label, flipped with probability
e. Without colour, the accuracy is at most 75 %. Colour alone gives an accuracy of 1 - e.

    irm         e is 0.2 and 0.1 in the two training environments, which alternate between
                the first 50,000 training digits in random order. e is 0.9 in the test, which
                has the last 10,000 training digits. Images have every second pixel: 14 x 14.
    domainbed   e is 0.1 and 0.2 in the two training environments, and 0.9 in the test. Each
                environment has every third of all 70,000 digits in random order. Images have
                28 x 28 pixels.

Ten classes, four colours (red 0, yellow 1, green 2, blue 3). The share of each digit's images
in each colour is exact, up to rounding: a share c has the digit's two main colours, half each,
and the remaining images have the two remaining colours. c is `correlation`, by default 1 in
"train" and 0 in "test". The main colours are

    marginal    red and yellow for every digit
    conditional red and yellow for digits 0 to 4, green and blue for 5 to 9
    joint       red and yellow for digits 0 to 4, yellow and green for 5 to 9
    uniform     none: a quarter of each digit's images in each colour
    red, yellow, green, blue
                every image in that colour

Sources: irm, Arjovsky, Bottou, Gulrajani and Lopez-Paz 2019, with the authors' code,
https://github.com/facebookresearch/InvariantRiskMinimization at fc185d0,
code/colored_mnist/main.py. domainbed, https://github.com/facebookresearch/DomainBed at
b93c22a, domainbed/datasets.py. Ten classes: Hu, Sang, Wang and Jiang 2021, who give the
colours and the kinds of shift, but not the shares. The two channels of irm and domainbed are red
and green here, and blue is 0. As in the code, and unlike irm's text, red goes with label 0.
Deviation: the draws are NumPy's.
"""

import numbers
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from jbias import errors
from jbias.data import decoding, sets, sources, tables
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets import split_files

SPLITS = ("train", "train_0", "train_1", "test")
PALETTE = {
    "red": (1, 0, 0),
    "yellow": (1, 1, 0),
    "green": (0, 1, 0),
    "blue": (0, 0, 1),
}
# e of each environment.
FLIPS = {"irm": (0.2, 0.1, 0.9), "domainbed": (0.1, 0.2, 0.9)}
_WARM, _COLD, _MIDDLE = (0, 1), (2, 3), (1, 2)
# The main colours of digits 0 to 4, and of 5 to 9.
PAIRS = {
    "marginal": (_WARM, _WARM),
    "conditional": (_WARM, _COLD),
    "joint": (_WARM, _MIDDLE),
}
FORMS = (*FLIPS, *PAIRS, "uniform", *PALETTE)
# Default sizes in pixels.
SIZES: Mapping[str, int] = dict.fromkeys(FORMS, 32) | {"irm": 14, "domainbed": 28}
_DIGITS = """\
digits: LeCun, Bottou, Bengio and Haffner: Gradient-Based Learning Applied to Document \
Recognition. Proceedings of the IEEE 86, 1998"""
_CITE_DOMAINBED = f"""\
Gulrajani and Lopez-Paz: In Search of Lost Domain Generalization. ICLR 2021, \
https://arxiv.org/abs/2007.01434; after Arjovsky, Bottou, Gulrajani and Lopez-Paz: \
Invariant Risk Minimization. 2019, https://arxiv.org/abs/1907.02893; {_DIGITS}"""
_CITE_TEN_CLASSES = f"""\
Hu, Sang, Wang and Jiang: Understanding and Testing Generalization of Deep Networks on \
Out-of-Distribution Data. 2021, https://arxiv.org/abs/2111.09190; {_DIGITS}"""
_ENVIRONMENTS = {"train": (0, 1), "train_0": (0,), "train_1": (1,), "test": (2,)}


def make(
    split: str,
    *,
    root: str,
    form: str = "irm",
    correlation: float | None = None,
    label_noise: float | None = None,
    grey: bool = False,
    n: int | None = None,
    seed: int = 0,
    size: int | None = None,
    resize: int | None = None,
) -> sources.ArraySource:
    """Return the source of a split of coloured digits from MNIST's published files.

    Columns in addition to "label": "digit", "attribute" (the colour) and, for two classes,
    "domain" (the environment 0, 1 or 2).

    split: "train" or "test"; for two classes also "train_0" or "train_1", a single training
      environment; "train" alternates between the two. Also a part of every class in the first
      n images, such as "train[:90%]".
    root: the folder of MNIST's files.
    form: one of FORMS, see the module's docstring.
    correlation: rate at which colour and label agree, in all environments of the split:
      1 - e, or the share c. Default: the form's own.
    label_noise: rate at which labels of two classes are flipped. Default: 0.25.
    grey: True draws all digits in grey, as a control without the shortcut; columns stay the same.
    n: use the first n images of the split, which do not depend on n. Default: all.
    seed: of environments, labels and colours.
    size, resize: see decoding.preprocess. Default size: 14 (irm), 28 (domainbed) or 32.
    ValueError for arguments that are out of range or not used by the form, base.Missing without
    MNIST's files.
    """
    where = f"data.colored_mnist {split}"
    parsed_split = listing.parse_split(where, split)
    _check(
        where,
        parsed_split.base,
        form=form,
        correlation=correlation,
        label_noise=label_noise,
        grey=grey,
        seed=seed,
    )
    if form in FLIPS:
        flips = FLIPS[form] if correlation is None else (1 - correlation,) * 3
        noise = 0.25 if label_noise is None else label_noise
        drawn = _draw_environments(
            root, parsed_split.base, form=form, flips=flips, noise=noise, seed=seed
        )
        colours, classes = ("red", "green"), ("5-9", "0-4")
    else:
        share = (
            float(parsed_split.base == "train") if correlation is None else correlation
        )
        drawn = _draw_shares(root, parsed_split.base, form=form, share=share, seed=seed)
        colours, classes = tuple(PALETTE), tables.class_names("mnist")
    count = len(drawn.pixels) if n is None else n
    errors.check_whole(where, count, low=1, high=len(drawn.pixels), name="n")
    columns = {
        name: column[:count].astype(np.int32) for name, column in drawn.columns.items()
    }
    files = split_files.SplitFiles(
        name=f"colored_mnist/{form}",
        split=split,
        where=where,
        root=root,
        part=parsed_split,
        transform=decoding.preprocess(
            SIZES[form] if size is None else size, resize, native=True
        ),
    )
    images = _paint(
        drawn.pixels[:count],
        columns["attribute"],
        palette=[PALETTE[colour] for colour in colours],
        grey=grey,
    )
    return files.build_arrays(
        images,
        labels=columns.pop("label"),
        classes=classes,
        columns=columns,
        steps_before="every second pixel; " if form == "irm" else "",
        measures=("accuracy", "groups"),
        note=drawn.note,
        values={"attribute": colours},
        cite=_cite(form),
    )


def _check(
    where: str,
    split: str,
    *,
    form: str,
    correlation: float | None,
    label_noise: float | None,
    grey: bool,
    seed: int,
) -> None:
    """Raise ValueError for arguments of `make` that are out of range or not used by the form.

    split: name without a part. None: the argument is left out. where: start of error messages.
    """
    errors.check_known(where, form, FORMS, "form", must="be a known one")
    splits = SPLITS if form in FLIPS else ("train", "test")
    errors.check_known(
        where, split, splits, f"split of form {form!r}", must="be a known one"
    )
    known = {"correlation": (*FLIPS, *PAIRS), "label_noise": tuple(FLIPS)}
    for value, (name, forms) in zip((correlation, label_noise), known.items()):
        must, got = f"{where}: {name} must be", f"got {value!r}"
        if value is not None and form not in forms:
            must = f"{must} left out of form {form!r}, {got}"
            raise ValueError(f"{must}; it applies to {', '.join(forms)}")
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value <= 1):
            raise ValueError(f"{must} a number in [0, 1], {got}")
    if type(grey) is not bool:
        raise ValueError(f"{where}: grey must be True or False, got {grey!r}")
    errors.check_whole(where, seed, low=0, name="seed")


def _cite(form: str) -> str:
    """Return the citation of a form."""
    if form == "irm":
        return sets.DATASETS["colored_mnist"].cite
    return _CITE_DOMAINBED if form == "domainbed" else _CITE_TEN_CLASSES


class _Drawn(NamedTuple):
    """Grey digits of a split with their columns, before colouring."""

    pixels: UInt8[np.ndarray, "n h w"]
    columns: dict[str, np.ndarray]  # "label", "attribute", "digit" and maybe "domain".
    note: str  # The notes of MNIST's sources.


def _read(
    root: str, splits: Names
) -> tuple[UInt8[np.ndarray, "n h w"], Int[np.ndarray, "n"], str]:
    """Return the pixels, the digits and the notes of splits of MNIST, concatenated."""
    originals = [sets.DATASETS["mnist"].open(split, root=root) for split in splits]
    pixels = np.concatenate([source.images[..., 0] for source in originals])
    digits = np.concatenate([source.columns["label"] for source in originals])
    notes = [f"MNIST: {source.note}" for source in originals if source.note]
    return pixels, digits, "; ".join(notes)


def _generator(form: str, purpose: str, seed: int) -> np.random.Generator:
    """Return the random generator of one kind of draw.

    purpose: name of the kind of draw, such as "colour/0", the colours of environment 0.
    """
    return np.random.default_rng([seed, zlib.crc32(f"{form}/{purpose}".encode())])


def _draw_environments(
    root: str,
    split: str,
    *,
    form: str,
    flips: Sequence[float],
    noise: float,
    seed: int,
) -> _Drawn:
    """Return the grey digits of a split with two classes, in turn from its environments.

    The columns are "label", "attribute", "digit" and "domain". For "irm", images have every
    second pixel along both axes. root, split, form, seed: see `make`. flips: rate e of flipped
    colours in each of the three environments. noise: rate of flipped labels.
    """
    if form == "irm":
        splits, step = ("train",), 2
    else:
        splits, step = ("train", "test"), 1
    pixels, digits, note = _read(root, splits)
    index_of_domain, environments = _split_environments(form, len(digits), seed), []
    for domain in _ENVIRONMENTS[split]:
        index = index_of_domain[domain]
        n = len(index)
        label_draws = _generator(form, f"label/{domain}", seed).random(n)
        colour_draws = _generator(form, f"colour/{domain}", seed).random(n)
        label = (digits[index] < 5) ^ (label_draws < noise)
        columns = {
            "label": label,
            "attribute": label ^ (colour_draws < flips[domain]),
            "digit": digits[index],
            "domain": np.full(n, domain),
            "index": index,
            "turn": np.arange(n),
        }
        environments.append(columns)
    joined = {
        name: np.concatenate([columns[name] for columns in environments])
        for name in environments[0]
    }
    order = np.argsort(joined.pop("turn"), kind="stable")
    joined = {name: column[order] for name, column in joined.items()}
    pixels = pixels[joined.pop("index")][:, ::step, ::step]
    return _Drawn(pixels, joined, note)


def _split_environments(form: str, n: int, seed: int) -> list[Int[np.ndarray, "m"]]:
    """Return the indices of the digits in each of the three environments.

    form: "irm" or "domainbed". n: number of digits.
    """
    num_shuffled = n if form == "domainbed" else n * 5 // 6
    order = _generator(form, "order", seed).permutation(num_shuffled)
    if form == "domainbed":
        return [order[domain::3] for domain in range(3)]
    return [order[0::2], order[1::2], np.arange(num_shuffled, n)]


def _draw_shares(
    root: str, split: str, *, form: str, share: float, seed: int
) -> _Drawn:
    """Return the grey digits of a split with ten classes, in random order.

    The columns are "label" and "digit", which are equal, and "attribute".
    root, split, form, seed: see `make`. share: share of each digit's images in its main
    colours.
    """
    pixels, digits, note = _read(root, (split,))
    order = _generator("shift", f"order/{split}", seed).permutation(len(digits))
    pixels, digits = pixels[order], digits[order]
    rng = _generator("shift", f"colour/{split}", seed)
    colour = np.empty(len(digits), np.int64)
    for digit, shares in enumerate(_table(form, share)):
        members = np.flatnonzero(digits == digit)
        counts = _round_to_total(len(members), shares)
        colour[members] = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    columns = {"label": digits, "attribute": colour, "digit": digits}
    return _Drawn(pixels, columns, note)


def _table(form: str, share: float) -> Float[np.ndarray, "10 4"]:
    """Return the share of each colour (column) among the images of each digit (row).

    form: a form of ten classes. share: share of the main colours together.
    """
    table = np.full((10, len(PALETTE)), 1 / len(PALETTE))
    if form in PALETTE:
        table[:] = np.eye(len(PALETTE))[[*PALETTE].index(form)]
    elif form in PAIRS:
        table[:] = (1 - share) / 2
        for digits, pair in zip((slice(0, 5), slice(5, 10)), PAIRS[form]):
            table[digits, list(pair)] = share / 2
    return table


def _round_to_total(total: int, shares: Float[np.ndarray, "k"]) -> Int[np.ndarray, "k"]:
    """Return shares of `total`, rounded by largest remainders to integers with the sum `total`.

    Of equal remainders the first is rounded up.
    """
    exact = np.round(total * shares, 9)
    counts = np.floor(exact).astype(np.int64)
    largest = np.argsort(counts - exact, kind="stable")
    counts[largest[: total - counts.sum()]] += 1
    return counts


def _paint(
    pixels: UInt8[np.ndarray, "n h w"],
    colour: Int[np.ndarray, "n"],
    *,
    palette: Sequence[tuple[int, int, int]],
    grey: bool,
) -> UInt8[np.ndarray, "n h w 3"]:
    """Return the grey digits in colour on black: intensity times colour.

    colour: index in `palette` of each image. palette: colours of 0 and 1 per channel.
    grey: True uses white instead of all colours.
    """
    tint = np.array([(1, 1, 1)] * len(palette) if grey else palette, np.uint8)
    return pixels[..., None] * tint[colour][:, None, None]
