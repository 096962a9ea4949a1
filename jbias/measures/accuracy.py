"""Top-1 accuracy as integer counts: overall, by class and by group; bootstrap over images.

accuracy, real_accuracy: accuracy with one correct class per image, or with several.
by_class, make_by_class, confusion, entropy: the accuracy of each class, and the confusions.
by_group: accuracies of groups, pairs of a class and a value of an attribute. Worst-group
  accuracy: Sagawa, Koh, Hashimoto and Liang, ICLR 2020, https://arxiv.org/abs/1911.08731.
  Deviation: groups without images are left out of all metrics; the paper has no empty groups.
stacked_halves: for images that consist of two stacked images, the shares of decisions for the
  class of each half.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from jbias import errors
from jbias.measures import counting, cue_conflict, decisions

Column = Int[np.ndarray, "n"]  # One entry per image.


def accuracy(decided: decisions.Decisions) -> decisions.Numbers:
    """Return a list of one Number, "accuracy": the share of images whose decision is their label.

    Images without a label (-1) count as wrong.
    """
    return [decisions.mean("accuracy", decided.right)]


def real_accuracy(decided: decisions.Decisions) -> decisions.Numbers:
    """Return one Number, "real_accuracy": the share of images decided as an accepted class.

    The accepted classes (ReaL labels) are the columns accepted_0, accepted_1, ..., padded
    with -1. Images without an accepted class are left out. ValueError without such columns.
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


def make_by_class(*, classes: Sequence[str] = ()) -> counting.Counting:
    """Return a probe that shows unchanged images and measures the accuracy of each class.

    classes: the names of the decision classes, by class id; if empty, a class is named by its
    id. Metrics: see `class_numbers`. ValueError if classes is not a sequence of strings.
    """
    errors.check_class_names("classes", classes)
    numbers = functools.partial(class_numbers, classes=tuple(classes))
    return counting.Counting(numbers)


@decisions.per_condition
def class_numbers(
    decided: decisions.Decisions, *, classes: Sequence[str] = ()
) -> Iterator[decisions.Number]:
    """Return a Number "class_accuracy" for each class that has images, then `unanswered`.

    The first argument is a mapping from condition to decisions (`decisions.per_condition`);
    the condition of a Number is its key in the mapping, a space, and the class, such as
    "class=cat". classes: see `make_by_class`.
    """
    label = decided.columns["label"]
    for class_id in np.unique(label[label >= 0]):
        name = f"class={classes[class_id] if classes else class_id}"
        yield decisions.mean("class_accuracy", decided.right[label == class_id], name)
    yield from decisions.unanswered(decided.is_unanswered)


def by_class(decided: decisions.Decisions) -> decisions.Numbers:
    """Return a list with a Number "class_accuracy" for each class with images.

    The condition of a Number is "class=<class id>".
    """
    return class_numbers({"": decided})


def confusion(response: Column, label: Column, k: int) -> Float[np.ndarray, "rows k"]:
    """Return the percentages of responses (rows) to the images of each class (columns).

    response, label: by image, the decided class and the correct class, in 0 ... k - 1. k: the
    number of classes. Columns sum to 100; the column of a class without images is NaN. If any
    response is negative, an additional last row has the percentages of responses for none of the k
    classes. Images without a label (negative) are left out.
    """
    response, label = np.asarray(response), np.asarray(label)
    rows = np.where(response < 0, k, response)
    shape = k + bool((response < 0).any()), k
    counts = sum_cells(np.ones(len(label)), rows, label, shape)
    return 100 * decisions.ratio(counts, counts.sum(0))


def entropy(response: Column, k: int) -> float:
    """Return the entropy of the responses in bits, at most log2(k).

    The entropy is -sum_c p_c log2 p_c, with p_c the share of class c among all responses.
    response: by image, the decided class in 0 ... k - 1, or negative for none of the k classes.
    Negative responses add nothing to the sum. k: the number of classes.
    """
    response = np.asarray(response)
    share = np.bincount(response[response >= 0], minlength=k) / len(response)
    share = share[share > 0]
    return max(0.0, float(-(share * np.log2(share)).sum()))


MAX_GROUPS = 64  # With more groups, the accuracies of single groups are left out.


def by_group(decided: decisions.Decisions) -> decisions.Numbers:
    """Return accuracies over the groups (class, value of "attribute") that have images.

    "worst_group_accuracy": the lowest accuracy of a group (of the largest group, if several are
    tied); "group_balanced_accuracy" and "class_balanced_accuracy": means of the accuracies of
    groups and of classes; "group_accuracy": the accuracy of each group, with the condition
    "group=<class id>/<value>", if there are at most MAX_GROUPS groups. Images without a class or
    a value (negative) are left out; the list is empty if no images remain. ValueError without a
    column "attribute".
    """
    label = np.asarray(decided.columns["label"])
    value = decided.column("groups", "attribute", "open the set with its attribute")
    n = count_cells(label, value)
    correct = sum_cells(decided.right, label, value, n.shape).astype(np.int64)
    total = int(n.sum())
    if not total:
        return []
    groups = np.argwhere(n)
    group_correct = np.array([correct[k, a] for k, a in groups])
    group_sizes = np.array([n[k, a] for k, a in groups])
    group_accuracy = group_correct / group_sizes
    worst = np.lexsort((-group_sizes, group_accuracy))[0]
    has_images = n.sum(1) > 0
    class_accuracy = correct.sum(1)[has_images] / n.sum(1)[has_images]
    numbers = [
        decisions.share(
            "worst_group_accuracy", group_correct[worst], group_sizes[worst]
        ),
        decisions.quantity("group_balanced_accuracy", group_accuracy.mean(), total),
        decisions.quantity("class_balanced_accuracy", class_accuracy.mean(), total),
    ]
    if len(groups) <= MAX_GROUPS:
        numbers += [
            decisions.share("group_accuracy", count, size, f"group={k}/{a}")
            for (k, a), count, size in zip(groups, group_correct, group_sizes)
        ]
    return numbers


def stacked_halves(decided: decisions.Decisions) -> decisions.Numbers:
    """Return the shares of decisions for each half of images that stack two classes.

    The column "label" is the class of the half to recognise, "texture" the class of the other
    half. "follows_label" and "follows_other" are shares among the images whose halves have
    different classes; "follows_other" is also computed for each class of the other half, with the
    condition "other <class id>". The list is empty if no image has halves of different classes,
    as in training.
    """
    label, other = (np.asarray(decided.columns[c]) for c in ("label", "texture"))
    is_conflict = cue_conflict.find_conflicts(label, other)
    if not is_conflict.any():
        return []
    follows = decided.prediction == other
    numbers = [decisions.mean("follows_label", decided.right[is_conflict])]
    numbers.append(decisions.mean("follows_other", follows[is_conflict]))
    for k in np.unique(other[is_conflict]):
        rows = is_conflict & (other == k)
        numbers.append(decisions.mean("follows_other", follows[rows], f"other {k}"))
    return numbers


_MAX_DRAWN = 1 << 22  # Drawn numbers in memory at a time.
INTERVAL_QUANTILES = (1 - 0.95) / 2, 0.975  # Ends of an interval of 95 %.


def correct_by_condition(by_condition: decisions.ByName) -> Bool[np.ndarray, "c n"]:
    """Return True for each image whose decision is its label, one row per condition.

    ValueError if conditions have different numbers of images, or no images.
    """
    rows = [decided.right for decided in by_condition.values()]
    sizes = sorted({len(row) for row in rows})
    must = "be of the same images, at least one"
    errors.check(
        len(sizes) == 1 and sizes[0] > 0,
        "decisions",
        must,
        sizes,
        name="all conditions",
    )
    return np.stack(rows)


Marks = Bool[np.ndarray, "rows n"] | Int[np.ndarray, "rows n"]


def bootstrap_counts(
    marks: Marks, *, draws: int, seed: int
) -> Int[np.ndarray, "draws rows"]:
    """Return each row's sum of marks in bootstrap samples of the n images.

    marks: whole numbers, one row per statistic and one column per image. draws: the number of
    bootstrap samples. All rows of a sample have the same images. Images with equal marks are
    drawn together, as one class of a multinomial: the same distribution at a lower cost.
    """
    patterns, sizes = np.unique(marks, axis=1, return_counts=True)
    n, rng = marks.shape[1], np.random.default_rng(seed)
    weights = patterns.T.astype(np.float64)  # Sums of counts stay exact.
    firsts = range(0, draws, max(1, _MAX_DRAWN // len(sizes)))
    counts = [min(firsts.step, draws - first) for first in firsts]
    drawn = [rng.multinomial(n, sizes / n, count) @ weights for count in counts]
    return np.concatenate(drawn).astype(np.int64)


def resample(
    by_condition: decisions.ByName, *, draws: int, seed: int
) -> tuple[Int[np.ndarray, "c"], Int[np.ndarray, "draws c"], int]:
    """Return the number of correct images by condition, in the set and in bootstrap samples.

    Returns (counts in the set, counts in each sample, n images); conditions are in the order
    of `by_condition`. draws: the number of samples. ValueError: see `correct_by_condition`.
    """
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
    """Return the numbers `metric`_lower, `metric`_upper and `metric`_undefined.

    drawn: the metric in each bootstrap sample. `_lower` and `_upper` are the percentiles 2.5 and
    97.5 of its finite entries; `_undefined` is the share of samples that are NaN or infinite. n:
    the number of images. condition: the condition of the three numbers. value: the metric on the
    whole set. `_lower` and `_upper` are None if `value` is not finite, or no sample is.
    """
    defined = drawn[np.isfinite(drawn)]
    lower = upper = None
    if len(defined) > 0 and np.isfinite(value):
        lower, upper = np.quantile(defined, (0.025, 0.975))
    num_undefined = len(drawn) - len(defined)
    return [
        decisions.quantity(f"{metric}_lower", lower, n, condition),
        decisions.quantity(f"{metric}_upper", upper, n, condition),
        decisions.share(f"{metric}_undefined", num_undefined, len(drawn), condition),
    ]


def mean_ends(
    metric: str, marks: Column, highest: int, condition: str = "", *, seed: int = 0
) -> decisions.Numbers:
    """Return `metric`_lower and `metric`_upper: a 95 % bootstrap interval of mean(marks / highest).

    marks: whole numbers in 0 ... highest, one for each independent unit (image or pair). n of
    both numbers is the number of units.
    condition: the condition of both numbers.
    """
    n = len(marks)
    drawn = bootstrap_counts(marks[None], draws=1000, seed=seed)[:, 0] / (highest * n)
    mean = decisions.ratio(np.sum(marks), highest * n)
    return bootstrap_interval(metric, drawn, n, condition, value=mean)[:2]


def count_cells(label: Column, value: Column) -> Int[np.ndarray, "k m"]:
    """Return the number of images by class (row) and value of an attribute (column).

    label, value: by image; images with a negative label or value are left out. The table has
    max(label) + 1 rows and max(value) + 1 columns.
    """
    shape = tuple(int(column.max(initial=-1)) + 1 for column in (label, value))
    return sum_cells(np.ones(len(label)), label, value, shape).astype(np.int64)


def sum_cells(
    weight: Shaped[np.ndarray, "n"],
    label: Column,
    value: Column,
    shape: tuple[int, int],
) -> Float[np.ndarray, "k m"]:
    """Return the sum of the images' weights by class (row) and value of an attribute (column).

    weight, label, value: by image; images with a negative label or value are left out. shape:
    (number of rows, number of columns), larger than all labels and values.
    """
    is_known = (label >= 0) & (value >= 0)
    flat = label[is_known].astype(np.int64) * shape[1] + value[is_known]
    sums = np.bincount(flat, weight[is_known], minlength=shape[0] * shape[1])
    return sums.reshape(shape)
