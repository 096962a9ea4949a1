"""Shape bias on images whose shape and texture come from different classes.

Source: Geirhos et al., ICLR 2019, https://arxiv.org/abs/1811.12231. Reference code:
https://github.com/bethgelab/model-vs-human at 79ed7cd, plotting/analyses.py. Accuracies
by either cue (Geirhos' style transfer test): Marcu and Prügel-Bennett,
https://arxiv.org/abs/2110.13968. Ranks of the cues' labels (REFINED-BIAS): Kim et al. 2026,
https://arxiv.org/abs/2603.10834; reference code: https://github.com/PumjunKim/REFINED-BIAS
at 8655b6b, which ranks softmax values, where those that are 0 tie. Deviation: logits here.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from jbias.evals import decisions, probe

Classes = Int[np.ndarray, "n"]
Names = Shaped[np.ndarray, "n"]  # Or class ids.
# The columns of ranks among logits, and of the classes that are ranked.
RANKED: Mapping[str, str] = {"rank_shape": "label", "rank_texture": "texture"}


@dataclasses.dataclass(frozen=True, repr=False)
class ShapeBias:
    """Shape decisions among those for either cue; 0 is texture, 1 is shape."""

    value: float  # NaN where no decision was for either cue.
    n_shape: int
    n_texture: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of 95 %; (0, 1) where no decision was for either cue."""
        return decisions.wilson_interval(self.n_shape, self.n_shape + self.n_texture)

    def __repr__(self) -> str:
        ends = "{:.3f} to {:.3f}".format(*self.interval)
        of = f"{self.n_shape} shape and {self.n_texture} texture decisions"
        return f"ShapeBias {self.value:.3f} (95 %: {ends}; {of})"


def shape_bias(decided: Names, shape: Names, texture: Names) -> ShapeBias:
    """n_shape / (n_shape + n_texture) over the images where the cues conflict.

    n_shape counts decisions for the shape's class, n_texture for the texture's; images
    whose cues agree, whose decision is neither, or one of whose classes is unknown
    (negative: the network cannot answer it) count for nothing. Classes are ids, or all are
    names, of which "" and what is no text are unknown. ValueError where the lengths
    differ, or names stand beside ids.
    """
    decided, shape, texture = _class_ids(decided, shape, texture)
    shapes = decided.shape, shape.shape, texture.shape
    must = "decisions, shape and texture must be of one length"
    probe.check(len({*shapes}) == 1, "shape_bias", must, shapes)
    conflict = _conflict(shape, texture)
    n_shape = int((conflict & (decided == shape)).sum())
    n_texture = int((conflict & (decided == texture)).sum())
    either = n_shape + n_texture
    return ShapeBias(n_shape / either if either else math.nan, n_shape, n_texture)


def by_class(answer: Classes, shape: Classes, texture: Classes) -> dict[int, ShapeBias]:
    """The shape bias among the images of each shape's class that has a conflict.

    The pooled value is not the mean of these.
    """
    found, of = {}, [*map(np.asarray, (answer, shape, texture))]
    _, shape, texture = of
    for one in np.unique(shape[_conflict(shape, texture)]):
        found[int(one)] = shape_bias(*(cue[shape == one] for cue in of))
    return found


def label_ranks(
    scores: Float[np.ndarray, "n k"],
    label: Classes,
    *,
    members: Sequence[Sequence[int]] | None = None,
) -> Int[np.ndarray, "n"]:
    """The place of each image's label when all k scores are sorted, the largest first.

    scores: logits, or of a set's classes. members: the classes that each label stands for,
    of which the best placed counts; None: a label is a class. Of equal scores the class with
    the higher number comes first. 0 where the label is unknown (negative). ValueError for NaN,
    other lengths, and labels and members that are no classes.
    """
    scores, label = np.asarray(scores), np.asarray(label)
    must = "scores must be (images, classes), with a label for each image"
    same = scores.ndim == 2 and label.shape == scores.shape[:1]
    probe.check(same, "label_ranks", must, (scores.shape, label.shape))
    must = "scores must be numbers"
    probe.check(not np.isnan(scores).any(), "label_ranks", must, math.nan)
    classes = np.arange(scores.shape[1])
    stands_for = np.eye(len(classes), dtype=bool)
    if members is not None:
        must = f"each label must stand for some of {len(classes)} classes"
        known = all(len(of) and {*of} <= {*classes.tolist()} for of in members)
        probe.check(known, "label_ranks", must, members)
        stands_for = np.array([np.isin(classes, of) for of in members])
    most, must = int(label.max(initial=-1)), f"labels must be below {len(stands_for)}"
    probe.check(most < len(stands_for), "label_ranks", must, most)
    return np.where(label >= 0, best_place(scores, stands_for[label]), 0)


def best_place(
    scores: Float[Any, "n k"], own: Bool[Any, "n k"], xp: Any = np
) -> Int[Any, "n"]:
    """The place of the best of each row's own classes, as `label_ranks` counts places.

    xp: whose arrays these are, numpy or jax.numpy.
    """
    classes = xp.arange(scores.shape[1])[None]
    best = xp.where(own, scores, -math.inf).max(axis=1, keepdims=True)
    place = xp.where(own & (scores == best), classes, -1).max(axis=1, keepdims=True)
    ahead = (scores > best) | ((scores == best) & (classes > place))
    return 1 + ahead.sum(axis=1)


def cues_of(
    columns: Mapping[str, Classes], ranked: Mapping[str, str] = RANKED
) -> dict[str, Classes]:
    """The classes to rank, by the names of their columns of ranks, where all are known."""
    if not {*ranked.values()} <= columns.keys():
        return {}
    return {name: np.asarray(columns[of], np.int32) for name, of in ranked.items()}


def mean_reciprocal_rank(ranks: Int[np.ndarray, "n"]) -> float:
    """The mean of 1 / rank over images whose label is known; NaN where there is none."""
    ranks = np.asarray(ranks)
    known = ranks[ranks > 0]
    return float((1 / known).mean()) if len(known) else math.nan


def measure(decided: decisions.Decisions) -> decisions.Numbers:
    """The shape bias, with shape decisions counted among decisions for either cue.

    And what says how much it is of: `fraction_neither`, and mean reciprocal ranks where they
    are known, as `numbers` has them.
    """
    cues = _cues(decided)
    return [_bias(shape_bias(*cues)), *_absolute(decided, cues)]


def make(*, classes: Sequence[str] = ()) -> probe.Probe:
    """Shows the images as they are; counts decisions for shape and for texture.

    classes: the names of the decision classes, for the conditions of each; without
    them a class is named by its number. Further conditions are taken for other rules by
    which the same answers were made decisions, such as "mean_logit". Images of classes
    that the network lacks are shown too: a cue without a class is never answered.
    Where the network gives logits or probabilities, both cues' ranks among all of its own
    classes are kept, as columns of `RANKED`.
    """
    probe.check_class_names("shape_bias", classes)
    counted = functools.partial(numbers, classes=tuple(classes))
    kept = dict(include_unknown=True, ranked=RANKED)
    return probe.Probe({"": ()}, probe.identity, counted, **kept)


@decisions.per_condition
def numbers(
    decided: decisions.Decisions, *, classes: Sequence[str] = ()
) -> Iterator[decisions.Number]:
    """What each rule's decisions tell.

    shape_bias, with shape_bias_lower and shape_bias_upper, Wilson's interval of 95 %, and
      for each class of shapes, as the condition "class=cat".
    shape_bias_undefined: classes of shapes without a decision for either cue, whose
      value is null, among all that are shown.
    fraction_shape, fraction_texture: decisions for a cue where cues conflict, among
      all images, those that agree included, as the reference code counts.
    fraction_neither: decisions for neither cue, among images where cues conflict.
    mrr_shape, mrr_texture: where decisions have columns rank_shape and rank_texture, as
      `label_ranks` has them, the mean of 1 / rank over images where cues conflict, of
      which one without a rank (its logits are NaN) has 0; and mrr_relative, the first's
      part of their sum.
    accuracy_shape, accuracy_texture: all images by either cue as the label, those that
      agree included, and those that the network cannot answer.
    """
    answer, shape, texture = cues = _cues(decided)
    n = len(answer)
    pooled = shape_bias(*cues)
    either = pooled.n_shape + pooled.n_texture
    yield _bias(pooled)
    if either:
        yield from decisions.wilson_ends(_bias(pooled))
    yield decisions.share("fraction_shape", pooled.n_shape, n)
    yield decisions.share("fraction_texture", pooled.n_texture, n)
    yield from _absolute(decided, cues)
    for name, cue in (("shape", shape), ("texture", texture)):
        yield decisions.mean(f"accuracy_{name}", (answer == cue) & (cue >= 0))
    each = by_class(*cues)
    for one, bias in each.items():
        yield _bias(bias, f"class={classes[one] if classes else one}")
    lacking = sum(math.isnan(bias.value) for bias in each.values())
    yield decisions.share("shape_bias_undefined", lacking, len(each))


def _absolute(
    decided: decisions.Decisions, cues: tuple[np.ndarray, ...]
) -> Iterator[decisions.Number]:
    """Decisions for neither cue, and how high each cue's class ranks."""
    pooled, conflict = shape_bias(*cues), _conflict(*cues[1:])
    conflicts = int(conflict.sum())
    neither = conflicts - pooled.n_shape - pooled.n_texture
    yield decisions.share("fraction_neither", neither, conflicts)
    if not {*RANKED} <= {*decided.columns}:
        return
    ranks = [decided.columns[f"rank_{cue}"][conflict] for cue in ("shape", "texture")]
    mrr = [mean_reciprocal_rank(np.where(of, of, math.inf)) for of in ranks]
    relative = decisions.ratio(mrr[0], sum(mrr))
    for name, value in zip(("shape", "texture", "relative"), (*mrr, relative)):
        yield decisions.quantity(f"mrr_{name}", value, conflicts)


def _bias(bias: ShapeBias, condition: str = "") -> decisions.Number:
    either = bias.n_shape + bias.n_texture
    return decisions.share("shape_bias", bias.n_shape, either, condition)


def _cues(decided: decisions.Decisions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    remedy = "measure it on a set of cue conflicts"
    texture = decided.column("shape_bias", "texture", remedy)
    return decided.prediction, decided.columns["label"], texture


def _class_ids(*cues: Names) -> list[Classes]:
    """Classes as numbers, -1 where one is unknown."""
    found = [*map(np.asarray, cues)]
    named = [one.dtype.kind not in "iufb" for one in found]
    if not any(named):
        return found
    must = "decisions, shape and texture must be all names, or all class ids"
    probe.check(all(named), "shape_bias", must, [str(one.dtype) for one in found])
    names = {x for one in found for x in one.flat if isinstance(x, str) and x}
    ids = {name: number for number, name in enumerate(sorted(names))}
    return [np.array([ids.get(x, -1) for x in one.flat], int) for one in found]


def _conflict(shape: Classes, texture: Classes) -> Bool[np.ndarray, "n"]:
    return (shape != texture) & (shape >= 0) & (texture >= 0)
