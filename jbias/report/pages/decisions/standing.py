"""Scores of the observers of one set: intervals, ranks, pairs and error consistency.

`Standing` computes each number once, on first use; the sections of the page show them.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from jbias.answers import observers, parsing
from jbias.answers import scores as scores_lib
from jbias.measures import decisions
from jbias.report import tables
from jbias.stats import consistency, rank_intervals, ratios

CONFIDENCE = 0.95
LEVEL = "95 %"  # CONFIDENCE in words.
ALPHA = 0.05
SEED = 0
DRAWS = 10_000  # Bootstrap draws of images, for intervals and ranks.
KAPPA_DRAWS = 2_000  # For intervals of error consistency.
PEOPLE = "people"
NO_GROUP = "no group"
# An observer's most frequent class has at least this share of its answers: a warning.
FREQUENT = 0.5
FEW_DECISIONS = 100  # With fewer decisions, intervals of shape bias are over 0.2 wide.
GUESSES = "no more decisions for either cue than guessing gives, so no claim follows"
SCORE_NAMES = {"shape_bias": "shape bias", "accuracy": "accuracy"}
_PERSON = re.compile(r"subject-\d+\b")


def kind_of(observer: observers.Observer) -> str:
    """Return the group of an observer: "people", the name of its folder, or "no group".

    People have names such as "subject-01", as in the files of model-vs-human. The folder of a
    task, such as vqa, is left out if there is a folder above. The factor "kind" of `renamed` comes
    first.
    """
    if observer.factors.get("kind"):
        return observer.factors["kind"]
    if _PERSON.match(observer.name) or _PERSON.match(observer.factors.get("model", "")):
        return PEOPLE
    folders = observer.factors.get("group", "").split("/")
    task = observer.factors.get("task", "")
    names = [name for name in folders if name and name != task]
    return (names or [task])[-1] or NO_GROUP


@dataclasses.dataclass(frozen=True, eq=False)
class ScoreResult:
    """One score of all observers of a panel, with intervals, ranks and differences of pairs.

    Arrays have one entry per observer, NaN for observers without this score.
    """

    score: scores_lib.Score
    value: Float[np.ndarray, "k"]
    lower: Float[np.ndarray, "k"]
    upper: Float[np.ndarray, "k"]
    count: Int[np.ndarray, "k"]  # Numerator: shape decisions, or right decisions.
    n: Int[np.ndarray, "k"]  # Denominator: decisions for either cue, or images.

    @property
    def is_known(self) -> np.ndarray:
        """True for observers with this score."""
        return self.n > 0

    @functools.cached_property
    def ranks(self) -> pd.DataFrame:
        """Ranks by observer: rank, lower, upper (simultaneous), marginal_lower, marginal_upper.

        Rank 1 is the largest value. NaN for observers without this score; no interval for a single
        observer.
        """
        columns = ["rank", "lower", "upper", "marginal_lower", "marginal_upper"]
        frame = pd.DataFrame(
            math.nan, index=range(len(self.n)), columns=columns, dtype=float
        )
        known = np.flatnonzero(self.is_known)
        if len(known) == 1:
            frame.loc[known, "rank"] = 1
        elif len(known):
            ranked = rank_intervals.rank_intervals(
                self.score.numerator[known],
                self.score.denominator[known],
                confidence=CONFIDENCE,
                draws=DRAWS,
                seed=SEED,
            )
            for name in columns:
                frame.loc[known, name] = getattr(ranked, name)
            for column in ("lower", "marginal_lower"):
                frame[column] = (frame[column] - self.num_uncompared).clip(lower=1)
            for column in ("upper", "marginal_upper"):
                ends = frame[column] + self.num_uncompared
                frame[column] = ends.clip(upper=len(known))
        return frame

    @functools.cached_property
    def num_uncompared(self) -> Int[np.ndarray, "k"]:
        """Number of observers with which each observer cannot be compared on common images.

        These may have any place above or below, so intervals of ranks are wider by this number.
        """
        missing = self.pairs[self.pairs["pvalue"].isna()]
        numbers = missing[["first", "second"]].to_numpy(int).ravel()
        return np.bincount(numbers, minlength=len(self.n))

    @functools.cached_property
    def pairs(self) -> pd.DataFrame:
        """Differences of all pairs of observers with this score, over the images of both.

        Columns: first and second (numbers of observers), difference (first less second), lower,
        upper, standard_error, pvalue (unadjusted), adjusted (Holm over all rows) and num_images.
        """
        known = np.flatnonzero(self.is_known)
        columns = [*_PAIR_FIELDS]
        if len(known) < 2:
            return pd.DataFrame(columns=["first", "second", *columns])
        compared = ratios.compare_ratios(
            self.score.numerator[known],
            self.score.denominator[known],
            self.score.has_row[known],
            adjust="holm",
            confidence=CONFIDENCE,
        )
        frame = pd.DataFrame({name: getattr(compared, name) for name in columns})
        frame.insert(0, "first", known[np.asarray(compared.first)])
        frame.insert(1, "second", known[np.asarray(compared.second)])
        return frame

    @functools.cached_property
    def pairs_of_pictures(self) -> ratios.ComparedRatios | None:
        """Comparisons as in `pairs`, with the pictures that images share counted as drawn.

        None for scores without pictures, for pictures that are all the same, and for fewer than
        two observers with this score.
        """
        pictures = self.score.pictures
        known = np.flatnonzero(self.is_known)
        if not pictures or len(known) < 2 or min(len({*x}) for x in pictures) < 2:
            return None
        return ratios.compare_ratios(
            self.score.numerator[known],
            self.score.denominator[known],
            self.score.has_row[known],
            adjust="holm",
            confidence=CONFIDENCE,
            clusters=pictures,
        )


_PAIR_FIELDS = (
    "difference",
    "lower",
    "upper",
    "standard_error",
    "pvalue",
    "adjusted",
    "num_images",
)


def score_result(score: scores_lib.Score) -> ScoreResult:
    """Return the values of a score with bootstrap intervals over images."""
    size = len(score.numerator)
    values = {name: np.full(size, math.nan) for name in ("value", "lower", "upper")}
    known = score.denominator.any(axis=1)
    if known.any():
        result = ratios.bootstrap_ratios(
            score.numerator[known],
            score.denominator[known],
            has_row=score.has_row[known],
            draws=DRAWS,
            seed=SEED,
            confidence=CONFIDENCE,
        )
        for name, array in values.items():
            array[known] = getattr(result, name)
    return ScoreResult(
        score,
        values["value"],
        lower=values["lower"],
        upper=values["upper"],
        count=score.numerator.sum(axis=1),
        n=score.denominator.sum(axis=1),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Standing:
    """The observers of one set and their numbers, each computed on first use."""

    panel: observers.Panel
    suffix: str = ""  # Of names of tables and figures, if the page has several sets.

    @functools.cached_property
    def scores(self) -> dict[str, ScoreResult]:
        """Results by name of the score: shape_bias (for cue conflicts only), then accuracy."""
        scores = [scores_lib.shape_bias(self.panel), scores_lib.accuracy(self.panel)]
        return {score.name: score_result(score) for score in scores if score}

    @property
    def main(self) -> ScoreResult:
        """The score that orders the observers: shape bias, or accuracy without textures."""
        return next(iter(self.scores.values()))

    @property
    def main_name(self) -> str:
        """Name of the main score in words."""
        return SCORE_NAMES[self.main.score.name]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observers."""
        return self.panel.names

    @functools.cached_property
    def kinds(self) -> tuple[str, ...]:
        """Group of each observer."""
        return tuple(kind_of(observer) for observer in self.panel.observers)

    @functools.cached_property
    def order(self) -> list[int]:
        """Numbers of the observers by decreasing main score, then by name; unknown scores last."""
        values = np.where(self.main.is_known, -self.main.value, math.inf)
        return sorted(
            range(len(self.names)), key=lambda i: (float(values[i]), self.names[i])
        )

    @functools.cached_property
    def counts(self) -> pd.DataFrame:
        """Numbers of decisions of each observer, one row per observer.

        rows: images in the observer's file; unanswered_rows: those without an answer; conflicts: those whose cues have different classes (all
        rows for a set without textures); shape, texture, neither, unanswered: decisions for the
        conflicts, which sum to their number (without textures: right, wrong and unanswered);
        frequent: most frequent class among the answers, "" without answers; frequent_count: number
        of these answers; answers: number of all answers.
        """
        panel = self.panel
        has_textures = panel.texture is not None
        counted = (
            panel.is_conflict if has_textures else np.ones(len(panel.images), bool)
        )
        rows = []
        for decision in panel.decision:
            decided = decision[counted]
            is_right = decided == panel.label[counted]
            num_rows = int((decided != observers.NO_ROW).sum())
            unanswered = int((decided == observers.NO_ANSWER).sum())
            row = {
                "rows": int((decision != observers.NO_ROW).sum()),
                "unanswered_rows": int((decision == observers.NO_ANSWER).sum()),
            }
            row |= {"conflicts": num_rows, "unanswered": unanswered}
            if has_textures:
                shape = int(is_right.sum())
                texture = int((decided == panel.texture[counted]).sum())
                neither = num_rows - unanswered - shape - texture
                row |= {"shape": shape, "texture": texture, "neither": neither}
            else:
                right = int(is_right.sum())
                row |= {"right": right, "wrong": num_rows - unanswered - right}
            sizes = np.bincount(decision[decision >= 0], minlength=len(panel.classes))
            answers = int(sizes.sum())
            row |= {
                "frequent": panel.classes[int(sizes.argmax())] if answers else "",
                "frequent_count": int(sizes.max()) if answers else 0,
                "answers": answers,
            }
            rows.append(row)
        return pd.DataFrame(rows)

    @functools.cached_property
    def is_doubted(self) -> Bool[np.ndarray, "k"]:
        """True for observers whose decisions for either cue are no more than guessing gives.

        With c > 2 classes, guesses are for either cue on a share 2 / c of the answered conflicts:
        the lower end of Wilson's 95 % interval of this share is at most 2 / c. False without cues.
        """
        num_classes = len(self.panel.classes)
        if self.panel.texture is None or num_classes <= 2:
            return np.zeros(len(self.names), bool)
        lower = [
            decisions.wilson_interval(
                int(row.shape_decisions + row.texture),
                int(row.conflicts - row.unanswered),
            )[0]
            for row in self.counts.rename(
                columns={"shape": "shape_decisions"}
            ).itertuples()
        ]
        return self.main.is_known & (np.array(lower) <= 2 / num_classes)

    @functools.cached_property
    def reasons(self) -> list[dict[str, int]]:
        """Numbers of unanswered images (of all rows) by reason, for each observer.

        {} for an observer whose decisions are those of the file, not of the parser.
        """
        return [
            _count_reasons(observer) if observer.parser else {}
            for observer in self.panel.observers
        ]

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """All numbers of the standing, one row per observer, by decreasing main score.

        Columns: observer, group, model, task, prompt; per score, its value, _lower and _upper, _n
        (number of decisions or images), _rank, _rank_lower and _rank_upper (simultaneous), and
        _rank_marginal_lower and _rank_marginal_upper; columns of `counts`; sentence; doubt ("" for
        none); parser, file and sha256.
        """
        observed = self.panel.observers
        factors = {
            key: [observer.factors.get(key, "") for observer in observed]
            for key in ("model", "task", "prompt")
        }
        frame = pd.DataFrame({"observer": self.names, "group": self.kinds} | factors)
        frame = frame.replace("", None)
        for name, result in self.scores.items():
            frame[name] = result.value
            frame[f"{name}_lower"] = result.lower
            frame[f"{name}_upper"] = result.upper
            frame[f"{name}_n"] = result.n
            frame[f"{name}_rank"] = result.ranks["rank"]
            for end in ("lower", "upper", "marginal_lower", "marginal_upper"):
                frame[f"{name}_rank_{end}"] = result.ranks[end]
        frame = pd.concat([frame, self.counts], axis=1)
        frame["sentence"] = [self.sentence(i) for i in range(len(observed))]
        frame["doubt"] = [GUESSES if x else "" for x in self.is_doubted]
        for key in ("parser", "path", "sha256"):
            frame[key] = [getattr(observer, key) for observer in observed]
        frame = frame.rename(columns={"path": "file"})
        return frame.iloc[self.order].reset_index(drop=True)

    def sentence(self, i: int) -> str:
        """Return the main number of observer i, with the numbers of decisions and of no answers.

        Example: "shape bias 0.479 of 837 decisions; 126 of 1,200 unanswered".
        """
        row = self.counts.iloc[i]
        missing = f"{row['unanswered']:,} of {row['conflicts']:,} unanswered"
        if not self.main.is_known[i]:
            return (
                f"{self.main_name} not measured: no decision for either cue; {missing}"
            )
        noun = "decisions" if self.main.score.name == "shape_bias" else "images"
        value, n = self.main.value[i], self.main.n[i]
        doubt = f"; {GUESSES}" if self.is_doubted[i] else ""
        return f"{self.main_name} {value:.3f} of {n:,} {noun}; {missing}{doubt}"

    def pair_frame(self, name: str) -> pd.DataFrame:
        """Return the differences of a score for all pairs, in the order of the page.

        name: of the score. Columns: score, first and second (names; the first has the larger main
        score), first_minus_second, lower, upper, standard_error, pvalue, adjusted, num_images,
        larger (name of the observer with the larger score if p is at most `ALPHA`, else ""), and
        larger_after_holm (by the adjusted p-value).
        """
        frame = self.scores[name].pairs.copy()
        place = np.argsort(self.order)
        numbers = frame[["first", "second"]].to_numpy(int, copy=True)
        is_reversed = place[numbers[:, 0]] > place[numbers[:, 1]]
        numbers[is_reversed] = numbers[is_reversed, ::-1]
        reversed_ends = 0 - frame.loc[is_reversed, ["upper", "lower"]].to_numpy()
        frame.loc[is_reversed, ["lower", "upper"]] = reversed_ends
        frame.loc[is_reversed, "difference"] = 0 - frame["difference"]
        for column, ids in zip(("first", "second"), numbers.T, strict=True):
            frame[column] = [self.names[i] for i in ids]
        for column, pvalue in (("larger", "pvalue"), ("larger_after_holm", "adjusted")):
            larger = np.where(frame["difference"] > 0, frame["first"], frame["second"])
            frame[column] = np.where(frame[pvalue] <= ALPHA, larger, "")
        frame.insert(0, "score", SCORE_NAMES[name])
        frame = frame.rename(columns={"difference": "first_minus_second"})
        order = np.lexsort(place[numbers].T[::-1])
        return frame.iloc[order].reset_index(drop=True)

    @functools.cached_property
    def groups(self) -> pd.DataFrame:
        """The main score by group of observers, the largest mean first.

        Columns: group, observers (number of those with the score and without a doubt, see
        `is_doubted`, which alone count), mean, lowest and highest. A group whose observers have several tasks has a row per task.
        """
        tasks = [x.factors.get("task") or "" for x in self.panel.observers]
        frame = pd.DataFrame(
            {"group": self.kinds, "task": tasks, "value": self.main.value}
        )[self.main.is_known & ~self.is_doubted]
        has_tasks = frame.groupby("group")["task"].transform("nunique") > 1
        names = frame["group"] + " (" + frame["task"].replace("", "no task") + ")"
        frame["group"] = frame["group"].where(~has_tasks, names)
        by_group = frame.groupby("group", sort=False)["value"]
        summary = by_group.agg(["size", "mean", "min", "max"]).reset_index()
        summary.columns = ["group", "observers", "mean", "lowest", "highest"]
        return summary.sort_values(["mean", "group"], ascending=[False, True])

    @functools.cached_property
    def unanswered_frame(self) -> pd.DataFrame:
        """The unanswered images of observers whose own words are known, in the order of the page.

        Columns: observer, image, words and reason (why the parser finds no answer in the words; for
        published decisions without an answer, the class that the parser would read).
        """
        rows = []
        for observer in (self.panel.observers[i] for i in self.order):
            if observer.responses is None:
                continue
            for i in np.flatnonzero(observer.is_unanswered):
                words = observer.responses[i]
                parsed = parsing.parse(words, observer.options_of(i), observer.classes)
                reads = f"published as no answer; the parser reads {parsed.decision}"
                reason = reads if parsed.decision else parsed.reason or "no answer"
                rows.append((observer.name, observer.images[i], words, reason))
        return pd.DataFrame(rows, columns=["observer", "image", "words", "reason"])

    @functools.cached_property
    def consistency(self) -> "ErrorConsistency":
        """Error consistency of all pairs of observers, and with people."""
        return error_consistency(self.panel, self.kinds)


def _count_reasons(observer: observers.Observer) -> dict[str, int]:
    """Return the numbers of unanswered images by the parser's reason, the most frequent first."""
    counts: dict[str, int] = {}
    for i in np.flatnonzero(observer.is_unanswered):
        reason = parsing.parse(
            observer.responses[i], observer.options_of(i), observer.classes
        ).reason
        counts[reason or "no answer"] = counts.get(reason or "no answer", 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclasses.dataclass(frozen=True, eq=False)
class ErrorConsistency:
    """Kappa of the errors of observers, with the class of the shape as the right one."""

    kappa: Float[np.ndarray, "k k"]  # NaN for pairs without a common image.
    num_images: Int[np.ndarray, "k k"]  # Images of both.
    # Mean kappa with people, by observer: value, lower, upper and images; for a person, with the
    # other people. NaN without (other) people.
    people: pd.DataFrame
    # Mean kappa over pairs of people, with its interval; None for fewer than two people.
    among_people: tuple[float, float, float] | None


def error_consistency(panel: observers.Panel, kinds: Sequence[str]) -> ErrorConsistency:
    """Return the error consistency of the observers of a panel. kinds: group of each observer."""
    k = len(panel.observers)
    has_row = panel.has_row
    correct = has_row & (panel.decision == panel.label)
    kappa, num_images = np.ones((k, k)), np.zeros((k, k), int)
    for i, j in itertools.combinations_with_replacement(range(k), 2):
        is_common = has_row[i] & has_row[j]
        num_images[i, j] = num_images[j, i] = is_common.sum()
        if i != j and is_common.any():
            result = consistency.error_consistency(
                correct[i, is_common], correct[j, is_common]
            )
            kappa[i, j] = kappa[j, i] = result.kappa
        elif i != j:
            kappa[i, j] = kappa[j, i] = math.nan
    people = [i for i, kind in enumerate(kinds) if kind == PEOPLE]
    frame, among_people = _kappa_with_people(correct, has_row, people)
    return ErrorConsistency(kappa, num_images, people=frame, among_people=among_people)


def _kappa_with_people(
    correct: Bool[np.ndarray, "k n"],
    has_row: Bool[np.ndarray, "k n"],
    people: list[int],
) -> tuple[pd.DataFrame, tuple[float, float, float] | None]:
    """Return the fields people and among_people of `ErrorConsistency`.

    Means are over the images that the observer and all people have. people: numbers of observers.
    """
    columns = ["value", "lower", "upper", "images"]
    frame = pd.DataFrame(math.nan, index=range(len(correct)), columns=columns)
    among_people = None
    all_people = has_row[people].all(axis=0)
    members_by_mask: dict[bytes, list[int]] = {}
    for i in range(len(correct)):
        is_common = has_row[i] & all_people
        if people and is_common.any():
            members_by_mask.setdefault(is_common.tobytes(), []).append(i)
    for mask, members in members_by_mask.items():
        is_common = np.frombuffer(mask, bool)
        # The only person has no other people.
        pairs = {
            i: [(i, j) for j in people if j != i] for i in members if people != [i]
        }
        pairs_of_people = [*itertools.combinations(people, 2)]
        has_people = bool(pairs_of_people) and (is_common == all_people).all()
        groups = [*pairs.values(), *([pairs_of_people] if has_people else [])]
        means = consistency.mean_kappas(
            correct[:, is_common], groups, draws=KAPPA_DRAWS, seed=SEED
        )
        for i, (value, lower, upper) in zip(pairs, means, strict=False):
            frame.loc[i] = [value, lower, upper, is_common.sum()]
        among_people = means[-1] if has_people else among_people
    return frame, among_people


def renamed(
    observed: Sequence[observers.Observer], names: pd.DataFrame
) -> tuple[list[observers.Observer], list[str]]:
    """Return the observers with the labels and groups of a table of names, and unused names.

    names: columns name, and label or group or both; an empty cell changes nothing. ValueError if
    two observers would have one label.
    """
    rows = {row["name"]: row for row in names.to_dict("records")}
    changed, used = [], set()
    for observer in observed:
        row: dict[str, Any] = rows.get(observer.name, {})
        used |= {observer.name} & rows.keys()
        group = row.get("group") or kind_of(observer)
        factors = {**observer.factors, "kind": group}
        label = row.get("label") or observer.name
        changed.append(dataclasses.replace(observer, name=label, factors=factors))
    labels = [observer.name for observer in changed]
    repeated = [label for label in labels if labels.count(label) > 1]
    if repeated:
        raise ValueError(
            f"names: labels must be unique, got {repeated[0]!r} for several observers; "
            "give each its own label"
        )
    return changed, [name for name in rows if name not in used]


def describe(counts: Mapping[str, int]) -> str:
    """Return counts by reason as text, such as "3 refusal, 2 empty"; a dash for none."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "–"


def names_of(standing: Standing, numbers: Sequence[int]) -> str:
    """Return the first names of observers given by numbers, as text."""
    return tables.few([standing.names[i] for i in numbers])
