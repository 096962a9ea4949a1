"""Shape bias on images whose shape and texture come from different classes.

Source: Geirhos et al., ICLR 2019, https://arxiv.org/abs/1811.12231. Reference code:
https://github.com/bethgelab/model-vs-human at 79ed7cd, plotting/analyses.py. Accuracies with each
cue as the label (Geirhos' style transfer test): Marcu and Prügel-Bennett,
https://arxiv.org/abs/2110.13968. Ranks of the cues' labels (REFINED-BIAS): Kim et al. 2026,
https://arxiv.org/abs/2603.10834; reference code: https://github.com/PumjunKim/REFINED-BIAS at
8655b6b, which ranks softmax values, so that values of 0 are tied. Deviation: logits are ranked
here.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from jbias import errors
from jbias.measures import counting, decisions

Classes = Int[np.ndarray, "n"]
Names = Shaped[np.ndarray, "n"]  # Or class ids.
# The columns of ranks among logits, and of the classes that are ranked.
RANKED: Mapping[str, str] = {"rank_shape": "label", "rank_texture": "texture"}


@dataclasses.dataclass(frozen=True, repr=False)
class ShapeBias:
    """The share of shape decisions among shape and texture decisions; 0 is texture, 1 is shape."""

    value: float  # NaN without a shape or texture decision.
    n_shape: int
    n_texture: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return Wilson's interval of 95 %; (0, 1) without a shape or texture decision."""
        return decisions.wilson_interval(self.n_shape, self.n_shape + self.n_texture)

    def __repr__(self) -> str:
        lower, upper = self.interval
        return (
            f"ShapeBias {self.value:.3f} (95 %: {lower:.3f} to {upper:.3f}; "
            f"{self.n_shape} shape and {self.n_texture} texture decisions)"
        )


def shape_bias(decided: Names, shape: Names, texture: Names) -> ShapeBias:
    """Return n_shape / (n_shape + n_texture) over the images whose cues conflict.

    decided, shape, texture: by image, the decided class, and the classes of both cues.
    n_shape is the number of decisions for the shape's class, n_texture for the texture's class.
    Images are left out if their cues agree, if the decision matches neither cue, or if a class is
    unknown (negative: the network lacks it). Classes are all given by ids, or all by names; the
    name "", and a value that is not text, is unknown. ValueError for different lengths, or for
    names together with ids.
    """
    decided, shape, texture = _class_ids(decided, shape, texture)
    shapes = decided.shape, shape.shape, texture.shape
    must = "be of one length"
    errors.check(
        len({*shapes}) == 1,
        "shape_bias",
        must,
        shapes,
        name="decisions, shape and texture",
    )
    conflict = find_conflicts(shape, texture)
    n_shape = int((conflict & (decided == shape)).sum())
    n_texture = int((conflict & (decided == texture)).sum())
    either = n_shape + n_texture
    return ShapeBias(n_shape / either if either else math.nan, n_shape, n_texture)


def by_class(answer: Classes, shape: Classes, texture: Classes) -> dict[int, ShapeBias]:
    """Return the shape bias by class id of the shape, for classes with a cue-conflict image.

    answer, shape, texture: by image, class ids of the decision and of both cues; negative is
    unknown. The overall shape bias is not the mean over classes.
    """
    answer, shape, texture = map(np.asarray, (answer, shape, texture))
    biases = {}
    for class_id in np.unique(shape[find_conflicts(shape, texture)]):
        rows = shape == class_id
        biases[int(class_id)] = shape_bias(answer[rows], shape[rows], texture[rows])
    return biases


def label_ranks(
    scores: Float[np.ndarray, "n k"],
    label: Classes,
    *,
    members: Sequence[Sequence[int]] | None = None,
) -> Int[np.ndarray, "n"]:
    """Return the rank of each image's label among all k scores, 1 for the largest score.

    scores: logits, or scores of a set's classes. members: for each label, its classes (columns of
    scores), of which the smallest rank is returned; None: a label is a column. If scores are
    equal, the class with the higher id ranks first. The rank is 0 for an unknown label
    (negative). ValueError for NaN, for different lengths, and for labels and members that are not
    classes.
    """
    scores, label = np.asarray(scores), np.asarray(label)
    must = "be (images, classes), with a label for each image"
    has_labels = scores.ndim == 2 and label.shape == scores.shape[:1]
    errors.check(
        has_labels, "label_ranks", must, (scores.shape, label.shape), name="scores"
    )
    must = "be numbers"
    errors.check(
        not np.isnan(scores).any(), "label_ranks", must, math.nan, name="scores"
    )
    classes = np.arange(scores.shape[1])
    is_member = np.eye(len(classes), dtype=bool)
    if members is not None:
        must = f"stand for some of {len(classes)} classes"
        class_set = {*classes.tolist()}
        are_classes = all(len(group) and {*group} <= class_set for group in members)
        errors.check(are_classes, "label_ranks", must, members, name="each label")
        is_member = np.array([np.isin(classes, group) for group in members])
    highest, must = int(label.max(initial=-1)), f"be below {len(is_member)}"
    errors.check(highest < len(is_member), "label_ranks", must, highest, name="labels")
    return np.where(label >= 0, best_place(scores, is_member[label]), 0)


def best_place(
    scores: Float[Any, "n k"], is_member: Bool[Any, "n k"], xp: Any = np
) -> Int[Any, "n"]:
    """Return the smallest rank (1: largest score) among each row's member classes.

    is_member: whether each class of a row is a member. Ties are broken as in `label_ranks`.
    Arguments are not checked: the result is k + 1 for a row without members, and 1 if the score
    of a member is NaN.
    xp: the module of the arrays, numpy or jax.numpy.
    """
    classes = xp.arange(scores.shape[1])[None]
    best = xp.where(is_member, scores, -math.inf).max(axis=1, keepdims=True)
    is_best = is_member & (scores == best)
    place = xp.where(is_best, classes, -1).max(axis=1, keepdims=True)
    is_ahead = (scores > best) | ((scores == best) & (classes > place))
    return 1 + is_ahead.sum(axis=1)


def cues_of(
    columns: Mapping[str, Classes], ranked: Mapping[str, str] = RANKED
) -> dict[str, Classes]:
    """Return the class ids (int32) that are ranked, by the name of the column of ranks.

    columns: a set's columns by name. ranked: by the name of a column of ranks, the name of the
    column of class ids. {} if any column of class ids is missing.
    """
    if not {*ranked.values()} <= columns.keys():
        return {}
    return {
        rank_name: np.asarray(columns[class_name], np.int32)
        for rank_name, class_name in ranked.items()
    }


def mean_reciprocal_rank(ranks: Int[np.ndarray, "n"]) -> float:
    """Return the mean of 1 / rank over images with a rank above 0; NaN without such images."""
    ranks = np.asarray(ranks)
    known = ranks[ranks > 0]
    return float((1 / known).mean()) if len(known) else math.nan


def measure(decided: decisions.Decisions) -> decisions.Numbers:
    """Return shape_bias, fraction_neither and, if there are ranks, mrr_...; see `numbers`.

    For records of training, where images without a decision are those of seeds whose logits are not
    finite; they count in fraction_neither. ValueError without a column "texture".
    """
    answer, shape, texture = cues = answer_and_cues(decided)
    overall = _to_number(shape_bias(answer, shape, texture))
    return [overall, *_absolute_numbers(decided, cues, num_unanswered=0)]


def measure_answers(decided: decisions.Decisions) -> decisions.Numbers:
    """Return the numbers of `measure`, with images without an answer as no decisions.

    For finished networks, where these images are those that a table has no answer to.
    """
    answer, shape, texture = cues = answer_and_cues(decided)
    is_unanswered = decided.is_unanswered[find_conflicts(shape, texture)]
    count = int(is_unanswered.sum())
    overall = _to_number(shape_bias(answer, shape, texture))
    return [overall, *_absolute_numbers(decided, cues, num_unanswered=count)]


def make(*, classes: Sequence[str] = ()) -> counting.Counting:
    """Return a probe that shows unchanged images and counts shape and texture decisions.

    classes: the names of the decision classes, for conditions of single classes; if empty, a
    class is named by its id.

    Images of classes that the network lacks are shown, too; no decision matches the cue of such a
    class. If the network gives logits or probabilities, the ranks of both cues among all of the
    network's classes are stored in the columns "rank_shape" and "rank_texture". Metrics: see
    `numbers`.
    """
    errors.check_class_names("shape_bias", classes)
    return counting.Counting(
        functools.partial(numbers, classes=tuple(classes)),
        include_unknown=True,
        ranked=RANKED,
    )


@decisions.per_condition
def numbers(
    decided: decisions.Decisions, *, classes: Sequence[str] = ()
) -> Iterator[decisions.Number]:
    """Return shape bias, accuracies with each cue as the label, and related shares.

    The first argument is a mapping from condition to decisions (`decisions.per_condition`),
    which need a column "texture" (else ValueError). classes: see `make`.

    shape_bias: overall and, with the condition "class=cat", for each shape class.
    shape_bias_lower, shape_bias_upper: ends of Wilson's 95 % interval of the overall shape
      bias; left out if no decision matches the shape or the texture.
    shape_bias_undefined: the share of shape classes without a shape or texture decision, whose
      shape bias has the value None, among the classes with a cue-conflict image.
    fraction_shape, fraction_texture: decisions that match the cue on images whose cues conflict,
      divided by the number of all images, as in the reference code.
    fraction_neither: decisions that match neither cue, among images whose cues conflict. An image
      without an answer is no decision: it counts in `unanswered` alone.
    mrr_shape, mrr_texture: if decisions have columns rank_shape and rank_texture (see
      `label_ranks`), the mean of 1 / rank over images whose cues conflict; an image without
      a rank (its logits are NaN) counts as 0. mrr_relative: mrr_shape / (mrr_shape +
      mrr_texture).
    accuracy_shape, accuracy_texture: accuracy with this cue as the label, over all images,
      including images whose cues agree and images of classes that the network lacks.
    unanswered: images without an answer, among images whose cues conflict; left out if there are
      none, as for every network with logits.
    """
    answer, shape, texture = cues = answer_and_cues(decided)
    n = len(answer)
    overall = shape_bias(answer, shape, texture)
    yield _to_number(overall)
    if overall.n_shape + overall.n_texture:
        yield from decisions.wilson_ends(_to_number(overall))
    yield decisions.share("fraction_shape", overall.n_shape, n)
    yield decisions.share("fraction_texture", overall.n_texture, n)
    is_unanswered = decided.is_unanswered[find_conflicts(shape, texture)]
    yield from _absolute_numbers(decided, cues, num_unanswered=int(is_unanswered.sum()))
    for name, cue in (("shape", shape), ("texture", texture)):
        yield decisions.mean(f"accuracy_{name}", (answer == cue) & (cue >= 0))
    biases = by_class(answer, shape, texture)
    for class_id, bias in biases.items():
        yield _to_number(bias, f"class={classes[class_id] if classes else class_id}")
    num_undefined = sum(math.isnan(bias.value) for bias in biases.values())
    yield decisions.share("shape_bias_undefined", num_undefined, len(biases))
    yield from decisions.unanswered(is_unanswered)


def _absolute_numbers(
    decided: decisions.Decisions,
    cues: tuple[Classes, Classes, Classes],
    *,
    num_unanswered: int,
) -> Iterator[decisions.Number]:
    """Yield fraction_neither and, if `decided` has the columns of ranks, mrr_...; see `numbers`.

    cues: result of `answer_and_cues`. num_unanswered: number of images whose cues conflict that
    are left out of the count of fraction_neither.
    """
    answer, shape, texture = cues
    overall = shape_bias(answer, shape, texture)
    is_conflict = find_conflicts(shape, texture)
    num_conflicts = int(is_conflict.sum())
    num_neither = num_conflicts - overall.n_shape - overall.n_texture - num_unanswered
    yield decisions.share("fraction_neither", num_neither, num_conflicts)
    if not {*RANKED} <= {*decided.columns}:
        return
    reciprocal = {}
    for cue in ("shape", "texture"):
        ranks = decided.columns[f"rank_{cue}"][is_conflict]
        reciprocal[cue] = mean_reciprocal_rank(np.where(ranks, ranks, math.inf))
    reciprocal["relative"] = decisions.ratio(
        reciprocal["shape"], sum(reciprocal.values())
    )
    for name, value in reciprocal.items():
        yield decisions.quantity(f"mrr_{name}", value, num_conflicts)


def _to_number(bias: ShapeBias, condition: str = "") -> decisions.Number:
    """Return the Number "shape_bias", the share of shape among shape and texture decisions."""
    either = bias.n_shape + bias.n_texture
    return decisions.share("shape_bias", bias.n_shape, either, condition)


def answer_and_cues(decided: decisions.Decisions) -> tuple[Classes, Classes, Classes]:
    """Return the class ids (decided, shape, texture) of each image.

    ValueError without a column "texture".
    """
    remedy = "measure it on a set of cue conflicts"
    texture = decided.column("shape_bias", "texture", remedy)
    return decided.prediction, decided.columns["label"], texture


def _class_ids(*cues: Names) -> list[Classes]:
    """Return each array as class ids, numbered over all arrays, -1 for unknown names.

    Arrays of ids are returned unchanged. ValueError for names together with ids.
    """
    arrays = [*map(np.asarray, cues)]
    are_names = [array.dtype.kind not in "iufb" for array in arrays]
    if not any(are_names):
        return arrays
    must = "be all names, or all class ids"
    dtypes = [str(array.dtype) for array in arrays]
    errors.check(
        all(are_names), "shape_bias", must, dtypes, name="decisions, shape and texture"
    )
    names = {x for array in arrays for x in array.flat if isinstance(x, str) and x}
    ids = {name: number for number, name in enumerate(sorted(names))}
    return [np.array([ids.get(x, -1) for x in array.flat], int) for array in arrays]


def find_conflicts(shape: Classes, texture: Classes) -> Bool[np.ndarray, "n"]:
    """Return True for each image whose cues have different classes; False if one is unknown."""
    return (shape != texture) & (shape >= 0) & (texture >= 0)
