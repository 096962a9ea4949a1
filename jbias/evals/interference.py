"""Do a network's errors on distorted images gather in one class? The DI index.

A distortion that looks like some class to a network interferes with what is measured: the
loss of accuracy tells of that class, and not only of what was taken away. Counted over the
wrong decisions, by the class that was decided.

Source: Marcu and Pruegel-Bennett, "On the effects of data distortion on model analysis and
training", https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, DI.py.
Deviation: there a class counts at most once a batch, by an indexed addition; here each
wrong decision counts. There a run without any increase has no value; here it is 0.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from jbias.evals import accuracy, decisions, probe

VARIANTS = ("share", "count")
FEWEST = 5  # Runs of which a range is given.
Runs = Sequence[decisions.Decisions]  # Of one method, on the same set.
Counts = Int[np.ndarray, "r k"]  # By run and class.
Growth = Float[np.ndarray, "r k"]


@dataclasses.dataclass(frozen=True, eq=False)
class Interference:
    """The index of r runs of one method, all in percent.

    With one run std is NaN: it says nothing of others; with fewer than `FEWEST` low and
    high are.
    """

    runs: Float[np.ndarray, "r"]
    mean: float
    std: float  # Over runs, with r - 1.
    low: float  # The range of the mean where runs are redrawn.
    high: float
    worst: float  # The mean, were every run's increase that of the worst run.
    dominant: int | None  # The class; None where no class grows.
    increase: Float[np.ndarray, "r k"]  # i_r[c].

    @property
    def parts(self) -> Float[np.ndarray, "r 2"]:
        """i_r[c*] / sum_c i_r[c] and i_r[c*]: "share" has the product of their means.

        They name no class, so two methods whose errors gather in different classes can be
        compared by them.
        """
        if self.dominant is None:
            return np.zeros((len(self.increase), 2))
        grown, total = self.increase[:, self.dominant], self.increase.sum(axis=1)
        part = np.divide(grown, total, out=np.zeros_like(grown), where=total > 0)
        return np.stack([part, grown], axis=1)


def wrong_by_class(decided: decisions.Decisions, classes: int) -> Int[np.ndarray, "k"]:
    """How many wrong decisions are for each of so many classes.

    Images without a right class (-1) are left out. ValueError where a decision is for a
    class that is not there.
    """
    prediction = np.asarray(decided.prediction)
    if len(prediction) and not 0 <= prediction.min() <= prediction.max() < classes:
        raise ValueError(
            f"interference: decisions must be in 0 ... {classes - 1}, got "
            f"{prediction.min()} ... {prediction.max()}; say how many classes there are"
        )
    wrongly = (np.asarray(decided.columns["label"]) >= 0) & ~decided.right
    return np.bincount(prediction[wrongly], minlength=classes)


def increase(
    clean: Counts, distorted: Counts, images: int, *, variant: str = "share"
) -> Growth:
    """How much each class grows among the wrong decisions, in percent; 0 if it does not.

    clean, distorted: wrong decisions by class, W0 and W1, of so many images.
    "share", as released: i = K max(q1 - q0, 0), with q = W / sum W, or 0 where nothing is
    wrong, and K classes. One class that gets all errors, of uniform ones, has K - 1.
    "count", as the paper words it: i = 100 max(W1 - W0, 0) / images.
    """
    must = f"variant must be one of {', '.join(VARIANTS)}"
    probe.check(variant in VARIANTS, "interference", must, variant)
    clean, distorted = np.asarray(clean), np.asarray(distorted)
    shapes = clean.shape, distorted.shape
    must = "counts must be by run and class, clean and distorted alike"
    probe.check(len({*shapes}) == 1 and clean.ndim == 2, "interference", must, shapes)
    if variant == "count":
        return 100 * np.maximum(distorted - clean, 0) / max(images, 1)
    grown = _shares(distorted) - _shares(clean)
    return clean.shape[1] * np.maximum(grown, 0)


def _shares(counts: Counts) -> Float[np.ndarray, "*r k"]:
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


def index(
    increase: Growth, *, variant: str = "share", draws: int = 2000, seed: int = 0
) -> Interference:
    """DI_r = i_r[c*] / (sum_c i_r[c]) w, of the dominant class c* = argmax mean_r i_r[c].

    increase: what `increase` gives, with the same variant. w is mean_r i_r[c*] for
    "share", i_r[c*] for "count", and max_r i_r[c*] for the worst case of both. A run in
    which no class grows has 0; of equal classes the lowest is c*.

    Of `FEWEST` runs or more, low and high are percentiles of the mean where runs are
    redrawn, and c* and w with them. That is a range of 95 %, and no interval of confidence:
    of 5 runs the true index is in 65 to 85 of 100 ranges of 95 %, by simulation, and in none
    where no class is preferred, for the index is above 0 by chance (see `by_chance`).
    """
    i = np.asarray(increase, np.float64)
    r = len(i)
    (values,), (worst,), (dominant,) = _index(i, np.ones((1, r)), variant)
    low = high = math.nan
    if r >= FEWEST:
        random = np.random.default_rng(seed)
        often = random.multinomial(r, np.full(r, 1 / r), size=draws)
        drawn = (_index(i, often, variant)[0] * often).sum(axis=1) / r
        low, high = np.quantile(drawn, accuracy.INTERVAL_QUANTILES).tolist()
    std = float(values.std(ddof=1)) if r > 1 else math.nan
    ends, worst = (low, high), float(worst.mean())
    dominant = int(dominant) if i.any() else None
    return Interference(values, float(values.mean()), std, *ends, worst, dominant, i)


def _index(i: Growth, often: np.ndarray, variant: str) -> tuple[np.ndarray, ...]:
    """Each run's index and its worst case of all runs, and c*, with runs so often.

    often: (b, r); then the first two are, and c* is (b).
    """
    mean = often @ i / often.sum(axis=1, keepdims=True)
    dominant = mean.argmax(axis=1)
    grown = i[:, dominant].T  # (b, r)
    total = i.sum(axis=1)
    part = np.divide(grown, total, out=np.zeros_like(grown), where=total > 0)
    weight = grown
    if variant == "share":
        weight = mean[np.arange(len(mean)), dominant][:, None]
    return part * weight, part * grown.max(axis=1, keepdims=True), dominant


def of_runs(
    clean: Runs, distorted: Runs, *, classes: int, variant: str = "share", **options
) -> Interference:
    """The index of runs of one method, from what each decided on the same set.

    classes: how many there are to decide among. options: those of `index`. ValueError
    where runs, images or their labels are not the same.
    """
    images = int((np.asarray(clean[0].columns["label"]) >= 0).sum()) if clean else 0
    grown = increase(*_counts(clean, distorted, classes), images, variant=variant)
    return index(grown, variant=variant, **options)


def by_chance(clean: Runs, distorted: Runs, *, classes: int) -> float:
    """The mean index ("share") of such runs if distortion prefers no class.

    Each run's wrong decisions, of both sets together, are dealt out anew: as many for the
    images as they are and as distorted as there were. They are dealt one by one, though
    many are of the same image before and after, so this is rather too large.
    """
    before, after = _counts(clean, distorted, classes)
    random = np.random.default_rng(0)
    deal = functools.partial(random.multivariate_hypergeometric, size=200)
    dealt = np.stack([*map(deal, before + after, before.sum(axis=1))], axis=1)
    grown = np.maximum(_shares(before + after - dealt) - _shares(dealt), 0)  # (b, r, k)
    mean = classes * grown.mean(axis=1)
    of_best = np.take_along_axis(grown, mean.argmax(axis=1)[:, None, None], axis=2)
    total = grown.sum(axis=2)
    part = of_best[..., 0] / np.where(total > 0, total, 1)
    return float((part.mean(axis=1) * mean.max(axis=1)).mean())


def _counts(clean: Runs, distorted: Runs, classes: int) -> list[Counts]:
    runs = (*clean, *distorted)
    sizes = {len(one.prediction) for one in runs}
    if not clean or len(clean) != len(distorted) or len(sizes) != 1:
        raise ValueError(
            "interference: clean and distorted must be of the same runs and images, got "
            f"{len(clean)} and {len(distorted)} runs of {sorted(sizes)} images"
        )
    for number, one in enumerate(runs):
        other = np.asarray(one.columns["label"]) != np.asarray(runs[0].columns["label"])
        if other.any():
            raise ValueError(
                "interference: clean and distorted must be of the same images, got "
                f"{int(other.sum())} other labels in run {number % len(clean)}; measure "
                "the runs on the same set"
            )
    return np.split(np.stack([wrong_by_class(one, classes) for one in runs]), 2)


@decisions.per_rule
def numbers(by: decisions.ByName, *, classes: int) -> Iterator[decisions.Number]:
    """Accuracy under each condition, and `di_index`, in percent, of each against "".

    Of one network: DI = i[c*]^2 / sum_c i[c] in both variants. Each rule of several
    classes that answer for one is counted by itself.
    """
    for name, decided in by.items():
        yield decisions.mean("accuracy", decided.right, name)
        if name:
            one = of_runs([by[""]], [decided], classes=classes)
            n = len(decided.prediction)
            yield decisions.Number("di_index", one.mean, None, n, name)
