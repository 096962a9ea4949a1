"""Do networks err where people err? What model-vs-human reports.

Source: Geirhos, Meding and Wichmann, NeurIPS 2020, https://arxiv.org/abs/2006.16736;
Geirhos et al., NeurIPS 2021, https://arxiv.org/abs/2106.07411. Reference code:
https://github.com/bethgelab/model-vs-human at 79ed7cd, plotting/analyses.py, plot.py.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from jbias.data import base, labels, tables
from jbias.data.sets import geirhos
from jbias.evals import accuracy, cue_conflict, decisions, probe, trials
from jbias.stats import consistency

People = Sequence[trials.Trials]


SETS = ("edge", "silhouette", "cue-conflict", *geirhos.CONDITIONS)
# Controls without a distortion, and where people are right less often than 0.2.
EXCLUDED: Mapping[str, frozenset[str]] = {
    name: frozenset(row["excluded"])
    for name, row in tables.read("model_vs_human")["sets"].items()
    if "excluded" in row
}
OVERALL = ("ood_accuracy", "accuracy_difference", "observed_consistency")
OVERALL += ("error_consistency", "human_error_consistency")


def make(
    *,
    root: str = "",
    dataset: str = "cue-conflict",
    files: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> probe.Probe:
    """Shows the images as they are; compares the answers with people's.

    root: a folder of people's answers, such as raw-data of model-vs-human.
    dataset: one of SETS; what follows "/" is a condition, and no matter. files: the names
      of the set's images, in their order. classes: the names of the decision classes;
      without them they are Geirhos' 16 in their order.
    """
    dataset = dataset.partition("/")[0]
    base.check_known("human: dataset must be one of model-vs-human's", dataset, SETS)
    must = f"root must be a folder of people's answers, such as {trials.ORIGIN}"
    probe.check(bool(root), "human", must, root)
    several = not isinstance(files, str) and len(files) > 0
    probe.check(several, "human", "files must be the names of the set's files", files)
    people = trials.people(root, dataset)
    of = dict(
        dataset=dataset, files=tuple(files), people=people, classes=tuple(classes)
    )
    counted, digest = functools.partial(numbers, **of), trials.digest(people)
    return probe.Probe({"": ()}, probe.identity, counted, digest=digest)


@decisions.per_condition
def numbers(
    decided: decisions.Decisions,
    *,
    dataset: str,
    files: Sequence[str],
    people: People,
    classes: Sequence[str] = (),
) -> decisions.Numbers:
    """What each rule's decisions, in Geirhos' 16 classes, have in common with people's.

    Over the conditions that are not EXCLUDED: ood_accuracy and human_accuracy, pooled;
    and, averaged over these conditions and then over people, accuracy_difference, the
    mean of (accuracy - person's)^2; observed_consistency; error_consistency, with _lower
    and _upper, a bootstrap interval of 95 %; human_error_consistency, over pairs of
    people, with its interval. Over all: response_entropy and human_response_entropy in
    bits. For each condition of a set that has several, the excluded ones too:
    error_consistency and human_accuracy. People may have seen more images than were
    shown; the column "index" says which of `files` these were, if not all. classes: the
    names of the decision classes, which may have another order than Geirhos' 16, whose
    order it is without them.
    """
    ids = np.array([trials.image_id(name) for name in files])
    shown = decided.columns.get("index", np.arange(len(decided.prediction)))
    if "index" not in decided.columns and len(shown) != len(ids):
        must = "human: decisions must have a column index where not all"
        got = f"got {len(shown):,} decisions without"
        raise ValueError(f"{must} {len(ids):,} images were shown, {got}")
    names = ids[shown].tolist()
    same = [person.select(names) for person in people]
    label, response = decided.columns.get("label"), decided.prediction
    if classes:
        response = _in_sixteen(response, classes)
        label = None if label is None else _in_sixteen(label, classes)
    _check_same_images(names, label, same[0].category)
    network = dataclasses.replace(same[0], subject="network", response=response)
    return compare(network, same, dataset)


def _in_sixteen(decision: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Return decision classes as numbers of Geirhos' 16; -1 for none of these."""
    numbers = {name: i for i, name in enumerate(labels.geirhos16())}
    sixteen = np.array([*(numbers.get(name, -1) for name in classes), -1])
    must = "the decision classes must be Geirhos' 16"
    probe.check((sixteen >= 0).any(), "human", must, ", ".join(classes[:4]))
    return sixteen[np.asarray(decision)]  # -1 is the last entry.


def _check_same_images(names: Sequence[str], label, category) -> None:
    """Raise ValueError if two images have one name, or people's class is another.

    label: the set's class of each image, -1 for none; category: that of people's trials.
    """
    if twice := [name for name, n in collections.Counter(names).items() if n > 1]:
        must = "human: images must have different names"
        raise ValueError(f"{must}, got {twice[0]!r} twice; take the published files")
    if label is None:
        return
    differ = np.flatnonzero((np.asarray(label) >= 0) & (np.asarray(label) != category))
    if len(differ):
        classes = tuple(labels.geirhos16())
        i = differ[0]
        ours, theirs = classes[label[i]], classes[category[i]]
        must = "human: people's answers must be about the images of the set"
        got = f"got {names[i]!r} as {theirs!r}, which is {ours!r} in the set"
        raise ValueError(f"{must}, {got}; take the published files and answers")


def compare(network: trials.Trials, people: People, dataset: str) -> decisions.Numbers:
    """The numbers of one decision maker against people, on the same images in order."""
    everyone = [network, *people]
    correct = np.stack([one.response == one.category for one in everyone])
    condition = np.array(network.condition)
    kept = ~np.isin(condition, sorted(EXCLUDED.get(dataset, ())))
    n, used = len(kept), int(kept.sum())
    found = []

    def note(metric, value, count=None, n=used, name=""):
        found.append(decisions.Number(metric, float(value), count, n, name))

    def share(metric, right, name=""):
        note(metric, right.sum() / right.size, int(right.sum()), right.size, name)

    if used:
        right, names = correct[:, kept], condition[kept].tolist()
        share("ood_accuracy", right[0])
        share("human_accuracy", right[1:])
        parts = [right[:, condition[kept] == name] for name in dict.fromkeys(names)]
        each = [np.square(p[0].mean() - p[1:].mean(1)).mean() for p in parts]
        note("accuracy_difference", np.mean(each))
        each = [(p[0] == p[1:]).mean(1).mean() for p in parts]
        note("observed_consistency", np.mean(each))
        against = [(0, i) for i in range(1, len(everyone))]
        between = [*itertools.combinations(range(1, len(everyone)), 2)]
        for whose, pairs in (("", against), ("human_", between)):
            values = consistency.mean_kappa(right, pairs, names) if pairs else ()
            for ending, value in zip(("", "_lower", "_upper"), values):
                note(f"{whose}error_consistency{ending}", value)
    note("response_entropy", accuracy.entropy(network.response, 16), n=n)
    theirs = np.mean([accuracy.entropy(one.response, 16) for one in people])
    note("human_response_entropy", theirs, n=n)
    levels = dict.fromkeys(network.condition)
    for name in levels if len(levels) > 1 else ():
        part = correct[:, condition == name]
        each = [consistency.error_consistency(part[0], x).kappa for x in part[1:]]
        note("error_consistency", np.mean(each), n=part.shape[1], name=name)
        share("human_accuracy", part[1:], name)
    return found


def overall(by_set: Mapping[str, Sequence[decisions.Number]]) -> decisions.Numbers:
    """The benchmark's numbers: means over the 17 sets, each of them once.

    by_set: what `numbers` gave of each set. Where sets lack, the condition says how
    many there are, "12 of 17 sets", so that no such mean is taken for the whole.
    """
    some = bool(by_set) and {*by_set} <= {*SETS}
    probe.check(some, "human", f"sets must be some of {', '.join(SETS)}", [*by_set])
    k, each = len(by_set), {metric: [] for metric in OVERALL}
    for number in itertools.chain(*by_set.values()):
        if not number.condition and number.metric in each:
            each[number.metric].append(number.value)
    condition = "" if k == len(SETS) else f"{k} of {len(SETS)} sets"
    means = {key: np.mean(values) for key, values in each.items() if len(values) == k}
    return [decisions.quantity(key, mean, k, condition) for key, mean in means.items()]


def shape_biases(people: People) -> dict[int, cue_conflict.ShapeBias]:
    """By class of shapes, of all people's answers to cue conflicts together."""
    known = tuple(labels.geirhos16())
    texture = geirhos.texture_labels("human", people[0].image, known)
    answer = np.concatenate([one.response for one in people])
    shape = np.concatenate([one.category for one in people])
    return cue_conflict.by_class(answer, shape, np.tile(texture, len(people)))
