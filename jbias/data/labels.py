"""Maps the classes that a network was trained on to those that a test set asks for.

By names inside one label space, from WordNet ids to Geirhos' 16 classes, or by a user's own
CSV file with the columns `train_class` and `test_class`: one line for each class of the
network that is used; a class without a line is not. Several may answer for one class of the
test, none for two. Other columns are ignored.
"""

import functools
import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jbias.data import base, set_options, tables
from jbias.data.base import Names

AGGREGATES = ("mean_prob", "sum_prob", "max_prob", "mean_logit")


class ClassMap(NamedTuple):
    """How a network's answers become decisions, and what the right decision is.

    matrix[i, c] > 0 where training class i is a member of decision class c. With
    p = softmax(logits), decision = argmax_c of the members' mean, sum or maximum of p,
    or of their mean logit, as `aggregate` says: argmax(p @ matrix), or argmax(logits @
    matrix) for the last. Without a matrix it is argmax(logits). A class with relabel -1
    can never be answered.
    """

    classes: tuple[str, ...]  # Decision id -> name.
    matrix: Float[np.ndarray, "k_train k_decision"] | None
    relabel: Int[np.ndarray, "k_test"]  # Test class id -> decision id, or -1.
    aggregate: str = "mean_prob"

    @property
    def digest(self) -> str | None:
        """Tells whether a mapping is still the same; None where there is none."""
        if self.matrix is None:
            return None
        text = f"{self.classes} {self.relabel.tolist()} {self.aggregate}"
        return hashlib.sha256(text.encode() + self.matrix.tobytes()).hexdigest()[:16]

    @property
    def description(self) -> str:
        """The rule in words, for tables."""
        if self.matrix is None:
            return f"argmax over the network's {len(self.classes):,} classes"
        used = np.count_nonzero(self.matrix.any(1))
        told = f"argmax of {self.aggregate} over {len(self.classes):,} classes"
        return f"{told}, answered by {used:,} of the network's {len(self.matrix):,}"


class LabelSpace(NamedTuple):
    """The classes of a network, or of a test; as text, how many, and the first."""

    classes: tuple[str, ...]
    space: str

    def __str__(self) -> str:
        some = ", ".join(self.classes[:2]) + (", ..." if len(self.classes) > 2 else "")
        return f"{len(self.classes):,} of {self.space!r} ({some})"


def match(
    train_classes: Names,
    train_space: str,
    test_classes: Names,
    test_space: str,
    *,
    aggregate: str = "mean_prob",
    mapping: str | None = None,
    restrict: bool = False,
) -> ClassMap:
    """Maps the classes of a trained network to those of a test set, by their names.

    Inside one space decisions are training classes; a test class that training lacks
    is refused. WordNet ids answer Geirhos' 16 classes c by S_c, the members of c among
    the training classes; c without a member gets a zero column and relabel -1.
    `mapping`, a CSV file as `read_mapping` reads it, goes before both and decides among
    the test's classes. `restrict` leaves only the test's classes to choose among: of
    1000 logits the 200 columns of ImageNet-A or ImageNet-R, as their authors have it.

    The mean of probabilities is the published rule for 16 classes. "mean_logit", as
    BiasBed's release has it, puts large classes at a disadvantage.
    Source: Geirhos et al. 2019; model-vs-human at 79ed7cd, decision_mappings.py:30-52;
    natural-adv-examples at 0777070, eval.py; imagenet-r at 3131cac, eval.py:23-70.

    base.Mismatch, a ValueError, where training lacks classes; ValueError for wrong arguments.
    """
    if aggregate not in AGGREGATES:
        must = f"data.labels: aggregate must be one of {', '.join(AGGREGATES)}"
        raise ValueError(f"{must}, got {aggregate!r}")
    train = LabelSpace(tuple(train_classes), train_space)
    test = LabelSpace(tuple(test_classes), test_space)
    remedy = f"; training has {train}, the test {test}"
    with base.explained("", ValueError, remedy=remedy):
        found = _find(train, test, aggregate, mapping)
    return _restricted(found, len(train.classes)) if restrict else found


@functools.cache
def geirhos16() -> Mapping[str, tuple[str, ...]]:
    """Geirhos' 16 classes, in alphabetical order, and the WordNet ids of each."""
    classes = tables.read("geirhos16")["classes"]
    return {name: tuple(wnids) for name, wnids in classes.items()}


def _find(train, test, aggregate, mapping) -> ClassMap:
    if mapping:
        pairs = read_mapping(mapping, train.classes, test.classes)
        return _grouped(pairs, train.classes, test.classes, test.classes, aggregate)
    if train.space == test.space:
        return _by_name(train.classes, test.classes)
    if (train.space, test.space) == ("wnid", "entry16"):
        return _sixteen(train.classes, test.classes, aggregate)
    must = "label spaces must be the same, or 'wnid' for training and 'entry16' for the"
    got = f"test, got {train.space!r} and {test.space!r}; test on a set of the same"
    raise base.Mismatch(f"data.labels: {must} {got} classes, or write a mapping")


def _by_name(train: tuple[str, ...], test: tuple[str, ...]) -> ClassMap:
    ids = {name: label for label, name in enumerate(train)}
    lacking = [name for name in test if name not in ids]
    if lacking:
        hint = base.did_you_mean(lacking[0], train)
        must = "data.labels: training must have every class of the test"
        got = f"{len(lacking)} of {len(test)} lack, first {lacking[0]!r}; {hint}"
        raise base.Mismatch(f"{must}, {got}; or write a mapping of those in common")
    return ClassMap(train, None, np.array([ids[name] for name in test], np.int32))


def _sixteen(train: tuple[str, ...], test: tuple[str, ...], aggregate: str) -> ClassMap:
    table = geirhos16()
    for name in test:
        what = "data.labels: classes of 'entry16' must be Geirhos' 16"
        base.check_known(what, name, table)
    entry = {wnid: name for name, wnids in table.items() for wnid in wnids}
    pairs = {wnid: entry[wnid] for wnid in train if wnid in entry}
    if not pairs:
        must = "data.labels: some training classes must be members of Geirhos' 16"
        got = f"none of {len(train)} is; train on classes of ImageNet"
        raise base.Mismatch(f"{must}, {got}")
    return _grouped(pairs, train, tuple(table), test, aggregate)


def _grouped(pairs, train, decisions, test, aggregate) -> ClassMap:
    """Answers `decisions` by the training classes that `pairs` give to each."""
    ids = {name: i for i, name in enumerate(decisions)}
    matrix = np.zeros((len(train), len(decisions)), np.float32)
    for i, name in enumerate(train):
        if name in pairs:
            matrix[i, ids[pairs[name]]] = 1
    members = matrix.sum(0)
    if aggregate in ("mean_prob", "mean_logit"):
        matrix /= np.maximum(members, 1)
    relabel = [ids[name] if members[ids[name]] else -1 for name in test]
    return ClassMap(decisions, matrix, np.array(relabel, np.int32), aggregate)


def _restricted(found: ClassMap, k_train: int) -> ClassMap:
    """Keeps the columns of the test's classes, in the order of these.

    A lone member is its own mean, sum and maximum. By its logit it is compared without
    a rounding.
    """
    kept = found.relabel >= 0
    columns, (matrix, aggregate) = found.relabel[kept], (found.matrix, found.aggregate)
    if matrix is None:
        matrix, aggregate = np.eye(k_train, dtype=np.float32), "mean_logit"
    relabel = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    classes = tuple(found.classes[i] for i in columns)
    return ClassMap(classes, matrix[:, columns], relabel, aggregate)


MAPPING_COLUMNS = ("train_class", "test_class")


def read_mapping(path: str, train: Names, test: Names) -> dict[str, str]:
    """Reads {training class: test class}; every line must name known classes.

    base.Mismatch where none of the training classes is known: it is of another network.
    """
    pairs, lines = {}, _mapping_lines(path)
    kind = ValueError if any(one in train for _, one, _ in lines) else base.Mismatch
    for where, one, other in lines:
        must = f"{where}: train_class must be a class of training"
        base.check_known(must, one, train, kind)
        must = f"{where}: test_class must be a class of the test"
        base.check_known(must, other, test, kind)
        if one in pairs:
            must = f"{where}: a class of training must be mapped once"
            got = f"got {one!r} for {pairs[one]!r} and again for {other!r}"
            raise ValueError(f"{must}, {got}; leave one line")
        pairs[one] = other
    if not pairs:
        must = "a mapping must have a line for some class"
        raise ValueError(f"{path}: {must}, got the header alone")
    return pairs


def _mapping_lines(path: str) -> list[tuple[str, str, str]]:
    """Of each line its place and the two cells, without the spaces around them."""
    with base.explained(
        f"{path}: a mapping must be a CSV file in UTF-8, got ",
        *set_options.CSV_ERRORS,
        remedy=f"; write one with the columns {','.join(MAPPING_COLUMNS)}",
    ):
        header, lines = set_options.csv_lines(os.path.expanduser(path))
    missing = [column for column in MAPPING_COLUMNS if header.count(column) != 1]
    if missing:
        must = f"{path}: the header must have {' and '.join(MAPPING_COLUMNS)} once each"
        got = f"{missing[0]} does not, got {','.join(header)!r}"
        raise ValueError(f"{must}, {got}; name the columns so, with a comma between")
    cells = [[(row[one] or "").strip() for one in MAPPING_COLUMNS] for _, row in lines]
    return [(f"{path}:{n}", *pair) for (n, _), pair in zip(lines, cells, strict=True)]
