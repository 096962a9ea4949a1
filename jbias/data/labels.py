"""From what a network was trained on to what a test set asks: maps between classes."""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jbias.data import spec

AGGREGATES = ("mean_prob", "sum_prob", "mean_logit")


class ClassMap(NamedTuple):
    """How class probabilities become decisions, and what the right decision is.

    With p = softmax(logits) over the training classes, decision = argmax(p @ matrix),
    or argmax(p) where `matrix` is None. A class with relabel -1 can never be answered.
    """

    classes: tuple[str, ...]  # Decision id -> name.
    matrix: Float[np.ndarray, "k_train k_decision"] | None
    relabel: Int[np.ndarray, "k_test"]  # Test class id -> decision id, or -1.


def match(
    train_classes: Sequence[str],
    train_space: str,
    test_classes: Sequence[str],
    test_space: str,
    *,
    aggregate: str = "mean_prob",
) -> ClassMap:
    """Maps the classes of a trained network to those of a test set.

    Inside one space classes are matched by name, and decisions are training classes;
    a test class that training lacks is refused. WordNet ids answer Geirhos' 16 classes
    c by s_c = mean of p over S_c, the members of c among the training classes; c
    without a member gets a zero column and relabel -1. "mean_logit" is the mean of
    logits instead, as BiasBed's release has it, which puts large classes at a
    disadvantage: the caller multiplies the matrix by logits.
    Source: Geirhos et al. 2019; model-vs-human at 79ed7cd, decision_mappings.py:30-52.
    """
    if aggregate not in AGGREGATES:
        raise ValueError(
            f"data.labels: aggregate must be one of {', '.join(AGGREGATES)}, got"
            f" {aggregate!r}"
        )
    if train_space == test_space:
        return _by_name(tuple(train_classes), tuple(test_classes))
    if (train_space, test_space) == ("wnid", "entry16"):
        return _sixteen(train_classes, tuple(test_classes), aggregate)
    raise ValueError(
        "data.labels: label spaces must be the same, or 'wnid' for training and"
        f" 'entry16' for the test, got {train_space!r} ({train_classes[0]}, ...) and"
        f" {test_space!r} ({test_classes[0]}, ...); test on a set of the same classes"
    )


@functools.cache
def geirhos16() -> Mapping[str, tuple[str, ...]]:
    """Geirhos' 16 classes, in alphabetical order, and the WordNet ids of each."""
    table = resources.files("jbias.data") / "tables" / "geirhos16.json"
    classes = json.loads(table.read_text(encoding="utf-8"))["classes"]
    return MappingProxyType({name: tuple(wnids) for name, wnids in classes.items()})


def _by_name(train: tuple[str, ...], test: tuple[str, ...]) -> ClassMap:
    ids = {name: label for label, name in enumerate(train)}
    lacking = [name for name in test if name not in ids]
    if lacking:
        raise ValueError(
            f"data.labels: training must have every class of the test, {len(lacking)}"
            f" of {len(test)} lack, first {lacking[0]!r};"
            f" {spec.did_you_mean(lacking[0], train)}"
        )
    return ClassMap(train, None, np.array([ids[name] for name in test], np.int32))


def _sixteen(train: Sequence[str], test: tuple[str, ...], aggregate: str) -> ClassMap:
    table = geirhos16()
    unknown = [name for name in test if name not in table]
    if unknown:
        raise ValueError(
            f"data.labels: classes of 'entry16' must be Geirhos' 16, got {unknown[0]!r};"
            f" {spec.did_you_mean(unknown[0], table)}"
        )
    decisions = tuple(table)
    matrix = np.array(
        [[wnid in table[name] for name in decisions] for wnid in train], np.float32
    )
    members = matrix.sum(0)
    if not members.any():
        raise ValueError(
            "data.labels: some training classes must be members of Geirhos' 16, none of"
            f" {len(train)} is ({train[0]}, ...); train on classes of ImageNet"
        )
    if aggregate != "sum_prob":
        matrix /= np.maximum(members, 1)
    relabel = [
        decisions.index(name) if members[decisions.index(name)] else -1 for name in test
    ]
    return ClassMap(decisions, matrix, np.array(relabel, np.int32))
