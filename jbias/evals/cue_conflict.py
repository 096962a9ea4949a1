"""Shape bias on images whose shape and texture come from different classes.

Source: Geirhos et al., ICLR 2019, https://arxiv.org/abs/1811.12231. Reference code:
https://github.com/bethgelab/model-vs-human at 79ed7cd, plotting/analyses.py. Accuracies
by either cue (Geirhos' style transfer test): Marcu and Prügel-Bennett,
https://arxiv.org/abs/2110.13968.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from jbias.evals import decisions, probe


@dataclasses.dataclass(frozen=True)
class ShapeBias:
    """Shape decisions among those for either cue; 0 is texture, 1 is shape."""

    value: float  # NaN where no decision was for either cue.
    n_shape: int
    n_texture: int


def shape_bias(
    decided: Int[np.ndarray, "n"],
    shape: Int[np.ndarray, "n"],
    texture: Int[np.ndarray, "n"],
) -> ShapeBias:
    """n_shape / (n_shape + n_texture) over the images where the cues conflict.

    n_shape counts decisions for the shape's class, n_texture for the texture's; images
    whose cues agree, whose decision is neither, or one of whose classes is unknown
    (negative: the network cannot answer it) count for nothing. ValueError where the
    lengths differ.
    """
    decided, shape, texture = map(np.asarray, (decided, shape, texture))
    if not decided.shape == shape.shape == texture.shape:
        raise ValueError(
            "shape_bias: decisions, shape and texture must be of one length, got "
            f"{decided.shape}, {shape.shape} and {texture.shape}"
        )
    conflict = _conflict(shape, texture)
    n_shape = int((conflict & (decided == shape)).sum())
    n_texture = int((conflict & (decided == texture)).sum())
    either = n_shape + n_texture
    return ShapeBias(n_shape / either if either else math.nan, n_shape, n_texture)


def by_class(
    decided: Int[np.ndarray, "n"],
    shape: Int[np.ndarray, "n"],
    texture: Int[np.ndarray, "n"],
) -> dict[int, ShapeBias]:
    """The shape bias among the images of each shape's class that has a conflict.

    The pooled value is not the mean of these.
    """
    decided, shape, texture = map(np.asarray, (decided, shape, texture))
    return {
        int(one): shape_bias(*(x[shape == one] for x in (decided, shape, texture)))
        for one in np.unique(shape[_conflict(shape, texture)])
    }


def measure(decided: decisions.Decisions) -> list[decisions.Number]:
    """The shape bias, with shape decisions counted among decisions for either cue."""
    return [_bias(shape_bias(*_cues(decided)), "")]


def make(*, classes: Sequence[str] = ()) -> probe.Probe:
    """Shows the images as they are; counts decisions for shape and for texture.

    classes: the names of the decision classes, for the conditions of each; without
    them a class is named by its number. Further conditions are taken for other rules by
    which the same answers were made decisions, such as "mean_logit". Images of classes
    that the network lacks are shown too: a cue without a class is never answered.
    """
    probe.check_class_names("shape_bias", classes)
    counted = functools.partial(numbers, classes=tuple(classes))
    return probe.Probe({"": ()}, probe.identity, counted, include_unknown=True)


def numbers(
    by_rule: Mapping[str, decisions.Decisions], *, classes: Sequence[str] = ()
) -> list[decisions.Number]:
    """What each rule's decisions tell.

    shape_bias, with shape_bias_lower and shape_bias_upper, Wilson's interval of 95 %, and
      for each class of shapes, as the condition "class=cat".
    shape_bias_undefined: classes of shapes without a decision for either cue, whose
      value is null, among all that are shown.
    fraction_shape, fraction_texture: decisions for a cue where cues conflict, among
      all images, those that agree included, as the reference code counts.
    accuracy_shape, accuracy_texture: all images by either cue as the label, those that
      agree included, and those that the network cannot answer.
    """
    return [one for rule, of in by_rule.items() for one in _of_rule(rule, of, classes)]


def _of_rule(
    rule: str, decided: decisions.Decisions, classes: Sequence[str]
) -> Iterator[decisions.Number]:
    answer, shape, texture = cues = _cues(decided)
    n = len(answer)
    pooled = shape_bias(*cues)
    either = pooled.n_shape + pooled.n_texture
    yield _bias(pooled, rule)
    if either:
        ends = decisions.wilson_interval(pooled.n_shape, either)
        for name, end in zip(("lower", "upper"), ends, strict=True):
            yield decisions.Number(f"shape_bias_{name}", end, None, either, rule)
    counts = {
        "fraction_shape": pooled.n_shape,
        "fraction_texture": pooled.n_texture,
        "accuracy_shape": ((answer == shape) & (shape >= 0)).sum(),
        "accuracy_texture": ((answer == texture) & (texture >= 0)).sum(),
    }
    for metric, count in counts.items():
        yield decisions.share(metric, count, n, rule)
    each = by_class(*cues)
    for one, bias in each.items():
        name = classes[one] if classes else one
        yield _bias(bias, f"{rule} class={name}".strip())
    lacking = sum(math.isnan(bias.value) for bias in each.values())
    yield decisions.share("shape_bias_undefined", lacking, len(each), rule)


def _bias(bias: ShapeBias, condition: str) -> decisions.Number:
    either = bias.n_shape + bias.n_texture
    return decisions.share("shape_bias", bias.n_shape, either, condition)


def _cues(decided: decisions.Decisions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if "texture" not in decided.columns:
        raise ValueError(
            "shape_bias: decisions must have a column texture, got"
            f" {', '.join(decided.columns)}; measure it on a set of cue conflicts"
        )
    return decided.prediction, decided.columns["label"], decided.columns["texture"]


def _conflict(
    shape: Int[np.ndarray, "n"], texture: Int[np.ndarray, "n"]
) -> Bool[np.ndarray, "n"]:
    return (shape != texture) & (shape >= 0) & (texture >= 0)
