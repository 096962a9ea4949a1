"""Comparison of the answers of networks and of human observers, by the metrics of model-vs-human.

Source: Geirhos, Meding and Wichmann, NeurIPS 2020, https://arxiv.org/abs/2006.16736;
Geirhos et al., NeurIPS 2021, https://arxiv.org/abs/2106.07411. Reference code:
https://github.com/bethgelab/model-vs-human at 79ed7cd, plotting/analyses.py, plot.py.
"""

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from jbias import errors
from jbias.data import class_maps, tables
from jbias.data.sets import geirhos
from jbias.measures import accuracy, counting, cue_conflict, decisions, human_answers
from jbias.stats import consistency

People = Sequence[human_answers.Trials]  # One entry per person.


SETS = ("edge", "silhouette", "cue-conflict", *geirhos.CONDITIONS)
# Conditions without a distortion, and conditions in which human accuracy is below 0.2.
EXCLUDED: Mapping[str, frozenset[str]] = {
    name: frozenset(row["excluded"])
    for name, row in tables.read("model_vs_human")["sets"].items()
    if "excluded" in row
}
OVERALL = (
    "ood_accuracy",
    "accuracy_difference",
    "observed_consistency",
    "error_consistency",
    "human_error_consistency",
)


def make(
    *,
    root: str = "",
    dataset: str = "cue-conflict",
    files: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> counting.Counting:
    """Return a probe that shows unchanged images and compares the decisions with human answers.

    root: a folder of human answers, such as raw-data of model-vs-human.
    dataset: one of SETS; a condition after "/" is ignored. files: the names of the set's
      images, in order. classes: the names of the decision classes; default: Geirhos' 16 in
      their order.

    Metrics: see `numbers`. base.Missing if root has no answers on the set; ValueError without
    root or files, and for an unknown set.
    """
    dataset = dataset.partition("/")[0]
    errors.check_known(
        "human", dataset, SETS, "dataset", must="be one of model-vs-human's"
    )
    must = f"be a folder of people's answers, such as {human_answers.ORIGIN}"
    errors.check(bool(root), "human", must, root, name="root")
    are_names = not isinstance(files, str) and len(files) > 0
    must = "be the names of the set's files"
    errors.check(are_names, "human", must, files, name="files")
    people = human_answers.people(root, dataset)

    def compare_decisions(by_condition: decisions.ByName) -> decisions.Numbers:
        """Return the result of `numbers` for the decisions by condition.

        The other arguments of `numbers` are from the enclosing function and the answers in `root`.
        """
        return numbers(
            by_condition,
            dataset=dataset,
            files=tuple(files),
            people=people,
            classes=tuple(classes),
        )

    return counting.Counting(compare_decisions, digest=human_answers.digest(people))


@decisions.per_condition
def numbers(
    decided: decisions.Decisions,
    *,
    dataset: str,
    files: Sequence[str],
    people: People,
    classes: Sequence[str] = (),
) -> decisions.Numbers:
    """Return metrics of agreement with human observers, for decisions in Geirhos' 16 classes.

    The first argument is a mapping from condition to decisions (`decisions.per_condition`).

    Metrics over the conditions that are not EXCLUDED (left out if all are): ood_accuracy and
    human_accuracy, over all images; and, averaged over conditions and then over human observers,
    accuracy_difference, the mean of (accuracy - observer's accuracy)^2; observed_consistency;
    error_consistency, with _lower and _upper, a bootstrap interval of 95 %;
    human_error_consistency, over pairs of observers, with its interval (left out for a single
    observer). Over all conditions: response_entropy and human_response_entropy in bits. For each
    condition of a set with several, including the excluded ones: error_consistency and
    human_accuracy. If images are unanswered, their share, "unanswered".

    dataset: one of SETS. files: the names of all images of the set; the column "index" has the
    indices of the shown images, if not all were shown. people: trials of each observer, which may
    include more images. classes: the names of the decision classes; default: Geirhos' 16 in their
    order. ValueError if an observer's trials lack an image or have another class for it, if two
    images have the same name, or if no decision class is among the 16. ValueError also without the
    column "index" if not all images were shown.
    """
    ids = np.array([human_answers.image_id(name) for name in files])
    index = decided.columns.get("index", np.arange(len(decided.prediction)))
    if "index" not in decided.columns and len(index) != len(ids):
        must = "human: decisions must have a column index where not all"
        got = f"got {len(index):,} decisions without"
        raise ValueError(f"{must} {len(ids):,} images were shown, {got}")
    names = ids[index].tolist()
    selected = [person.select(names) for person in people]
    label, response = decided.columns.get("label"), decided.prediction
    if classes:
        response = _in_sixteen(response, classes)
        label = None if label is None else _in_sixteen(label, classes)
    _check_same_images(names, label, selected[0].category)
    network = dataclasses.replace(selected[0], subject="network", response=response)
    unanswered = decisions.unanswered(decided.is_unanswered)
    return compare(network, selected, dataset) + unanswered


def _in_sixteen(
    decision: Int[np.ndarray, "n"], classes: Sequence[str]
) -> Int[np.ndarray, "n"]:
    """Return each decision as an index of Geirhos' 16 classes; -1 for other classes.

    classes: names by id. ValueError if none of them is among the 16.
    """
    number_of_name = {name: i for i, name in enumerate(class_maps.geirhos16())}
    sixteen = np.array([*(number_of_name.get(name, -1) for name in classes), -1])
    must = "be Geirhos' 16"
    errors.check(
        (sixteen >= 0).any(),
        "human",
        must,
        ", ".join(classes[:4]),
        name="the decision classes",
    )
    return sixteen[np.asarray(decision)]  # -1 is the last entry.


def _check_same_images(
    names: Sequence[str],
    label: Int[np.ndarray, "n"] | None,
    category: Int[np.ndarray, "n"],
) -> None:
    """Raise ValueError if two images have the same name, or if `label` and `category` differ.

    label: the set's class of each image; -1: this image is not compared; None: no image is.
    category: the class of each image in the observers' trials.
    """
    counts = collections.Counter(names)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        must = "human: images must have different names"
        raise ValueError(f"{must}, got {repeated[0]!r} twice; take the published files")
    if label is None:
        return
    label = np.asarray(label)
    differing = np.flatnonzero((label >= 0) & (label != category))
    if len(differing):
        classes = tuple(class_maps.geirhos16())
        i = differing[0]
        ours, theirs = classes[label[i]], classes[category[i]]
        must = "human: people's answers must be about the images of the set"
        got = f"got {names[i]!r} as {theirs!r}, which is {ours!r} in the set"
        raise ValueError(f"{must}, {got}; take the published files and answers")


def compare(
    network: human_answers.Trials, people: People, dataset: str
) -> decisions.Numbers:
    """Return the metrics of `numbers` from trials with the same images in the same order.

    dataset: one of SETS, for its EXCLUDED conditions.
    """
    everyone = [network, *people]
    correct = np.stack([person.response == person.category for person in everyone])
    condition = np.array(network.condition)
    is_used = ~np.isin(condition, sorted(EXCLUDED.get(dataset, ())))
    n, num_used = len(is_used), int(is_used.sum())
    numbers = []

    def add(
        metric: str,
        value: float,
        count: int | None = None,
        n: int = num_used,
        name: str = "",
    ) -> None:
        """Append a number; name: its condition."""
        numbers.append(decisions.Number(metric, float(value), count, n, name))

    def add_share(metric: str, marks: Bool[np.ndarray, "..."], name: str = "") -> None:
        """Append the share of True entries; name: its condition."""
        add(metric, marks.sum() / marks.size, int(marks.sum()), marks.size, name)

    if num_used:
        used, names = correct[:, is_used], condition[is_used].tolist()
        add_share("ood_accuracy", used[0])
        add_share("human_accuracy", used[1:])
        by_condition = [
            used[:, condition[is_used] == name] for name in dict.fromkeys(names)
        ]
        differences = [
            np.square(marks[0].mean() - marks[1:].mean(1)).mean()
            for marks in by_condition
        ]
        add("accuracy_difference", np.mean(differences))
        agreements = [(marks[0] == marks[1:]).mean(1).mean() for marks in by_condition]
        add("observed_consistency", np.mean(agreements))
        with_network = [(0, i) for i in range(1, len(everyone))]
        among_people = [*itertools.combinations(range(1, len(everyone)), 2)]
        for prefix, pairs in (("", with_network), ("human_", among_people)):
            values = consistency.mean_kappa(used, pairs, names) if pairs else ()
            for ending, value in zip(("", "_lower", "_upper"), values):
                add(f"{prefix}error_consistency{ending}", value)
    add("response_entropy", accuracy.entropy(network.response, 16), n=n)
    entropies = [accuracy.entropy(person.response, 16) for person in people]
    add("human_response_entropy", np.mean(entropies), n=n)
    condition_names = dict.fromkeys(network.condition)
    for name in condition_names if len(condition_names) > 1 else ():
        marks = correct[:, condition == name]
        kappas = [
            consistency.error_consistency(marks[0], person).kappa
            for person in marks[1:]
        ]
        add("error_consistency", np.mean(kappas), n=marks.shape[1], name=name)
        add_share("human_accuracy", marks[1:], name)
    return numbers


def overall(by_set: Mapping[str, Sequence[decisions.Number]]) -> decisions.Numbers:
    """Return the means of the metrics OVERALL over the 17 sets, with equal weights.

    by_set: the result of `numbers` by set. n of a Number is the number of these sets. A metric that
    a set lacks is left out. If sets are missing, the mean is over the remaining sets, and its
    condition is, for instance, "12 of 17 sets" instead of "". ValueError without sets, or for a set
    that is not in SETS.
    """
    are_sets = bool(by_set) and {*by_set} <= {*SETS}
    errors.check(
        are_sets, "human", f"be some of {', '.join(SETS)}", [*by_set], name="sets"
    )
    k, by_metric = len(by_set), {metric: [] for metric in OVERALL}
    for number in itertools.chain(*by_set.values()):
        if not number.condition and number.metric in by_metric:
            by_metric[number.metric].append(number.value)
    condition = "" if k == len(SETS) else f"{k} of {len(SETS)} sets"
    return [
        decisions.quantity(metric, np.mean(values), k, condition)
        for metric, values in by_metric.items()
        if len(values) == k
    ]


def shape_biases(people: People) -> dict[int, cue_conflict.ShapeBias]:
    """Return the shape bias of the pooled human answers to cue conflicts, by shape class.

    Keys are indices of Geirhos' 16 classes. people: trials on the same images.
    """
    known = tuple(class_maps.geirhos16())
    texture = geirhos.texture_labels("human", people[0].image, known)
    answer = np.concatenate([person.response for person in people])
    shape = np.concatenate([person.category for person in people])
    return cue_conflict.by_class(answer, shape, np.tile(texture, len(people)))
