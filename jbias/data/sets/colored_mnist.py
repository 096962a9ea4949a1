"""Colored MNIST: digits whose colour is a shortcut to the label, or independent of it.

Two classes, two colours (red 0, green 1), three environments. The label is 1 for digits
below 5, flipped with probability 0.25; the colour is the label, flipped with probability
e. Without colour no learner gets beyond 75 %; by colour alone it gets 1 - e.

    irm         e = 0.2 and 0.1 in training, 25,000 images each, every other one of the
                first 50,000 training digits in random order; 0.9 in the test, the last
                10,000 training digits. 14 pixels: every second one.
    domainbed   e = 0.1 and 0.2 in training, 0.9 in the test: every third of all 70,000
                digits in random order. 28 pixels.

Ten classes, four colours (red 0, yellow 1, green 2, blue 3). Of each digit, exact shares
of the images have each colour, up to rounding: a share c one of two colours, evenly, the
others one of the other two. c is 1 in "train" and 0 in "test" unless `correlation` says.

    marginal    the two are red and yellow for every digit
    conditional red and yellow for digits 0 to 4, green and blue for 5 to 9
    joint       red and yellow for digits 0 to 4, yellow and green for 5 to 9
    uniform     a quarter of each digit in each colour
    red, yellow, green, blue
                every image in that colour

Sources: irm, Arjovsky, Bottou, Gulrajani and Lopez-Paz 2019, with the authors' code,
https://github.com/facebookresearch/InvariantRiskMinimization at fc185d0,
code/colored_mnist/main.py. domainbed, https://github.com/facebookresearch/DomainBed at
b93c22a, domainbed/datasets.py. Ten classes: Hu, Sang, Wang and Jiang 2021, who give the
colours and the kinds of shift, but no shares in numbers. The two channels of the first
two are red and green here, blue is 0; as in the code, and unlike irm's text, red goes with
label 0. Deviation: the draws are NumPy's.
"""

import numbers
import zlib
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int, UInt8

from jbias.data import base, decoding, sources, tables
from jbias.data.forms import listing
from jbias.data.sets import arrays, folder, mnist

SPLITS = ("train", "train_0", "train_1", "test")
PALETTE = dict(red=(1, 0, 0), yellow=(1, 1, 0), green=(0, 1, 0), blue=(0, 0, 1))
# e of each environment.
FLIPS = dict(irm=(0.2, 0.1, 0.9), domainbed=(0.1, 0.2, 0.9))
# The colours of digits 0 to 4, and of 5 to 9, where the share is 1.
_WARM, _COLD, _MIDDLE = (0, 1), (2, 3), (1, 2)
_FIVE_TO_NINE = dict(marginal=_WARM, conditional=_COLD, joint=_MIDDLE)
PAIRS = {form: (_WARM, others) for form, others in _FIVE_TO_NINE.items()}
FORMS = (*FLIPS, *PAIRS, "uniform", *PALETTE)
# In pixels, unless asked for others.
SIZES: Mapping[str, int] = dict.fromkeys(FORMS, 32) | {"irm": 14, "domainbed": 28}
_CITED = {"irm": "colored_mnist", "domainbed": "colored_mnist/domainbed"}
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
    """Colours MNIST's digits, whose published files lie in `root`.

    split: "train" and "test"; of two classes also "train_0" and "train_1", the training
    environments alone, which "train" has in turn. Columns beside "label": "digit",
    "attribute", the colour, and of two classes "domain", the environment 0, 1 or 2.
    form: one of those above.
    correlation: how often the colour agrees with the label, in all environments of the
    split: 1 - e, or the share c; None is the form's own.
    label_noise: how often a label of two classes is flipped, 0.25 if None.
    grey: shows no colours: the control that cannot use them.
    n: the first n images of the split, the same whatever n; all if None.
    size: pixels; 14, 28 or, of ten classes, 32 if None.
    """
    where = f"data.colored_mnist {split}"
    part = listing.parse_split(where, split)
    _check(where, part.base, form, correlation, label_noise, grey, seed)
    if form in FLIPS:
        flips = FLIPS[form] if correlation is None else (1 - correlation,) * 3
        noise = 0.25 if label_noise is None else label_noise
        pixels, columns, note = _environments(root, part.base, form, flips, noise, seed)
        colours, classes = ("red", "green"), ("5-9", "0-4")
    else:
        share = float(part.base == "train") if correlation is None else correlation
        pixels, columns, note = _shifted(root, part.base, form, share, seed)
        colours, classes = tuple(PALETTE), tables.class_names("mnist")
    count, palette = len(pixels) if n is None else n, [PALETTE[one] for one in colours]
    base.check_int(f"{where}: n", count, 1, len(pixels))
    columns = {key: column[:count].astype(np.int32) for key, column in columns.items()}
    size = SIZES[form] if size is None else size
    transform = decoding.preprocess(size, resize, native=True)
    asked = f"colored_mnist/{form}", split, where, root, part, transform
    about = dict(measures=("accuracy", "groups"), note=note)
    about["values"] = {"attribute": colours}
    about["cite"] = tables.cite(_CITED.get(form, "colored_mnist/shifts"))
    about["before"] = "every second pixel; " if form == "irm" else ""
    images = _painted(pixels[:count], columns["attribute"], palette, grey)
    of = folder.Request(*asked), images, columns.pop("label"), classes
    return arrays.build(*of, columns=columns, **about)


def _check(where, split, form, correlation, label_noise, grey, seed) -> None:
    """Raises ValueError, one line, for arguments outside their range."""
    base.check_known(f"{where}: form must be a known one", form, FORMS)
    splits = SPLITS if form in FLIPS else ("train", "test")
    what = f"{where}: split of form {form!r} must be a known one"
    base.check_known(what, split, splits)
    known = {"correlation": (*FLIPS, *PAIRS), "label_noise": tuple(FLIPS)}
    for value, (name, forms) in zip((correlation, label_noise), known.items()):
        must, got = f"{where}: {name} must be", f"got {value!r}"
        if value is not None and form not in forms:
            must = f"{must} left out of form {form!r}, {got}"
            raise ValueError(f"{must}; it has a say in {', '.join(forms)}")
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value <= 1):
            raise ValueError(f"{must} a number in [0, 1], {got}")
    if type(grey) is not bool:
        raise ValueError(f"{where}: grey must be True or False, got {grey!r}")
    base.check_int(f"{where}: seed", seed, 0)


def _read(root, *splits):
    """The digits of these splits of MNIST, their labels, and what is unlike published."""
    asked = [folder.request("mnist", split, root=root) for split in splits]
    found = [mnist.read(one) for one in asked]
    pixels = np.concatenate([one.images[..., 0] for one in found])
    digits = np.concatenate([one.columns["label"] for one in found])
    return pixels, digits, "; ".join(f"MNIST: {one.note}" for one in found if one.note)


def _generator(form: str, purpose: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(f"{form}/{purpose}".encode())])


def _environments(root, split, form, flips, noise, seed):
    """Two classes: the environments of the split, in turn."""
    splits, step = (("train",), 2) if form == "irm" else (("train", "test"), 1)
    pixels, digits, note = _read(root, *splits)
    parts, found = _parts(form, len(digits), seed), []
    for domain in _ENVIRONMENTS[split]:
        index = parts[domain]
        rngs = [_generator(form, f"{k}/{domain}", seed) for k in ("label", "colour")]
        flipped, other = (rng.random(len(index)) for rng in rngs)
        label = (digits[index] < 5) ^ (flipped < noise)
        colour = label ^ (other < flips[domain])
        columns = {"label": label, "attribute": colour, "digit": digits[index]}
        domains, turn = np.full(len(index), domain), np.arange(len(index))
        found.append({**columns, "domain": domains, "index": index, "turn": turn})
    joined = {key: np.concatenate([one[key] for one in found]) for key in found[0]}
    order = np.argsort(joined.pop("turn"), kind="stable")
    joined = {key: column[order] for key, column in joined.items()}
    return pixels[joined.pop("index")][:, ::step, ::step], joined, note


def _parts(form: str, n: int, seed: int) -> list[Int[np.ndarray, "m"]]:
    """Which of n digits are in each of the three environments."""
    train = n if form == "domainbed" else n * 5 // 6
    order = _generator(form, "order", seed).permutation(train)
    if form == "domainbed":
        return [order[domain::3] for domain in range(3)]
    return [order[0::2], order[1::2], np.arange(train, n)]


def _shifted(root, split, form, share, seed):
    """Ten classes: one of MNIST's own splits, in random order."""
    pixels, digits, note = _read(root, split)
    order = _generator("shift", f"order/{split}", seed).permutation(len(digits))
    pixels, digits = pixels[order], digits[order]
    rng = _generator("shift", f"colour/{split}", seed)
    colour = np.empty(len(digits), np.int64)
    for digit, shares in enumerate(_table(form, share)):
        members = np.flatnonzero(digits == digit)
        counts = _rounded(len(members), shares)
        colour[members] = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    return pixels, {"label": digits, "attribute": colour, "digit": digits}, note


def _table(form: str, share: float) -> Float[np.ndarray, "10 4"]:
    """The share of each colour among the images of each digit."""
    table = np.full((10, len(PALETTE)), 1 / len(PALETTE))
    if form in PALETTE:
        table[:] = np.eye(len(PALETTE))[[*PALETTE].index(form)]
    elif form in PAIRS:
        table[:] = (1 - share) / 2
        for digits, pair in zip((slice(0, 5), slice(5, 10)), PAIRS[form]):
            table[digits, list(pair)] = share / 2
    return table


def _rounded(total: int, shares: Float[np.ndarray, "k"]) -> Int[np.ndarray, "k"]:
    """Whole numbers that sum to `total`, by largest remainders, the first where equal."""
    exact = np.round(total * shares, 9)
    counts = np.floor(exact).astype(np.int64)
    largest = np.argsort(counts - exact, kind="stable")
    counts[largest[: total - counts.sum()]] += 1
    return counts


def _painted(pixels, colour, palette, grey) -> UInt8[np.ndarray, "n h w 3"]:
    """Intensity times colour, on black."""
    tint = np.array([(1, 1, 1)] * len(palette) if grey else palette, np.uint8)
    return pixels[..., None] * tint[colour][:, None, None]
