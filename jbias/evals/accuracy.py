"""Top-1 accuracy as integer counts: overall, by class, by group; with a bootstrap over images.

accuracy, real_accuracy: by one correct class an image, or by several.
by_class, make_by_class, confusion, entropy: the accuracy of each class, and what it is taken for.
by_group: a group is a class with a value of an attribute; the worst, and balanced means.
  Worst-group accuracy: Sagawa, Koh, Hashimoto and Liang, ICLR 2020,
  https://arxiv.org/abs/1911.08731. There groups without images do not occur; here they have
  no part in any number.
stacked_halves: which of two stacked images a network answers, by the class of the other.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias.evals import decisions, probe

Column = Int[np.ndarray, "n"]  # Of images.


def accuracy(decided: decisions.Decisions) -> decisions.Numbers:
    """The share of images whose predicted class is their label."""
    return [decisions.mean("accuracy", decided.right)]


def real_accuracy(decided: decisions.Decisions) -> decisions.Numbers:
    """The share of images whose predicted class is among the right ones, as ReaL has it.

    These are the columns accepted_0, accepted_1, ..., with -1 where an image has fewer.
    An image without any is left out of the count.
    Source: Beyer et al. 2020, https://arxiv.org/abs/2006.07159.
    """
    names = [name for name in decided.columns if name.startswith("accepted_")]
    if not names:
        must = "real_accuracy: decisions must have columns accepted_0, accepted_1, ..."
        got = ", ".join(decided.columns)
        raise ValueError(f"{must}, got {got}; open the set with its accepted classes")
    accepted = np.stack([decided.columns[name] for name in names])
    is_class = accepted >= 0  # A prediction of -1, no answer, is never right.
    correct = (is_class & (accepted == decided.prediction)).any(0).sum()
    return [decisions.share("real_accuracy", correct, is_class.any(0).sum())]


def make_by_class(*, classes: Sequence[str] = ()) -> probe.Probe:
    """Shows the images as they are; counts the accuracy of each class.

    classes: the names of the decision classes; without them a class is named by its
    number.
    """
    probe.check_class_names("classes", classes)
    counted = functools.partial(class_numbers, classes=tuple(classes))
    return probe.Probe({"": ()}, probe.identity, counted)


@decisions.per_condition
def class_numbers(
    decided: decisions.Decisions, *, classes: Sequence[str] = ()
) -> Iterator[decisions.Number]:
    """class_accuracy of each class that has images, as the condition "class=cat"."""
    label = decided.columns["label"]
    for one in np.unique(label[label >= 0]):
        name = f"class={classes[one] if classes else one}"
        yield decisions.mean("class_accuracy", decided.right[label == one], name)


def by_class(decided: decisions.Decisions) -> decisions.Numbers:
    """The accuracy of each class that has images, by its number: "class=3"."""
    return class_numbers({"": decided})


def confusion(response: Column, label: Column, k: int) -> Float[np.ndarray, "rows k"]:
    """Which per cent of each class (a column) gets which response (a row).

    Columns sum to 100; one of a class without images is NaN. A last row, for none of
    the k, is there where some response is negative; images without a label are left out.
    """
    response, label = np.asarray(response), np.asarray(label)
    rows = np.where(response < 0, k, response)
    shape = k + bool((response < 0).any()), k
    counts = sum_cells(np.ones(len(label)), rows, label, shape)
    return 100 * decisions.ratio(counts, counts.sum(0))


def entropy(response: Column, k: int) -> float:
    """Entropy of the responses in bits, at most log2(k); none of the k adds nothing.

    - sum_c p_c log2 p_c, p_c the share of all responses that are c. A class that has no
    images counts as any other: the bound stays log2(k), and who never answers it has less.
    """
    response = np.asarray(response)
    share = np.bincount(response[response >= 0], minlength=k) / len(response)
    share = share[share > 0]
    return max(0.0, float(-(share * np.log2(share)).sum()))


MAX_GROUPS = 64  # So many groups are told one by one.


def by_group(decided: decisions.Decisions) -> decisions.Numbers:
    """Accuracies over the groups (class, value) that have images.

    "worst_group_accuracy" is the accuracy of the worst group, the larger of two alike;
    "group_balanced_accuracy" and "class_balanced_accuracy" are means of the accuracies of
    groups and of classes; "group_accuracy" is each group's, as the condition
    "group=<class>/<value>" in numbers, where there are at most 64. Images without a class
    or a value (negative) count for nothing. ValueError without such a column.
    """
    label = np.asarray(decided.columns["label"])
    value = decided.column("groups", "attribute", "open the set with its attribute")
    n = count_cells(label, value)
    right = sum_cells(decided.right, label, value, n.shape).astype(np.int64)
    if not (total := int(n.sum())):
        return []
    groups = np.argwhere(n)
    each = [(right[k, a], n[k, a]) for k, a in groups]
    shares = np.array([hits / of for hits, of in each])
    worst = np.lexsort(([-of for _, of in each], shares))[0]
    classes = n.sum(1) > 0
    by_class = right.sum(1)[classes] / n.sum(1)[classes]
    found = [decisions.share("worst_group_accuracy", *each[worst])]
    for what, of in (("group", shares), ("class", by_class)):
        found.append(decisions.quantity(f"{what}_balanced_accuracy", of.mean(), total))
    for (k, a), one in zip(groups, each) if len(each) <= MAX_GROUPS else ():
        found.append(decisions.share("group_accuracy", *one, f"group={k}/{a}"))
    return found


def stacked_halves(decided: decisions.Decisions) -> decisions.Numbers:
    """How often answers follow the other half where the two are of different classes.

    "label" is the class of the half that is asked for, "texture" that of the other.
    "follows_label" and "follows_other" are shares of answers among all images with a
    conflict; "follows_other" also by the class of the other half ("other 3"), so that
    with digits as the other half it tells which digits win. Nothing where no two halves
    conflict, as in training.
    """
    label, other = (np.asarray(decided.columns[c]) for c in ("label", "texture"))
    known = (label >= 0) & (other >= 0) & (label != other)
    if not known.any():
        return []
    follows = decided.prediction == other
    told = [decisions.mean("follows_label", decided.right[known])]
    by = {f"other {k}": known & (other == k) for k in np.unique(other[known])}
    for name, rows in {"": known, **by}.items():
        told.append(decisions.mean("follows_other", follows[rows], name))
    return told


_AT_ONCE = 1 << 22  # Drawn numbers held at a time.
ENDS = (1 - 0.95) / 2, 0.975  # Of an interval of 95 %.


def correct_by_condition(found: decisions.ByName) -> Bool[np.ndarray, "c n"]:
    """Which images are decided as labelled, a row a condition.

    ValueError where conditions were shown different numbers of images, or none.
    """
    rows = [one.right for one in found.values()]
    sizes = sorted({len(row) for row in rows})
    must = "all conditions must be of the same images, at least one"
    probe.check(len(sizes) == 1 and sizes[0] > 0, "decisions", must, sizes)
    return np.stack(rows)


Marks = Bool[np.ndarray, "rows n"] | Int[np.ndarray, "rows n"]


def bootstrap_counts(
    marks: Marks, *, draws: int, seed: int
) -> Int[np.ndarray, "draws rows"]:
    """Draws n of the n images with replacement, and counts each row's marks.

    An image may have several marks, a whole number of them.
    The images of one draw are the same for all rows. Images with the same marks are
    drawn together, as one class of a multinomial: the same distribution for less.
    """
    patterns, sizes = np.unique(marks, axis=1, return_counts=True)
    n, rng = marks.shape[1], np.random.default_rng(seed)
    weights = patterns.T.astype(np.float64)  # Sums of counts stay exact.
    firsts = range(0, draws, max(1, _AT_ONCE // len(sizes)))
    counts = [min(firsts.step, draws - first) for first in firsts]
    drawn = [rng.multinomial(n, sizes / n, count) @ weights for count in counts]
    return np.concatenate(drawn).astype(np.int64)


def resample(
    by_condition: decisions.ByName, *, draws: int, seed: int
) -> tuple[Int[np.ndarray, "c"], Int[np.ndarray, "draws c"], int]:
    """Images decided as labelled under c conditions, those of each draw, and all images."""
    marks = correct_by_condition(by_condition)
    return marks.sum(1), bootstrap_counts(marks, draws=draws, seed=seed), marks.shape[1]


def bootstrap_interval(
    metric: str,
    drawn: Float[np.ndarray, "draws"],
    n: int,
    condition: str = "",
    *,
    value: float,
) -> decisions.Numbers:
    """Percentiles 2.5 and 97.5 of what was drawn, as `metric`_lower and _upper.

    Draws without a value (NaN) are left out; their share is told as `metric`_undefined.
    value: of the metric itself; where it is undefined (NaN), so are the ends.
    """
    held = drawn[np.isfinite(drawn)]
    is_known = len(held) > 0 and np.isfinite(value)
    ends = np.quantile(held, (0.025, 0.975)) if is_known else (None, None)
    missing = len(drawn) - len(held), len(drawn)
    named = zip(("lower", "upper"), ends, strict=True)
    both = (decisions.quantity(f"{metric}_{k}", x, n, condition) for k, x in named)
    return [*both, decisions.share(f"{metric}_undefined", *missing, condition)]


def mean_ends(
    metric: str, marks: Column, most: int, condition: str = "", *, seed: int = 0
) -> decisions.Numbers:
    """The bootstrap interval of the mean of marks / most, over n images, pairs or others."""
    n = len(marks)
    drawn = bootstrap_counts(marks[None], draws=1000, seed=seed)[:, 0] / (most * n)
    mean = decisions.ratio(np.sum(marks), most * n)
    return bootstrap_interval(metric, drawn, n, condition, value=mean)[:2]


def count_cells(label: Column, value: Column) -> Int[np.ndarray, "k m"]:
    """How many images there are of each class and value; negative ones are left out."""
    shape = tuple(int(column.max(initial=-1)) + 1 for column in (label, value))
    return sum_cells(np.ones(len(label)), label, value, shape).astype(np.int64)


def sum_cells(
    share: np.ndarray, label: Column, value: Column, shape: tuple[int, int]
) -> Float[np.ndarray, "k m"]:
    """The sum of `share` over the images of each cell; negative ones are left out."""
    known = (label >= 0) & (value >= 0)
    flat = label[known].astype(np.int64) * shape[1] + value[known]
    return np.bincount(flat, share[known], minlength=shape[0] * shape[1]).reshape(shape)
