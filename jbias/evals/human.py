"""Do networks err where people err? Error consistency, and what model-vs-human reports.

Source: Geirhos, Meding and Wichmann, NeurIPS 2020, https://arxiv.org/abs/2006.16736;
Geirhos et al., NeurIPS 2021, https://arxiv.org/abs/2106.07411. Reference code:
https://github.com/bethgelab/model-vs-human at 79ed7cd, plotting/analyses.py, plot.py.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float

from jbias.data import base, geirhos, labels
from jbias.evals import accuracy, cue_conflict, decisions, probe, trials


@dataclasses.dataclass(frozen=True)
class Consistency:
    """How two decision makers agree on which images are hard."""

    kappa: float  # 1: they err on the same images; 0: as by chance.
    observed: float  # Share of images on which both are right or both wrong.
    expected: float  # That share, were their errors independent.


def error_consistency(
    a_correct: Bool[np.ndarray, "n"], b_correct: Bool[np.ndarray, "n"]
) -> Consistency:
    """Cohen's kappa of being right, of two decision makers on the same images.

    kappa = (observed - expected) / (1 - expected), expected = p_a p_b + (1 - p_a)
    (1 - p_b); 1 where they always agree. ValueError where the lengths differ, or
    there is no image.
    """
    a, b = np.asarray(a_correct), np.asarray(b_correct)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(
            "error_consistency: both must say of the same images whether they were"
            f" answered right, got shapes {a.shape} and {b.shape}"
        )
    both = np.stack([a, b])
    if not np.isin(both, (False, True)).all():
        raise ValueError(
            "error_consistency: both must be true where an answer is right, got"
            f" {a.dtype} and {b.dtype}; compare the answers with the labels first"
        )
    once = np.ones((1, len(a)))
    parts = (float(x[0, 0]) for x in _kappas(both.astype(bool), ((0, 1),), once))
    return Consistency(*parts)


def _kappas(
    correct: Bool[np.ndarray, "d n"],
    pairs: Sequence[tuple[int, int]],
    weights: Float[np.ndarray, "w n"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """kappa, observed and expected, each (w, pairs), with images counted so often."""
    one, other = np.transpose(pairs)
    n = weights.sum(1, keepdims=True)
    p = weights @ correct.T / n
    observed = weights @ (correct[one] == correct[other]).T / n
    expected = p[:, one] * p[:, other] + (1 - p[:, one]) * (1 - p[:, other])
    # Both are always right, or both always wrong, only where they always agree.
    always = observed == 1
    chance = np.where(always, 0, expected)
    kappa = np.where(always, 1.0, (observed - chance) / (1 - chance))
    return kappa, observed, expected


def mean_kappa(
    correct: Bool[np.ndarray, "d n"],
    pairs: Sequence[tuple[int, int]],
    condition: Sequence[str] | None = None,
    *,
    draws: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Mean kappa of pairs of decision makers, with a bootstrap interval over images.

    kappa is taken in each condition and averaged over conditions, then over pairs.
    Images are drawn within their condition, the same for all decision makers, who stay
    the ones there are. Returns value, low and high, of percentiles.
    """
    random = np.random.default_rng(seed)
    condition = np.asarray(condition or [""] * correct.shape[1])
    kappa = []
    for name in np.unique(condition):
        part = correct[:, condition == name]
        n = part.shape[1]
        drawn = random.multinomial(n, np.full(n, 1 / n), size=draws)
        weights = np.concatenate([np.ones((1, n)), drawn])
        kappa.append(_kappas(part, pairs, weights)[0].mean(1))
    means = np.mean(kappa, axis=0)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means[1:], (tail, 1 - tail))
    return float(means[0]), float(low), float(high)


SETS = ("edge", "silhouette", "cue-conflict", *geirhos.CONDITIONS)
# Controls without a distortion, and where people are right less often than 0.2.
EXCLUDED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "colour": frozenset({"cr"}),
        "contrast": frozenset({"c100", "c03", "c01"}),
        "high-pass": frozenset({"inf", "0.55", "0.45", "0.4"}),
        "low-pass": frozenset({"0", "15", "40"}),
        "phase-scrambling": frozenset({"0", "150", "180"}),
        "power-equalisation": frozenset({"0"}),
        "false-colour": frozenset({"True"}),
        "rotation": frozenset({"0"}),
        "eidolonI": frozenset({"1-10-10", "64-10-10", "128-10-10"}),
        "eidolonII": frozenset({"1-3-10", "32-3-10", "64-3-10", "128-3-10"}),
        "eidolonIII": frozenset(
            {"1-0-10", "16-0-10", "32-0-10", "64-0-10", "128-0-10"}
        ),
        "uniform-noise": frozenset({"0.0", "0.6", "0.9"}),
    }
)
OVERALL = (
    *("ood_accuracy", "accuracy_difference"),
    *("observed_consistency", "error_consistency", "human_error_consistency"),
)


def make(
    *, root: str = "", dataset: str = "cue-conflict", files: Sequence[str] = ()
) -> probe.Probe:
    """Shows the images as they are; compares the answers with people's.

    root: a folder of people's answers, such as raw-data of model-vs-human.
    dataset: one of SETS; what follows "/" is a condition, and no matter. files: the names
      of the set's images, in their order.
    """
    dataset = dataset.partition("/")[0]
    if dataset not in SETS:
        raise ValueError(
            f"human: dataset must be one of model-vs-human's, got {dataset!r};"
            f" {base.did_you_mean(dataset, SETS)}"
        )
    if not root:
        raise ValueError(
            "human: root must be a folder of people's answers, got none; they are in"
            " raw-data of https://github.com/bethgelab/model-vs-human"
        )
    if isinstance(files, str) or not len(files):
        raise ValueError(
            "human: files must be the names of the set's files, got"
            f" {files!r}; measure it on a set of files"
        )
    people = trials.people(root, dataset)
    counted = functools.partial(
        numbers, dataset=dataset, files=tuple(files), people=people
    )
    digest = trials.digest(people)
    return probe.Probe({"": ()}, probe.identity, counted, digest=digest)


def numbers(
    by_rule: Mapping[str, decisions.Decisions],
    *,
    dataset: str,
    files: Sequence[str],
    people: Sequence[trials.Trials],
) -> list[decisions.Number]:
    """What each rule's decisions, in Geirhos' 16 classes, have in common with people's.

    Over the conditions that are not EXCLUDED: ood_accuracy and human_accuracy, pooled;
    and, averaged over these conditions and then over people, accuracy_difference, the
    mean of (accuracy - person's)^2; observed_consistency; error_consistency, with _lower
    and _upper, a bootstrap interval of 95 %; human_error_consistency, over pairs of
    people, with its interval. Over all: response_entropy and human_response_entropy in
    bits. For each condition of a set that has several, the excluded ones too:
    error_consistency and human_accuracy. People may have seen more images than were
    shown; the column "index" says which of `files` these were, if not all.
    """
    ids = np.array([trials.image_id(name) for name in files])
    found = []
    for rule, decided in by_rule.items():
        shown = decided.columns.get("index", np.arange(len(decided.prediction)))
        if "index" not in decided.columns and len(shown) != len(ids):
            raise ValueError(
                f"human: decisions must have a column index where not all {len(ids):,}"
                f" images were shown, got {len(shown):,} decisions without"
            )
        names = ids[shown].tolist()
        same = [person.select(names) for person in people]
        network = dataclasses.replace(
            same[0], subject="network", response=decided.prediction
        )
        found += compare(network, same, dataset, rule)
    return found


def compare(
    network: trials.Trials,
    people: Sequence[trials.Trials],
    dataset: str,
    rule: str = "",
) -> list[decisions.Number]:
    """The numbers of one decision maker against people, on the same images in order."""
    everyone = [network, *people]
    correct = np.stack([one.response == one.category for one in everyone])
    condition = np.array(network.condition)
    kept = ~np.isin(condition, sorted(EXCLUDED.get(dataset, ())))
    n, used = len(kept), int(kept.sum())
    found = []

    def note(metric, value, count=None, n=used, name=""):
        place = f"{rule} {name}".strip()
        found.append(decisions.Number(metric, value, count, n, place))

    if used:
        right, names = correct[:, kept], condition[kept].tolist()
        count, theirs = int(right[0].sum()), int(right[1:].sum())
        note("ood_accuracy", count / used, count)
        all_answers = right[1:].size
        note("human_accuracy", theirs / all_answers, theirs, all_answers)
        against = [(0, i) for i in range(1, len(everyone))]
        parts = [right[:, condition[kept] == name] for name in dict.fromkeys(names)]
        each = [np.square(p[0].mean() - p[1:].mean(1)).mean() for p in parts]
        note("accuracy_difference", float(np.mean(each)))
        each = [(p[0] == p[1:]).mean(1).mean() for p in parts]
        note("observed_consistency", float(np.mean(each)))
        between = list(itertools.combinations(range(1, len(everyone)), 2))
        for metric, pairs in (
            ("error_consistency", against),
            ("human_error_consistency", between),
        ):
            if pairs:
                value, low, high = mean_kappa(right, pairs, names)
                note(metric, value)
                note(f"{metric}_lower", low)
                note(f"{metric}_upper", high)
    note("response_entropy", accuracy.entropy(network.response, 16), n=n)
    theirs = float(np.mean([accuracy.entropy(one.response, 16) for one in people]))
    note("human_response_entropy", theirs, n=n)
    levels = dict.fromkeys(network.condition)
    for name in levels if len(levels) > 1 else ():
        part = correct[:, condition == name]
        each = [error_consistency(part[0], person).kappa for person in part[1:]]
        size, right = part[1:].size, int(part[1:].sum())
        note("error_consistency", float(np.mean(each)), n=part.shape[1], name=name)
        note("human_accuracy", right / size, right, size, name)
    return found


def overall(by_set: Mapping[str, Sequence[decisions.Number]]) -> list[decisions.Number]:
    """The benchmark's numbers: means over the 17 sets, each of them once.

    by_set: what `numbers` gave of each set. Where sets lack, the condition says how
    many there are, "12 of 17 sets", so that no such mean is taken for the whole.
    """
    unknown = sorted(set(by_set) - set(SETS))
    if unknown or not by_set:
        raise ValueError(
            f"human: sets must be some of {', '.join(SETS)}, got"
            f" {unknown[0] if unknown else 'none'}"
        )
    k = len(by_set)
    condition = "" if k == len(SETS) else f"{k} of {len(SETS)} sets"
    found = []
    for metric in OVERALL:
        each = [
            number.value
            for of in by_set.values()
            for number in of
            if (number.metric, number.condition) == (metric, "")
        ]
        if len(each) == k:
            mean = float(np.mean(each))
            found.append(decisions.Number(metric, mean, None, k, condition))
    return found


def shape_biases(people: Sequence[trials.Trials]) -> dict[int, cue_conflict.ShapeBias]:
    """By class of shapes, of all people's answers to cue conflicts together."""
    known = tuple(labels.geirhos16())
    texture = geirhos.texture_labels("human", people[0].image, known)
    return cue_conflict.by_class(
        np.concatenate([one.response for one in people]),
        np.concatenate([one.category for one in people]),
        np.tile(texture, len(people)),
    )


def confusion(one: trials.Trials) -> Float[np.ndarray, "rows 16"]:
    """Which per cent of each class gets which answer; a last row for none."""
    return accuracy.confusion(np.asarray(one.response), one.category, 16)
