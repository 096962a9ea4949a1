"""Runs networks over sets, each image once: as they are, or under the conditions of a probe.

`predict` decides for many seeds at once, as in evaluation during training. `run_probe`
shows one network the stimuli of a probe. There three programs take turns: one makes the
stimuli, one is the network, one decides. So the network is compiled once for all probes,
and a probe once for all networks.
"""

import collections
import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt8

from jbias.evals import cue_conflict, decisions, journals, probe
from jbias.runtime import xla

BATCHES_AHEAD = 2  # Batches in flight while the next is made ready.
Logits = Float[Array, "b k"]
Matrix = Float[Array, "k d"] | None


class Rule(NamedTuple):
    """How networks answer a set of n images; the rest as data.labels.ClassMap has it."""

    n: int
    matrix: Matrix = None
    aggregate: str = "mean_prob"
    label: Int[np.ndarray, "n"] | None = None  # Asks for probabilities, too.
    # Asks for the ranks of further labels, by the names of their columns; with `label`.
    cues: Mapping[str, Int[np.ndarray, "n"]] | None = None


def scorer(apply: Callable) -> Callable[..., Logits]:
    """Builds (variables, _, image, _) -> float32 logits, of one network.

    apply: (variables, float image in [0, 1]) -> logits. image is uint8 (b h w c).
    """

    def score(variables: Any, _, image: UInt8[Array, "b h w c"], __) -> Array:
        return apply(variables, image.astype(jnp.float32) / 255).astype(jnp.float32)

    return score


class Confidence(NamedTuple):
    """Decisions with the probabilities of the decided class and of the right one.

    Without a right class, label -1, its probability is NaN. ranks: by name, the place of a
    cue's class among all logits, as cue_conflict.label_ranks has it; 0 without a class, for
    one without members, and where a logit is NaN.
    """

    prediction: Int[Array, "b"]
    confidence: Float[Array, "b"]
    likelihood: Float[Array, "b"]
    ranks: Mapping[str, Int[Array, "b"]]

    @property
    def columns(self) -> dict[str, Array]:
        """All of it by name."""
        told = self._asdict()
        return told | told.pop("ranks")


UNDECIDED = -1  # In the place of a class, where logits decide nothing.


def decides(logits: Any, scores: Any, xp: Any = jnp, *, infinite: bool = False) -> Any:
    """Return for each image whether its logits decide for a class, bool (b).

    They do if no logit is NaN and the largest logit and the largest score are finite; -inf
    is a class that is never decided for. scores: of the decision classes, the logits
    themselves where these are the network's own. xp: jax.numpy or numpy. infinite: whether
    +inf marks the decided class, as in decisions that were made elsewhere.
    """
    known = ~xp.isnan(logits).any(-1) & ~xp.isnan(scores).any(-1)
    for values in (logits, scores):
        largest = values.max(-1)
        known &= (largest > -xp.inf) if infinite else xp.isfinite(largest)
    return known


@functools.partial(jax.jit, static_argnames=("aggregate", "infinite"))
def decide_batch(
    logits: tuple,
    matrix: Matrix,
    label=None,
    cues=None,
    *,
    aggregate: str,
    infinite: bool = False,
) -> tuple:
    """Return the decisions of each network, int32 (b), by its logits of a batch.

    The decision is UNDECIDED where logits decide nothing (see `decides`, which also
    describes `infinite`). With labels each network's decisions are a `Confidence`. Logits
    may have a leading axis of several networks; then decisions have it.

    cues: by name, further labels, of which it has the ranks.

    matrix, aggregate: of data.labels.ClassMap; without a matrix each decides among its
    own classes. A class without a member is never decided for. A program of its own:
    sets differ in their rules, and the network is compiled once for all of them.
    """

    def decide(logits: Logits) -> Int[Array, "b"] | Confidence:
        scores = logits if matrix is None else class_scores(logits, matrix, aggregate)
        known = decides(logits, scores, infinite=infinite)
        if label is None:
            prediction = jnp.argmax(scores, axis=-1).astype(jnp.int32)
            return jnp.where(known, prediction, UNDECIDED)
        decided = with_confidence(logits, label, matrix, aggregate, cues)
        return decided._replace(
            prediction=jnp.where(known, decided.prediction, UNDECIDED),
            confidence=jnp.where(known, decided.confidence, jnp.nan),
            likelihood=jnp.where(known, decided.likelihood, jnp.nan),
        )

    return tuple(jax.vmap(decide)(x) if x.ndim == 3 else decide(x) for x in logits)


def with_confidence(
    logits: Logits, label: Int[Array, "b"], matrix: Matrix, aggregate: str, cues=None
) -> Confidence:
    """What a network decides, and how probable it holds that and the right class.

    Where several of its classes answer for one, its probability is what the rule makes of
    theirs, divided by the sum over the decision classes.
    """
    scores = logits if matrix is None else class_scores(logits, matrix, aggregate)
    prediction = jnp.argmax(scores, axis=-1).astype(jnp.int32)
    if matrix is None or aggregate == "mean_logit":
        share = jax.nn.softmax(scores)
    else:
        if aggregate == "max_prob":  # Its scores tell the first from the others alone.
            members = jnp.where((matrix > 0).any(axis=1), logits, -jnp.inf)
            each = jax.nn.softmax(members)[:, :, None]
            scores = jnp.where(matrix > 0, each, 0).max(axis=1)
        share = jnp.maximum(scores, 0)
        share = share / jnp.sum(share, axis=-1, keepdims=True)
    likelihood = jnp.take_along_axis(share, jnp.maximum(label, 0)[:, None], 1)[:, 0]
    likelihood = jnp.where(label < 0, jnp.nan, likelihood)
    ranks = {name: _ranks(logits, of, matrix) for name, of in (cues or {}).items()}
    return Confidence(prediction, share.max(-1), likelihood, ranks)


def _ranks(logits: Logits, label: Int[Array, "b"], matrix: Matrix) -> Int[Array, "b"]:
    """The place of each label's best member among all logits."""
    own = label[:, None] == jnp.arange(logits.shape[1])[None]
    own = own if matrix is None else (matrix > 0).T[label]
    known = (label >= 0) & own.any(axis=1) & ~jnp.isnan(logits).any(axis=1)
    return jnp.where(known, cue_conflict.best_place(logits, own, jnp), 0)


def class_scores(
    logits: Logits, matrix: Float[Array, "k d"], aggregate: str
) -> Float[Array, "b d"]:
    """What the members of each decision class say together; -inf without a member."""
    # Accelerators round the factors of a product unless told not to.
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
    logits: tuple, others: tuple, *, count: int
) -> tuple[Float[Array, "*s"], ...]:
    """Return the largest absolute difference of any two logits, by tree.

    logits, others: (b, k) or, of a tree of several seeds, (s, b, k). count: images of the
      batch; further rows fill it up and do not count.
    """

    def largest(x: Array, y: Array) -> Array:
        moved = jnp.where(x == y, 0.0, jnp.abs(x - y))  # Both may be infinite.
        return moved[..., :count, :].max((-2, -1))

    return tuple(map(largest, logits, others))


def predict(
    many: Callable,
    variables: tuple,
    batches: Iterable[UInt8[Array, "b h w c"]],
    rules: Sequence[Rule],
    *,
    split: Callable[[tuple], tuple] = tuple,
    halt: Callable[[], bool] = lambda: False,
    fetch: Callable[[PyTree], PyTree] = jax.device_get,
) -> Iterator[list[Int[np.ndarray, "n"] | Confidence]]:
    """Decides about every image of some sets once; yields an array a seed, set by set.

    Where a rule has labels, it is a `Confidence` a seed.

    many: `scorer` mapped over seeds. batches: the images of all sets in order, in
    batches of one size, on the devices, the last padded. rules: one a set. split: makes
    one array a seed of a batch's decisions, once they are on the host. halt: asked
    before each batch; where it says so, the sets that are left never come. fetch:
    brings decisions to the host.
    """
    which, pieces = 0, []
    for rows, answers in _batches_ahead(many, variables, batches, rules, halt):
        cut = operator.itemgetter(rows)
        pieces.append([jax.tree.map(cut, one) for one in split(fetch(answers))])
        if sum(len(jax.tree.leaves(one)[0]) for one in pieces) == rules[which].n:
            joined = lambda *parts: np.concatenate(parts)
            yield [jax.tree.map(joined, *seed) for seed in zip(*pieces)]
            which, pieces = which + 1, []


def _batches_ahead(many, variables, batches, rules, halt) -> Iterator[tuple]:
    """Keeps batches in flight, so that the devices never wait for the host."""
    waiting, first = collections.deque(), 0
    for images in batches:
        if halt():
            return
        logits = many(variables, ((),) * len(variables), images, None)
        waiting.append([])
        for rule, rows, labels in _within(rules, first, len(images)):
            of = logits, rule.matrix, *labels
            waiting[-1].append((rows, decide_batch(*of, aggregate=rule.aggregate)))
        first += len(images)
        if len(waiting) > BATCHES_AHEAD:
            yield from waiting.popleft()
    while waiting:
        yield from waiting.popleft()


def _within(rules: Sequence[Rule], first: int, count: int) -> Iterator[tuple]:
    """The sets that have images among so many from `first` on, in which rows, and labels.

    And cues; of rows that are not of the set all are -1.
    """
    start = -first
    for rule in rules:
        stop = start + rule.n
        if start < count and stop > 0:
            rows, labels = slice(max(start, 0), min(stop, count)), (None, None)
            if rule.label is not None:
                place = functools.partial(_among, count=count, rows=rows, start=start)
                labels = jax.tree.map(place, (rule.label, rule.cues))
            yield rule, rows, labels
        start = stop


def _among(column: np.ndarray, count: int, rows: slice, start: int) -> np.ndarray:
    """A set's column at the rows of a batch that are the set's, which begins at `start`."""
    found = np.full(count, -1, np.int32)
    found[rows] = column[rows.start - start : rows.stop - start]
    return found


ANSWERS_AHEAD = 8  # Answers in flight while the next stimuli are made.


class Shown(NamedTuple):
    """Where stimuli are from: a set, a probe's condition, the images' numbers in the set."""

    dataset: str
    condition: str
    index: Int[Array, "b"]
    source: Any = None  # The set, where its images are shown as they are.


class Bound(Protocol):
    """A network to ask, in a precision and on devices.

    predict: stimuli in [0, 1], and where they are from -> logits. That is all that most
    measures need; what is None leaves out those that need it. apply: the same as a
    function of `variables` that JAX differentiates. at: (variables, images, site) -> what
    probe.Rows.at gives. net: a flax module, or a taps.Readable, for what reads all sites
    inside. graded: whether logits say more than the decided class.
    """

    apply: Callable[[PyTree, probe.Images], Logits] | None
    variables: PyTree
    at: Callable[[PyTree, probe.Images, str], tuple[Array, Array]] | None
    net: Any
    graded: bool

    def predict(self, image: probe.Images, shown: Shown) -> Logits: ...


class BoundNetwork(NamedTuple):
    """A `Bound` of JAX; programs are kept by its functions: each must be one object."""

    apply: Callable[[PyTree, probe.Images], Logits]
    variables: PyTree
    at: Callable | None = None
    net: Any = None
    graded: bool = True

    def predict(self, image: probe.Images, shown: Shown) -> Logits:
        """Its logits, by one program for all networks of one `apply`."""
        return _logits(self.apply, self.variables, image)


class SlowStimuli:
    """Stimuli that took long to make, on the devices, for the networks that follow.

    room: bytes that all may take together; what has no room is made again.
    """

    def __init__(self, room: int = 2**30):
        self._room, self._kept = room, {}

    def get(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """What was made under a key, or is made now."""
        if key in self._kept:
            return self._kept[key]
        made = jax.block_until_ready(make())  # What fails is not kept.
        if made.nbytes <= self._room:
            self._room -= made.nbytes
            self._kept[key] = made
        return made


class Batch(NamedTuple):
    """Some images of a set on the devices; all batches have one shape."""

    image: UInt8[Array, "b h w 3"]
    index: Int[Array, "b"]  # Each image's number in its set.
    label: Int[Array, "b"]  # In decision classes, -1 where there is none.
    target: Int[Array, "b"]  # In the network's own classes, -1 likewise.
    count: int  # Of these so many are images, the rest fills up.
    dataset: str = ""
    source: Any = None  # The set itself.
    cues: Mapping[str, Int[Array, "b"]] | None = None  # To be ranked, by name.
    # What was made of these images: by probe and condition, and how it is made.
    keep: Callable[[tuple, Callable[[], Array]], Array] | None = None

    def shown(self, condition: str, *, as_it_is: bool = False) -> Shown:
        """Where stimuli made of it are from."""
        source = self.source if as_it_is else None
        return Shown(self.dataset, condition, self.index, source)


def run_probe(
    network: Bound,
    made: probe.Probe,
    batches: Iterable[Batch],
    rules: Mapping[str, Rule],
    *,
    tell: Callable[..., None] = lambda images, **_: None,
    compiling: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    journal: journals.Journal | None = None,
    classes: int = 0,
) -> dict[str, dict[str, np.ndarray]]:
    """What a network decides about each image, by condition.

    rules: how it answers, by what tells conditions apart, "" for the first. A condition
    "fog" under the rule "mean_logit" is "fog mean_logit". Returns for each condition
    "prediction" int32 (n), and float32 (n) "confidence", the probability of the decided
    class among the decision classes, and "likelihood", that of the right one (NaN where
    it has none). Where several of the network's classes answer for one, its probability
    is what the rule makes of theirs (for "mean_logit" the softmax of the means), divided
    by the sum over the decision classes. Besides, by their names, int32 ranks of the
    batches' cues. `tell` hears how many images have been answered;
    what asks for programs the first time, which may compile them, is inside `compiling`.
    What `journal` has answers to is not asked again; of that `tell` hears counted=False.
    classes: the number of the network's own classes, which its logits must have; 0: any.

    probe.NotFiniteError where the logits of any image decide nothing, or where the gradients
    that a probe follows are not finite; answers before that batch are in the journal.
    """
    found = collections.defaultdict(list)
    known = journal.entries if journal else []
    names = itertools.cycle(made.conditions)
    for condition, entry in zip(names, known):
        for rule, answer in zip(sorted(rules), entry, strict=True):  # As JAX has dicts.
            columns = {field: answer[field] for field in answer.dtype.names}
            found[f"{condition} {rule}".strip()].append(columns)
        tell(entry.shape[1], counted=False)
    asked = _run_conditions(
        network, made, batches, rules, compiling, len(known), classes
    )
    for batch in _answers_ahead(asked):
        n, answers = batch.count, batch.answers
        cut = [{k: x[:n] for k, x in one.columns.items()} for one in answers.values()]
        _check_finite(batch, cut, may_abstain=not network.graded)
        for name, columns in zip(answers, cut):
            found[name].append(columns)
        if journal:
            journal.add(cut)
        tell(n)
    joined = lambda *parts: np.concatenate(parts)
    return {name: jax.tree.map(joined, *parts) for name, parts in found.items()}


class _Answered(NamedTuple):
    """A network's answers to one batch under one condition, of all rules."""

    condition: str
    count: int  # Images of the batch; further rows fill it up.
    index: Int[Array, "b"]  # Each image's number in its set.
    followed_finite: Any  # Whether the gradients that made the stimuli are finite.
    answers: Mapping[str, Confidence]  # By condition and rule.


def _check_finite(
    batch: _Answered, columns: Sequence[Mapping], *, may_abstain: bool
) -> None:
    """Raise probe.NotFiniteError where a batch's answers decide nothing.

    columns: of each rule's answers, without the rows that fill the batch up. may_abstain:
    whether an answer may be none of the classes, as a person's may.
    """
    under = f", under {batch.condition!r}" if batch.condition else ""
    for column in columns:
        rows = np.flatnonzero(column["prediction"] == UNDECIDED)
        if len(rows) and not may_abstain:
            raise probe.NotFiniteError(
                f"logits must be finite, got NaN or infinite ones for {len(rows)} of the "
                f"{batch.count} images asked about{under}, first image number "
                f"{batch.index[rows[0]]} of the set"
            )
    if not batch.followed_finite:
        raise probe.NotFiniteError(
            "gradients of the network must be finite, got NaN or infinite ones for some of "
            f"{batch.count} images{under}, from image number {batch.index[0]} of the set on"
        )


@jax.jit
def _all_finite(tree: PyTree) -> Array:
    """Return whether no float in the tree is NaN or infinite."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return jnp.array([jnp.isfinite(x).all() for x in floats]).all()


def _check_logits(logits: Any, images: int, classes: int) -> None:
    """Raise ValueError unless logits are a row for each image, with each class's number."""
    if jnp.ndim(logits) != 2 or len(logits) != images:
        must = f"logits must be {images} rows of numbers, one for each image"
        raise ValueError(f"network: {must}, got the shape {jnp.shape(logits)}")
    if classes and logits.shape[1] != classes:
        raise ValueError(
            f"network: gives {logits.shape[1]:,} logits for each image and has {classes:,} "
            "classes; name all of its outputs, in order, by --classes=FILE"
        )


def _run_conditions(
    network, made, batches, rules, compiling, skip: int = 0, classes: int = 0
) -> Iterator[_Answered]:
    """Sends each batch through all conditions; answers are still being computed.

    skip: so many answers are there already, the first ones. classes: as in `run_probe`.
    """
    known, plain = set(), made.show is probe.identity
    for batch in batches:
        left = list(made.conditions)[min(skip, len(made.conditions)) :]
        skip -= len(made.conditions) - len(left)
        if not left:
            continue
        with compiling() if made.look and not known else contextlib.nullcontext():
            seen, kept = look_once(network, made, batch), {}
        for condition in left:
            # One program for each of these, made when it is first asked for.
            program = made.static and made.static(condition), condition in made.steps
            first = program not in known
            known.add(program)
            with compiling() if first else contextlib.nullcontext():
                stimuli = make_stimuli(network, made, batch, condition, seen, kept)
                as_it_is = plain and condition not in made.steps
                shown = batch.shown(condition, as_it_is=as_it_is)
                moved = condition in made.steps
                followed = (seen, stimuli if moved else None)
                logits = network.predict(stimuli, shown)
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
            finite = _all_finite(followed) if moved or made.look else True
            yield _Answered(
                condition=condition,
                count=batch.count,
                index=batch.index,
                followed_finite=finite,
                answers=answers,
            )


def look_once(network: Bound, made: probe.Probe, batch: Batch) -> PyTree:
    """What the probe asks the network about a batch before all conditions, or None."""
    if made.look is None:
        return None
    own = (network.variables, batch.image, batch.index, batch.target)
    return _look(network.apply, network.at, made.look, *own)


@functools.partial(jax.jit, static_argnames=("apply", "at", "look"))
def _look(apply, at, look, *own) -> PyTree:
    return look(_rows(apply, at, *own))


def make_stimuli(
    network: Bound,
    made: probe.Probe,
    batch: Batch,
    condition: str,
    seen: PyTree = None,
    kept: dict[str, UInt8[Array, "b h w 3"]] | None = None,
) -> probe.Images:
    """The stimuli of one condition, made of a batch.

    seen: saves `look_once` again. kept: of this batch what others are made `onto`, to which
    it adds.
    """
    kept = {} if kept is None else kept
    params = jax.tree.map(jnp.asarray, made.conditions[condition])
    how = made.static(condition) if made.static else None
    below = made.onto.get(condition)
    if below in made.onto:
        raise ValueError(f"probe: onto[{condition!r}] must be a condition of images")
    if below and below not in kept:
        make_stimuli(network, made, batch, below, seen, kept)
    image = kept[below] if below else batch.image
    own = (network.variables, image, batch.index, batch.target, params)
    show = functools.partial(_stimuli, made.show, how, *own[1:])
    if batch.keep and condition in made.slow:
        told = [np.asarray(x).tobytes() for x in jax.tree.leaves(params)]
        stimuli = batch.keep((made.show, how, below, *told), show)
    else:
        stimuli = show()
    steps = made.steps.get(condition, 0)
    if steps and seen is None:
        seen = look_once(network, made, batch)
    moved = functools.partial(_moved, network.apply, network.at, made.move, *own, seen)
    # Gradients of convolutions are ten times slower inside a loop on a CPU.
    once = xla.platform() == "cpu"
    for _ in range(steps if once else min(steps, 1)):
        stimuli = moved(stimuli, 1 if once else steps)
    if condition in made.onto.values():
        kept[condition] = jnp.round(stimuli * 255).astype(jnp.uint8)
    return stimuli


@functools.partial(jax.jit, static_argnames=("show", "how"))
def _stimuli(show, how, image, index, target, params) -> Array:
    rows = probe.Rows(_unit(image), index, target, _unasked)
    return show(rows, params) if how is None else show(rows, params, how)


def _unasked(image: probe.Images) -> Logits:
    raise ValueError("probe: show must not ask the network, which `move` may")


@functools.partial(jax.jit, static_argnames=("apply", "at", "move"))
def _moved(
    apply, at, move, variables, image, index, target, params, seen, stimuli, steps
) -> Array:
    rows = _rows(apply, at, variables, image, index, target)._replace(seen=seen)
    if xla.platform() == "cpu":
        return move(rows, params, stimuli)
    return jax.lax.fori_loop(0, steps, lambda _, x: move(rows, params, x), stimuli)


def _rows(apply, at, variables, image, index, target) -> probe.Rows:
    def logits(image: probe.Images) -> Logits:
        return apply(variables, image).astype(jnp.float32)

    def look(image: probe.Images, site: str) -> tuple[Array, Array]:
        if at is None:
            raise ValueError(
                "probe: must look into the network, and an algorithm that answers in its "
                "own way cannot be looked into; leave the measure out"
            )
        return at(variables, image, site)

    return probe.Rows(_unit(image), index, target, logits, look)


def _unit(image: UInt8[Array, "b h w 3"]) -> probe.Images:
    return image.astype(jnp.float32) / 255


@functools.partial(jax.jit, static_argnames="apply")
def _logits(apply, variables, image: probe.Images) -> Logits:
    return apply(variables, image).astype(jnp.float32)


def _answers_ahead(asked: Iterator) -> Iterator:
    """Keeps answers in flight, so that the devices never wait for the host.

    What was answered before an error, or a stop, comes before it is raised.
    """
    waiting = collections.deque()
    try:
        for one in asked:
            waiting.append(one)
            if len(waiting) > ANSWERS_AHEAD:
                yield jax.device_get(waiting.popleft())
    except (Exception, KeyboardInterrupt):
        yield from map(jax.device_get, waiting)
        raise
    yield from map(jax.device_get, waiting)


def agreement(
    network: Bound, other: Bound, made: probe.Probe, batches: Iterable[Batch]
) -> decisions.Numbers:
    """The share of images that two networks answer alike, by their own classes.

    Under the probe's first condition and its last, in stimuli that the first makes.
    """
    names = [*made.conditions]
    same, total = dict.fromkeys((names[0], names[-1]), 0), 0
    for batch in batches:
        for condition in same:
            image = make_stimuli(network, made, batch, condition)
            shown = batch.shown(condition)
            each = [net.predict(image, shown) for net in (network, other)]
            if not all(decides(x, x)[: batch.count].all() for x in each):
                raise probe.NotFiniteError(
                    "logits must be finite to be compared in float32"
                )
            alike = np.equal(*(np.argmax(logits, -1) for logits in each))
            same[condition] += int(alike[: batch.count].sum())
        total += batch.count
    return [decisions.share("agreement", n, total, name) for name, n in same.items()]


def to_decisions(found: Mapping, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Decisions by condition, of what `run_probe` found and what is known of the images."""
    made = {name: {**columns, **one} for name, one in found.items()}
    return {k: decisions.Decisions(x.pop("prediction"), x) for k, x in made.items()}
