"""Functions that run networks over sets: on unchanged images, or under a probe's conditions.

`decide_sets` computes the decisions of many seeds together, as in evaluation during training.
`run_probe` shows one network the stimuli of a probe. It alternates between three compiled
programs: the first makes the stimuli, the second is the network, and the third computes decisions
from logits. So the network is compiled once for all probes, and a probe once for all networks.
"""

import collections
import contextlib
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped, UInt8

from jbias import errors
from jbias.evals import journals
from jbias.measures import cue_conflict, decisions
from jbias.runtime import xla
from jbias.stimuli import shown

BATCHES_AHEAD = 2  # Batches in flight while the next is prepared.
Logits = Float[Array, "b k"]
Matrix = Float[Array, "k d"] | None  # From k network classes to d decision classes.


class DecisionRule(NamedTuple):
    """A rule from logits to decisions about the n images of a set."""

    n: int  # Number of images.
    matrix: Matrix = (
        None  # As in data.class_maps.ClassMap; None: the network's own classes.
    )
    aggregate: str = "mean_prob"  # One of data.class_maps.AGGREGATES.
    # Decision class by image, -1 for none; if given, probabilities are computed.
    label: Int[np.ndarray, "n"] | None = None
    # By column name, further labels whose ranks are computed; only with `label`.
    cues: Mapping[str, Int[np.ndarray, "n"]] | None = None


def make_scorer(apply: Callable) -> Callable[..., Logits]:
    """Return a function (variables, _, image, _) -> float32 logits of one network.

    apply: (variables, float image in [0, 1]) -> logits. The returned function takes images as
    bytes, uint8 (b h w c), and ignores its second and fourth argument.
    """

    def score(variables: Any, _, image: UInt8[Array, "b h w c"], __) -> Logits:
        return apply(variables, image.astype(jnp.float32) / 255).astype(jnp.float32)

    return score


class ScoredDecisions(NamedTuple):
    """Decisions with the probabilities of the decided class and of the correct class.

    prediction: class id, or UNDECIDED. confidence: probability of the decided class.
    likelihood: probability of the correct class; NaN for label -1, which is no class. Both
    probabilities are NaN for UNDECIDED (not in `with_confidence`). ranks: by name, the rank of a
    cue's class among all logits (cue_conflict.label_ranks); 0 if the cue has no class, if no
    network class belongs to it, or if a logit is NaN.
    """

    prediction: Int[Array, "b"]
    confidence: Float[Array, "b"]
    likelihood: Float[Array, "b"]
    ranks: Mapping[str, Int[Array, "b"]]

    @property
    def columns(self) -> dict[str, Array]:
        """Return the arrays by name: prediction, confidence, likelihood, and each of `ranks`."""
        columns = self._asdict()
        ranks = columns.pop("ranks")
        return columns | ranks


UNDECIDED = -1  # In place of a class if no decision can be made from the logits.


def has_decision(
    logits: Float[Any, "b k"],
    scores: Float[Any, "b d"],
    xp: Any = jnp,
    *,
    infinite: bool = False,
) -> Bool[Any, "b"]:
    """Return, for each image, True if a decision can be made from its logits.

    A decision can be made if no logit or score is NaN, and the largest logit and the largest
    score are finite; -inf marks a class that is never the decision. scores: one score per decision
    class; the logits themselves if the network decides among its own classes. xp: jax.numpy or
    numpy.
    infinite: whether +inf marks the decided class, as for decisions from a table.
    """
    is_decided = ~xp.isnan(logits).any(-1) & ~xp.isnan(scores).any(-1)
    for values in (logits, scores):
        largest = values.max(-1)
        is_decided &= (largest > -xp.inf) if infinite else xp.isfinite(largest)
    return is_decided


@functools.partial(jax.jit, static_argnames=("aggregate", "infinite"))
def decide_batch(
    logits: tuple[Float[Array, "*s b k"], ...],
    matrix: Matrix,
    label: Int[Array, "b"] | None = None,
    cues: Mapping[str, Int[Array, "b"]] | None = None,
    *,
    aggregate: str,
    infinite: bool = False,
) -> tuple[Int[Array, "*s b"] | ScoredDecisions, ...]:
    """Return the decisions of each network, int32 class ids, from its logits for a batch.

    logits: one array per network, (b, k), or (s, b, k) for s seeds; decisions have the same
    leading axis. A decision is UNDECIDED if none can be made from the logits (see
    `has_decision`, which also describes `infinite`). label: by image, the correct decision class,
    or -1; with it, decisions are `ScoredDecisions`. cues: by name, further labels whose ranks are
    returned; only with `label`.

    matrix: weights of the k network classes in the d decision classes; None: networks decide
    among their own classes. aggregate: one of data.class_maps.AGGREGATES. A decision class to
    which no network class belongs is never the decision. This program is separate from the
    network's, so that the network is compiled once for sets with different rules.
    """

    def decide(logits: Logits) -> Int[Array, "b"] | ScoredDecisions:
        """Return the decisions of one network or seed: class ids, or ScoredDecisions with `label`.

        label, matrix, aggregate, cues and infinite: see the enclosing function.
        """
        scores = logits if matrix is None else class_scores(logits, matrix, aggregate)
        is_decided = has_decision(logits, scores, infinite=infinite)
        if label is None:
            prediction = jnp.argmax(scores, axis=-1).astype(jnp.int32)
            return jnp.where(is_decided, prediction, UNDECIDED)
        scored = with_confidence(logits, label, matrix, aggregate, cues)
        return scored._replace(
            prediction=jnp.where(is_decided, scored.prediction, UNDECIDED),
            confidence=jnp.where(is_decided, scored.confidence, jnp.nan),
            likelihood=jnp.where(is_decided, scored.likelihood, jnp.nan),
        )

    return tuple(jax.vmap(decide)(x) if x.ndim == 3 else decide(x) for x in logits)


def with_confidence(
    logits: Logits,
    label: Int[Array, "b"],
    matrix: Matrix,
    aggregate: str,
    cues: Mapping[str, Int[Array, "b"]] | None = None,
) -> ScoredDecisions:
    """Return a network's decisions with the probabilities of decided and correct classes.

    Arguments: see `decide_batch`. Here, no prediction is UNDECIDED. If several network classes
    belong to one decision class, the probability of the decision class is the aggregate of these
    network classes divided by the sum over the decision classes; for "mean_logit" it is the
    softmax of the means.
    """
    scores = logits if matrix is None else class_scores(logits, matrix, aggregate)
    prediction = jnp.argmax(scores, axis=-1).astype(jnp.int32)
    if matrix is None or aggregate == "mean_logit":
        probability = jax.nn.softmax(scores)
    else:
        if aggregate == "max_prob":  # Its scores only mark the first class.
            members = jnp.where((matrix > 0).any(axis=1), logits, -jnp.inf)
            by_member = jax.nn.softmax(members)[:, :, None]
            scores = jnp.where(matrix > 0, by_member, 0).max(axis=1)
        probability = jnp.maximum(scores, 0)
        probability = probability / jnp.sum(probability, axis=-1, keepdims=True)
    column = jnp.maximum(label, 0)[:, None]
    likelihood = jnp.take_along_axis(probability, column, 1)[:, 0]
    likelihood = jnp.where(label < 0, jnp.nan, likelihood)
    ranks = {name: _ranks(logits, cue, matrix) for name, cue in (cues or {}).items()}
    return ScoredDecisions(prediction, probability.max(-1), likelihood, ranks)


def _ranks(logits: Logits, label: Int[Array, "b"], matrix: Matrix) -> Int[Array, "b"]:
    """Return the smallest rank, among all logits, of the network classes of each label.

    The rank is 0 for a label of -1 or without network classes, and for logits with NaN.
    """
    is_member = label[:, None] == jnp.arange(logits.shape[1])[None]
    is_member = is_member if matrix is None else (matrix > 0).T[label]
    is_ranked = (label >= 0) & is_member.any(axis=1) & ~jnp.isnan(logits).any(axis=1)
    return jnp.where(is_ranked, cue_conflict.best_place(logits, is_member, jnp), 0)


def class_scores(
    logits: Logits, matrix: Float[Array, "k d"], aggregate: str
) -> Float[Array, "b d"]:
    """Return the aggregate score of each decision class; -inf if no network class belongs to it.

    matrix: weights of the k network classes in the d decision classes. aggregate: one of
    data.class_maps.AGGREGATES, how logits or probabilities of network classes are combined; for
    "max_prob" the scores are the matrix row of the network class with the largest logit among
    those that belong to a decision class. Probabilities are a softmax over the same classes.
    """
    # By default accelerators round the factors of a product.
    product = functools.partial(jnp.matmul, precision="highest")
    # Classes outside the matrix only scale: without them nothing underflows.
    members = jnp.where((matrix > 0).any(axis=1), logits, -jnp.inf)
    if aggregate == "mean_logit":
        excluded = jnp.isneginf(logits)  # -inf times 0 would be NaN for every class.
        scores = product(jnp.where(excluded, 0, logits), matrix)
        has_excluded = (excluded[:, :, None] & (matrix > 0)[None]).any(1)
        scores = jnp.where(has_excluded, -jnp.inf, scores)
    elif aggregate == "max_prob":  # No training class is a member of two.
        is_excluded = jnp.isneginf(members.max(axis=-1, keepdims=True))
        scores = jnp.where(is_excluded, -jnp.inf, matrix[jnp.argmax(members, axis=-1)])
    else:
        scores = product(jax.nn.softmax(members), matrix)
    return jnp.where((matrix > 0).any(axis=0), scores, -jnp.inf)


@functools.partial(jax.jit, static_argnames="count")
def largest_differences(
    logits: tuple[Float[Array, "*s b k"], ...],
    other_logits: tuple[Float[Array, "*s b k"], ...],
    *,
    count: int,
) -> tuple[Float[Array, "*s"], ...]:
    """Return, for each array, the largest absolute difference between logits and other_logits.

    logits, other_logits: tuples of (b, k) or, for s seeds, (s, b, k); two equal infinities
      differ by 0. count: number of images in the batch; further rows are padding and are ignored.
    """

    def largest(
        x: Float[Array, "*s b k"], y: Float[Array, "*s b k"]
    ) -> Float[Array, "*s"]:
        difference = jnp.where(x == y, 0.0, jnp.abs(x - y))  # Both may be infinite.
        return difference[..., :count, :].max((-2, -1))

    return tuple(map(largest, logits, other_logits))


def decide_sets(
    score_seeds: Callable,
    variables: tuple,
    batches: Iterable[UInt8[Array, "b h w c"]],
    rules: Sequence[DecisionRule],
    *,
    split: Callable[[tuple], tuple] = tuple,
    halt: Callable[[], bool] = lambda: False,
    fetch: Callable[[PyTree], PyTree] = jax.device_get,
) -> Iterator[list[Int[np.ndarray, "n"] | ScoredDecisions]]:
    """Yield, for each set in order, a list with the decisions of each seed on the set's images.

    An entry is an array of class ids, or `ScoredDecisions` if the set's rule has labels.

    score_seeds: result of `make_scorer`, mapped over seeds; it returns a tuple of logits, one entry
    per entry of `variables`. variables: one entry per network or group of seeds. batches: the
    images of all sets in order, in batches of one size, on the devices, the last padded. rules: one
    per set. split: turns the decisions of a batch, once on the host, into one entry per seed. halt:
    called before each batch; if it returns True, the remaining sets are not yielded. fetch: brings
    decisions to the host.
    """
    set_number, chunks = 0, []
    for rows, answers in _batches_ahead(score_seeds, variables, batches, rules, halt):
        chunk = []
        for decided in split(fetch(answers)):
            chunk.append(jax.tree.map(lambda x, rows=rows: x[rows], decided))
        chunks.append(chunk)
        count = sum(len(jax.tree.leaves(by_seed)[0]) for by_seed in chunks)
        if count == rules[set_number].n:
            yield [_concatenate(of_seed) for of_seed in zip(*chunks)]
            set_number, chunks = set_number + 1, []


def _concatenate(chunks: Sequence[PyTree]) -> PyTree:
    """Return one tree, with the arrays of the chunks joined along the first axis."""
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *chunks)


def _batches_ahead(
    score_seeds: Callable,
    variables: tuple,
    batches: Iterable[UInt8[Array, "b h w c"]],
    rules: Sequence[DecisionRule],
    halt: Callable[[], bool],
) -> Iterator[tuple[slice, tuple]]:
    """Yield, for each batch and set, (slice of the set's rows, result of `decide_batch`).

    The slice is of the batch's rows. Results are on the devices. Up to BATCHES_AHEAD + 1 batches
    are in flight, so that the devices never wait for the host. If `halt` returns True, results in
    flight are dropped. Arguments: see `decide_sets`.
    """
    waiting, first = collections.deque(), 0
    for images in batches:
        if halt():
            return
        logits = score_seeds(variables, ((),) * len(variables), images, None)
        decided = []
        for rows in _rows_by_set(rules, first, len(images)):
            answers = decide_batch(
                logits,
                rows.rule.matrix,
                rows.label,
                rows.cues,
                aggregate=rows.rule.aggregate,
            )
            decided.append((rows.rows, answers))
        waiting.append(decided)
        first += len(images)
        if len(waiting) > BATCHES_AHEAD:
            yield from waiting.popleft()
    while waiting:
        yield from waiting.popleft()


class _RowsOfSet(NamedTuple):
    """The rows of a batch that belong to one set."""

    rule: DecisionRule
    rows: slice
    label: Int[np.ndarray, "b"] | None  # By row of the batch; -1 in rows of other sets.
    cues: Mapping[str, Int[np.ndarray, "b"]] | None  # Further labels, like `label`.


def _rows_by_set(
    rules: Sequence[DecisionRule], first: int, count: int
) -> Iterator[_RowsOfSet]:
    """Yield the sets that have images in a batch, with their rows, labels and cues.

    rules: the sets' rules, in order. first: number of the batch's first image among the images
    of all sets. count: size of the batch.
    """
    start = -first  # Of the set, relative to the batch.
    for rule in rules:
        stop = start + rule.n
        if start < count and stop > 0:
            rows = slice(max(start, 0), min(stop, count))
            label = cues = None
            if rule.label is not None:
                place = lambda column, rows=rows, start=start: _column_of_batch(
                    column, count=count, rows=rows, start=start
                )
                label = place(rule.label)
                cues = jax.tree.map(place, rule.cues)
            yield _RowsOfSet(rule, rows, label, cues)
        start = stop


def _column_of_batch(
    column: Int[np.ndarray, "n"], *, count: int, rows: slice, start: int
) -> Int[np.ndarray, "b"]:
    """Return a set's column at the rows of a batch, int32; -1 in rows of other sets.

    count: the number b of rows of the batch. rows: the rows of the set. start: the row of the
    set's first image; negative if that image was in an earlier batch.
    """
    batch_column = np.full(count, -1, np.int32)
    batch_column[rows] = column[rows.start - start : rows.stop - start]
    return batch_column


ANSWERS_AHEAD = 8  # Answers in flight while the next stimuli are made.


class StimulusOrigin(NamedTuple):
    """The set, the probe's condition and the image numbers that stimuli were made from."""

    dataset: str  # Name of the set.
    condition: str
    index: Int[Array, "b"]  # Number of each image in its set.
    source: Any = None  # The set, if its images are shown unchanged.


class BoundNetwork(Protocol):
    """A network in a fixed precision and on fixed devices.

    predict: (stimuli in [0, 1], their origin) -> logits. Most measures need nothing else; a measure
    is left out if an attribute that the measure needs has the value None. apply: (variables,
    stimuli) -> the same logits, differentiable by JAX. at: (variables, images, site) ->
    (activations, gradient), see shown.Rows.at. net: a flax module or a taps.Readable, for measures
    that read activations at all sites. graded: whether logits contain more than the decided class.
    """

    apply: Callable[[PyTree, shown.Images], Logits] | None
    variables: PyTree
    at: Callable[[PyTree, shown.Images, str], tuple[Array, Array]] | None
    net: Any
    graded: bool

    def predict(self, image: shown.Images, origin: StimulusOrigin) -> Logits: ...


class BoundJaxNetwork(NamedTuple):
    """A `BoundNetwork` whose logits are computed by a JAX function.

    Compiled programs are cached by the functions `apply` and `at`: use the same object for
    the same function.
    """

    apply: Callable[[PyTree, shown.Images], Logits]
    variables: PyTree
    at: Callable | None = None
    net: Any = None
    graded: bool = True

    def predict(self, image: shown.Images, origin: StimulusOrigin) -> Logits:
        """Return the logits of stimuli in [0, 1]; `origin` is not used."""
        return _logits(self.apply, self.variables, image)


class StimulusCache:
    """A cache on the devices for stimuli that are slow to make, shared by several networks.

    room: the size of the cache in bytes; stimuli that do not fit are computed again.
    """

    def __init__(self, room: int = 2**30):
        self._room, self._stimuli = room, {}

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """Return the cached stimuli of a key, or the result of make(), cached if it fits."""
        if key in self._stimuli:
            return self._stimuli[key]
        stimuli = jax.block_until_ready(make())  # Raises here, before it is cached.
        if stimuli.nbytes <= self._room:
            self._room -= stimuli.nbytes
            self._stimuli[key] = stimuli
        return stimuli


class Batch(NamedTuple):
    """Images of a set on the devices; all batches have one shape."""

    image: UInt8[Array, "b h w 3"]
    index: Int[Array, "b"]  # Number of each image in its set.
    label: Int[Array, "b"]  # Decision class; -1 without a class.
    target: Int[Array, "b"]  # The network's own class; -1 without a class.
    count: int  # Number of real images; the remaining rows are padding.
    dataset: str = ""  # Name of the set.
    source: Any = None  # The set itself.
    # Further labels, by name; `run_probe` returns their ranks.
    cues: Mapping[str, Int[Array, "b"]] | None = None
    # (key of probe and condition, function that makes the stimuli) -> cached stimuli.
    keep: Callable[[tuple, Callable[[], Array]], Array] | None = None

    def origin(self, condition: str, *, is_unchanged: bool = False) -> StimulusOrigin:
        """Return the origin of stimuli made from this batch.

        is_unchanged: whether the stimuli are the images themselves; the origin then has the
        set as its `source`.
        """
        source = self.source if is_unchanged else None
        return StimulusOrigin(self.dataset, condition, self.index, source)


def run_probe(
    network: BoundNetwork,
    shown_probe: shown.Stimuli,
    batches: Iterable[Batch],
    rules: Mapping[str, DecisionRule],
    *,
    tell: Callable[..., None] = lambda images, **_: None,
    compiling: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    journal: journals.Journal | None = None,
    classes: int = 0,
) -> dict[str, dict[str, Shaped[np.ndarray, "n"]]]:
    """Return columns of a network's decisions, one entry per image, by condition.

    Columns: "prediction" int32 (n); float32 (n) "confidence", the probability of the decided class
    among the decision classes, and "likelihood", the probability of the correct class (NaN without
    a correct class); and int32 ranks of the batches' cues, by name. If several network classes
    belong to one decision class, the probability of the decision class is the aggregate of these
    network classes (for "mean_logit" the softmax of the means), divided by the sum over the
    decision classes.

    rules: by the suffix of a condition's name, "" for the first rule: the decisions of condition
    "fog" under the rule "mean_logit" have the key "fog mean_logit".
    tell: called as tell(number of images decided about), with counted=False for decisions that the
    journal has. compiling: returns the context of calls that may compile a program.
    journal: stored decisions, which are not computed again; new decisions are added.
    classes: the number of logits that the network must have; 0: any.

    errors.NotFiniteError if no decision can be made from the logits of an image (in a table of
    decisions the decision is then -1), or if the gradients that a probe follows are not finite;
    decisions before that batch are in the journal. ValueError for logits of another shape.
    """
    chunks = collections.defaultdict(list)
    entries = journal.entries if journal else []
    conditions = itertools.cycle(shown_probe.conditions)
    for condition, entry in zip(conditions, entries):
        # Rules are sorted as JAX sorts the keys of dicts.
        for rule, answer in zip(sorted(rules), entry, strict=True):
            columns = {field: answer[field] for field in answer.dtype.names}
            chunks[f"{condition} {rule}".strip()].append(columns)
        tell(entry.shape[1], counted=False)
    answered = _run_conditions(
        network,
        shown_probe,
        batches,
        rules,
        compiling,
        num_stored=len(entries),
        classes=classes,
    )
    for batch in _answers_ahead(answered):
        by_rule = [
            {name: column[: batch.count] for name, column in answer.columns.items()}
            for answer in batch.answers.values()
        ]
        _check_finite(batch, by_rule, may_abstain=not network.graded)
        for name, columns in zip(batch.answers, by_rule):
            chunks[name].append(columns)
        if journal:
            journal.add(by_rule)
        tell(batch.count)
    return {name: _concatenate(by_batch) for name, by_batch in chunks.items()}


class _BatchAnswers(NamedTuple):
    """A network's decisions about one batch under one condition, for each rule."""

    condition: str
    count: int  # Number of real images; the remaining rows are padding.
    index: Int[Array, "b"]  # Number of each image in its set.
    followed_finite: Bool[Any, ""]  # Whether the gradients for the stimuli are finite.
    answers: Mapping[str, ScoredDecisions]  # By condition and rule.


def _check_finite(
    batch: _BatchAnswers,
    columns: Sequence[Mapping[str, Shaped[np.ndarray, "n"]]],
    *,
    may_abstain: bool,
) -> None:
    """Raise errors.NotFiniteError if a prediction is UNDECIDED, or a gradient is not finite.

    columns: by rule, the columns of the decisions without padding. may_abstain: whether predictions
    may be UNDECIDED, as in tables of decisions.
    """
    under = f", under {batch.condition!r}" if batch.condition else ""
    for column in columns:
        rows = np.flatnonzero(column["prediction"] == UNDECIDED)
        if len(rows) and not may_abstain:
            raise errors.NotFiniteError(
                f"logits must be finite, got NaN or infinite ones for {len(rows)} of the "
                f"{batch.count} images asked about{under}, first image number "
                f"{batch.index[rows[0]]} of the set"
            )
    if not batch.followed_finite:
        raise errors.NotFiniteError(
            "gradients of the network must be finite, got NaN or infinite ones for some of "
            f"{batch.count} images{under}, from image number {batch.index[0]} of the set on"
        )


@jax.jit
def _all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Return True if no float in the tree is NaN or infinite."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.array([jnp.isfinite(x).all() for x in floats]).all()


def _check_logits(logits: Shaped[Array, "..."], images: int, classes: int) -> None:
    """Raise ValueError unless logits have shape (images, classes); classes 0: any number."""
    if jnp.ndim(logits) != 2 or len(logits) != images:
        must = f"logits must be {images} rows of numbers, one for each image"
        raise ValueError(f"network: {must}, got the shape {jnp.shape(logits)}")
    if classes and logits.shape[1] != classes:
        raise ValueError(
            f"network: gives {logits.shape[1]:,} logits for each image and has {classes:,} "
            "classes; name all of its outputs, in order, by --classes=FILE"
        )


def _run_conditions(
    network: BoundNetwork,
    shown_probe: shown.Stimuli,
    batches: Iterable[Batch],
    rules: Mapping[str, DecisionRule],
    compiling: Callable[[], contextlib.AbstractContextManager],
    *,
    num_stored: int = 0,
    classes: int = 0,
) -> Iterator[_BatchAnswers]:
    """Yield the decisions about each batch under each condition, without waiting for the devices.

    num_stored: the number of pairs of batch and condition whose decisions the journal has, which
    are skipped. Other arguments: see `run_probe`.
    """
    programs, shows_images = set(), shown_probe.show is shown.identity
    conditions = list(shown_probe.conditions)
    counts = step_counts(shown_probe)
    for batch in batches:
        remaining = conditions[min(num_stored, len(conditions)) :]
        num_stored -= len(conditions) - len(remaining)
        if not remaining:
            continue
        is_first_look = looks(shown_probe) and not programs
        with compiling() if is_first_look else contextlib.nullcontext():
            look_result, base_images = run_look(network, shown_probe, batch), {}
        for condition in remaining:
            is_moved = condition in counts
            # One program for each of these, compiled when it is first called.
            static = shown_probe.static and shown_probe.static(condition)
            is_new = (static, is_moved) not in programs
            programs.add((static, is_moved))
            with compiling() if is_new else contextlib.nullcontext():
                stimuli = make_stimuli(
                    network,
                    shown_probe,
                    batch,
                    condition,
                    look_result=look_result,
                    base_images=base_images,
                )
                is_unchanged = shows_images and not is_moved
                origin = batch.origin(condition, is_unchanged=is_unchanged)
                logits = network.predict(stimuli, origin)
                _check_logits(logits, len(stimuli), classes)
                answers = {}
                for name, rule in rules.items():
                    (answer,) = decide_batch(
                        (logits,),
                        rule.matrix,
                        batch.label,
                        batch.cues,
                        aggregate=rule.aggregate,
                        infinite=not network.graded,
                    )
                    answers[f"{condition} {name}".strip()] = answer
            followed_finite = True
            if is_moved or looks(shown_probe):
                followed_finite = _all_finite(
                    (look_result, stimuli if is_moved else None)
                )
            yield _BatchAnswers(
                condition=condition,
                count=batch.count,
                index=batch.index,
                followed_finite=followed_finite,
                answers=answers,
            )


def step_counts(shown_probe: shown.Stimuli) -> Mapping[str, int]:
    """Return by condition the number of steps that depend on the network; {} without steps."""
    steps = shown_probe.network_steps
    return steps.counts if steps else {}


def looks(shown_probe: shown.Stimuli) -> bool:
    """Return True if the probe has a function `look`."""
    steps = shown_probe.network_steps
    return steps is not None and steps.look is not None


def run_look(network: BoundNetwork, shown_probe: shown.Stimuli, batch: Batch) -> PyTree:
    """Return the result of the probe's function `look` for a batch; None if it has none."""
    if not looks(shown_probe):
        return None
    return _look(
        network.apply,
        network.at,
        shown_probe.network_steps.look,
        network.variables,
        batch.image,
        batch.index,
        batch.target,
    )


@functools.partial(jax.jit, static_argnames=("apply", "at", "look"))
def _look(
    apply: Callable,
    at: Callable | None,
    look: Callable[[shown.Rows], PyTree],
    variables: PyTree,
    image: UInt8[Array, "b h w 3"],
    index: Int[Array, "b"],
    target: Int[Array, "b"],
) -> PyTree:
    """Return the result of a probe's function `look`; other arguments: see `_rows`."""
    return look(_rows(apply, at, variables, image, index, target))


def make_stimuli(
    network: BoundNetwork,
    shown_probe: shown.Stimuli,
    batch: Batch,
    condition: str,
    *,
    look_result: PyTree = None,
    base_images: dict[str, UInt8[Array, "b h w 3"]] | None = None,
) -> shown.Images:
    """Return the stimuli of one condition for a batch, floats in [0, 1].

    look_result: result of `run_look`; None: computed here if it is needed. base_images: by
    condition, the stimuli of this batch, as bytes, from which the stimuli of other conditions are
    made (`onto` of shown.Stimuli); new stimuli are added to it. ValueError if such a condition is
    itself made from another condition.
    """
    base_images = {} if base_images is None else base_images
    params = jax.tree.map(jnp.asarray, shown_probe.conditions[condition])
    static = shown_probe.static(condition) if shown_probe.static else None
    base = shown_probe.onto.get(condition)
    if base in shown_probe.onto:
        raise ValueError(f"probe: onto[{condition!r}] must be a condition of images")
    if base and base not in base_images:
        make_stimuli(
            network,
            shown_probe,
            batch,
            base,
            look_result=look_result,
            base_images=base_images,
        )
    image = base_images[base] if base else batch.image

    def show() -> Array:
        return _stimuli(
            shown_probe.show, static, image, batch.index, batch.target, params
        )

    if batch.keep and condition in shown_probe.slow:
        values = [np.asarray(x).tobytes() for x in jax.tree.leaves(params)]
        stimuli = batch.keep((shown_probe.show, static, base, *values), show)
    else:
        stimuli = show()
    steps = step_counts(shown_probe).get(condition, 0)
    if steps and look_result is None:
        look_result = run_look(network, shown_probe, batch)
    # Gradients of convolutions are ten times slower inside a loop on a CPU.
    is_one_step_per_call = xla.platform() == "cpu"
    for _ in range(steps if is_one_step_per_call else min(steps, 1)):
        stimuli = _moved(
            network.apply,
            network.at,
            shown_probe.network_steps.move,
            network.variables,
            image,
            batch.index,
            batch.target,
            params,
            look_result,
            stimuli,
            1 if is_one_step_per_call else steps,
        )
    if condition in shown_probe.onto.values():
        base_images[condition] = jnp.round(stimuli * 255).astype(jnp.uint8)
    return stimuli


@functools.partial(jax.jit, static_argnames=("show", "static"))
def _stimuli(
    show: Callable[..., shown.Images],
    static: Hashable,
    image: UInt8[Array, "b h w 3"],
    index: Int[Array, "b"],
    target: Int[Array, "b"],
    params: PyTree,
) -> shown.Images:
    """Return show(rows, params), or show(rows, params, static) if `static` is not None."""
    rows = shown.Rows(_unit(image), index, target, _refuse_logits)
    return show(rows, params) if static is None else show(rows, params, static)


def _refuse_logits(image: shown.Images) -> Logits:
    """Raise ValueError: `Rows.logits` for a probe's `show`, which must not call the network."""
    raise ValueError("probe: show must not ask the network, which `move` may")


@functools.partial(jax.jit, static_argnames=("apply", "at", "move"))
def _moved(
    apply: Callable,
    at: Callable | None,
    move: Callable[..., shown.Images],
    variables: PyTree,
    image: UInt8[Array, "b h w 3"],
    index: Int[Array, "b"],
    target: Int[Array, "b"],
    params: PyTree,
    look_result: PyTree,
    stimuli: shown.Images,
    steps: int,
) -> shown.Images:
    """Return stimuli after `steps` steps of a probe's `move`; on a CPU after one step.

    params: the condition's arrays. look_result: result of `run_look`. Other arguments: see
    `_rows`.
    """
    rows = _rows(apply, at, variables, image, index, target)._replace(seen=look_result)
    if xla.platform() == "cpu":
        return move(rows, params, stimuli)
    return jax.lax.fori_loop(0, steps, lambda _, x: move(rows, params, x), stimuli)


def _rows(
    apply: Callable,
    at: Callable | None,
    variables: PyTree,
    image: UInt8[Array, "b h w 3"],
    index: Int[Array, "b"],
    target: Int[Array, "b"],
) -> shown.Rows:
    """Return the `shown.Rows` of a batch for a network, the first argument of a probe's functions.

    Its images are in [0, 1], its `logits` are float32, and `seen` is None. apply, at, variables:
    fields of a `BoundNetwork`. image, index, target: fields of a `Batch`.
    """

    def logits(image: shown.Images) -> Logits:
        return apply(variables, image).astype(jnp.float32)

    def look(image: shown.Images, site: str) -> tuple[Array, Array]:
        """Return (activations, gradient) at a site for images in [0, 1]; see shown.Rows.at.

        `at` and `variables`: see the enclosing function. ValueError if `at` is None.
        """
        if at is None:
            raise ValueError(
                "probe: must look into the network, and an algorithm that answers in its "
                "own way cannot be looked into; leave the measure out"
            )
        return at(variables, image, site)

    return shown.Rows(_unit(image), index, target, logits, look)


def _unit(image: UInt8[Array, "b h w 3"]) -> shown.Images:
    """Return images of bytes as float32 in [0, 1]."""
    return image.astype(jnp.float32) / 255


@functools.partial(jax.jit, static_argnames="apply")
def _logits(apply: Callable, variables: PyTree, image: shown.Images) -> Logits:
    """Return a network's logits as float32; compiled once for all networks with this `apply`."""
    return apply(variables, image).astype(jnp.float32)


def _answers_ahead(answered: Iterator[_BatchAnswers]) -> Iterator[_BatchAnswers]:
    """Yield the batches of decisions in order, with their arrays on the host.

    Up to ANSWERS_AHEAD batches are being computed, so that the devices never wait. After an
    exception in `answered`, the batches before it are yielded, then the exception is raised.
    """
    waiting = collections.deque()
    try:
        for answers in answered:
            waiting.append(answers)
            if len(waiting) > ANSWERS_AHEAD:
                yield jax.device_get(waiting.popleft())
    except (Exception, KeyboardInterrupt):
        yield from map(jax.device_get, waiting)
        raise
    yield from map(jax.device_get, waiting)


def agreement(
    network: BoundNetwork,
    other: BoundNetwork,
    shown_probe: shown.Stimuli,
    batches: Iterable[Batch],
) -> decisions.Numbers:
    """Return a list of Numbers "agreement", for the probe's first and last condition.

    Agreement is the share of images for which two networks have their largest logit at the same
    class, on stimuli made with `network`. A probe with a single condition has one Number.
    errors.NotFiniteError if no decision can be made from the logits.
    """
    names = [*shown_probe.conditions]
    num_equal, total = dict.fromkeys((names[0], names[-1]), 0), 0
    for batch in batches:
        for condition in num_equal:
            image = make_stimuli(network, shown_probe, batch, condition)
            origin = batch.origin(condition)
            all_logits = [net.predict(image, origin) for net in (network, other)]
            for logits in all_logits:
                if not has_decision(logits, logits)[: batch.count].all():
                    raise errors.NotFiniteError(
                        "logits must be finite to be compared in float32"
                    )
            first, second = (np.argmax(logits, -1) for logits in all_logits)
            is_equal = np.equal(first, second)
            num_equal[condition] += int(is_equal[: batch.count].sum())
        total += batch.count
    return [
        decisions.share("agreement", count, total, condition)
        for condition, count in num_equal.items()
    ]


def to_decisions(
    by_condition: Mapping[str, Mapping[str, Shaped[np.ndarray, "n"]]],
    columns: Mapping[str, Shaped[np.ndarray, "n"]],
) -> dict[str, decisions.Decisions]:
    """Return the result of `run_probe`, by condition, as Decisions with the set's columns.

    columns: the set's columns for the shown images, by name, such as "label".
    """
    all_decisions = {}
    for condition, answers in by_condition.items():
        merged = {**columns, **answers}
        prediction = merged.pop("prediction")
        all_decisions[condition] = decisions.Decisions(prediction, merged)
    return all_decisions
