"""Sets of the 1000 classes of ILSVRC-2012, whatever their classes are called on disk.

Known are WordNet ids; the numbers 0 to 999, as folders or as labels of shards; and the
spoken names that Hugging Face's copies have. All come to one order, that of
wordnet.wnids(): folder "10" is class 10 and not the third, as it sorts.
"""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jbias.data import folder, forms, listing, spec, wordnet

_WNID = re.compile(r"n\d{8}")
_SPOKEN = {0: "tench", 999: "toilet tissue"}  # How Hugging Face's names begin.


def find(
    where: str,
    root: str,
    split: str,
    *,
    spellings: Sequence[str] = (),
    ignore: Sequence[str] = (),
    classes: str = "",
    subset: bool = False,
) -> tuple[forms.Listing, listing.Split]:
    """Finds a split as forms.find does; its classes are WordNet ids in their order.

    `classes` is a file of class names for shards whose labels are numbers. Raises
    ValueError for a class that is none of the 1000, and for one that is missing unless
    `subset` says that some of them are meant.
    """
    found, part = forms.find(where, root, split, spellings=spellings, ignore=ignore)
    ids, numbered = _positions(where, found, classes)
    ids = ids[found.files.labels]
    return ordered(where, found, ids, subset=subset, numbered=numbered), part


def ordered(
    where: str,
    found: forms.Listing,
    ids: Int[np.ndarray, "n"],
    *,
    subset: bool,
    numbered: bool = False,
) -> forms.Listing:
    """Labels images by which of the 1000 each is, and puts them in that order.

    Raises ValueError for a class that is missing, unless `subset` says that some are
    meant and names, rather than numbers, tell which.
    """
    present = np.unique(ids)
    if len(present) < len(wordnet.wnids()):
        _incomplete(where, present, numbered, subset)
    labels = np.searchsorted(present, ids).astype(np.int32)
    order = np.argsort(labels, kind="stable")
    return found._replace(
        store=found.store.take(order),
        files=found.files._replace(labels=labels).take(order),
        classes=tuple(wordnet.wnids()[i] for i in present),
    )


def _positions(
    where: str, found: forms.Listing, path: str
) -> tuple[Int[np.ndarray, "k"], bool]:
    """Which of the 1000 each label is, and whether numbers alone say so."""
    known = wordnet.wnids()
    if not path and found.classes is None:
        if found.files.labels.max() >= len(known):
            raise ValueError(
                f"{where}: labels must be 0 to {len(known) - 1}, in the order of"
                f" WordNet, got {found.files.labels.max()}; name the classes by"
                " classes=<file>, a WordNet id a line"
            )
        return np.arange(len(known)), True
    names = folder.named(where, found, path)
    if all(name.isdecimal() for name in names):
        return _numbers(where, names), True
    if len(names) == len(known) and all(
        names[i].startswith(text) for i, text in _SPOKEN.items()
    ):
        return np.arange(len(known)), False
    wrong = [name for name in names if name not in known]
    if wrong:
        hint = "name classes by WordNet ids, or by the numbers 0 to 999 in their order"
        if _WNID.fullmatch(wrong[0]):
            hint = spec.did_you_mean(wrong[0], known)
        raise ValueError(
            f"{where}: classes must be among the {len(known):,} of ILSVRC-2012,"
            f" {len(wrong):,} of {len(names):,} are not, first {wrong[0]!r}; {hint}"
        )
    return wordnet.positions(names), False


def _numbers(where: str, names: Sequence[str]) -> Int[np.ndarray, "k"]:
    ids = np.array([int(name) for name in names])
    if len(np.unique(ids)) < len(ids) or ids.max() >= len(wordnet.wnids()):
        raise ValueError(
            f"{where}: folders with numbers must be 0 to 999, each once, got"
            f" {len(ids):,} from {ids.min()} to {ids.max()}; number them in the order"
            " of WordNet, from 0"
        )
    return ids


def _incomplete(where: str, present, numbered: bool, subset: bool) -> None:
    """Refuses some of the classes, unless they are named and asked for."""
    known = wordnet.wnids()
    lost = sorted({*range(len(known))} - {*present.tolist()})
    if subset and not numbered:
        return
    remedy = (
        "if only some are meant, set subset=True (an argument of configs, an --options of"
        " `prepare check`)"
    )
    if subset:
        remedy = (
            "numbers tell classes only where all are there, so that some must be named:"
            " by folders, or for shards by classes=<file>, a WordNet id a line"
        )
    raise ValueError(
        f"{where}: all {len(known):,} classes must be there, {len(lost):,} are missing,"
        f" first {known[lost[0]]!r} (number {lost[0]}); {remedy}"
    )
