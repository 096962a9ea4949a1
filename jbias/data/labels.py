"""Maps the classes that a network was trained on to those that a test set asks for.

By names inside one label space, from WordNet ids to Geirhos' 16 classes, or by a user's own
CSV file with the columns `train_class` and `test_class`: one line for each class of the
network that is used; a class without a line is not. Several may answer for one class of the
test, none for two. Other columns are ignored.
"""

import collections
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jbias.data import base, set_options, tables
from jbias.data.base import Names
from jbias.runtime import cli
from jbias.untrusted import opening

# What the outputs of a network are called, or a file's path.
Given = str | Sequence[str] | Mapping[str, str]
AGGREGATES = ("mean_prob", "sum_prob", "max_prob", "mean_logit")


class ClassMap(NamedTuple):
    """How a network's answers become decisions, and what the right decision is.

    matrix[i, c] > 0 where training class i is a member of decision class c. With
    p = softmax(logits), decision = argmax_c of the members' mean, sum or maximum of p,
    or of their mean logit, as `aggregate` says: argmax(p @ matrix), or argmax(logits @
    matrix) for the last. Without a matrix it is argmax(logits). A class with relabel -1
    can never be answered.
    """

    classes: tuple[str, ...]  # Decision id -> name.
    matrix: Float[np.ndarray, "k_train k_decision"] | None
    relabel: Int[np.ndarray, "k_test"]  # Test class id -> decision id, or -1.
    aggregate: str = "mean_prob"

    @property
    def digest(self) -> str | None:
        """Tells whether a mapping is still the same; None where there is none."""
        if self.matrix is None:
            return None
        text = f"{self.classes} {self.relabel.tolist()} {self.aggregate}"
        return hashlib.sha256(text.encode() + self.matrix.tobytes()).hexdigest()[:16]

    @property
    def description(self) -> str:
        """The rule in words, for tables."""
        if self.matrix is None:
            return f"argmax over the network's {len(self.classes):,} classes"
        used = np.count_nonzero(self.matrix.any(1))
        told = f"argmax of {self.aggregate} over {len(self.classes):,} classes"
        return f"{told}, answered by {used:,} of the network's {len(self.matrix):,}"


class LabelSpace(NamedTuple):
    """The classes of a network, or of a test; as text, how many, and the first.

    answers: (own class, class of other sets) pairs, where a network's own are called
    otherwise there: such a class is one of Geirhos' 16, a WordNet id, a word of ImageNet, or
    a set's own name. A set's own name goes first: it means that class of the set.
    """

    classes: tuple[str, ...]
    space: str
    answers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        few = self.classes if len(self.classes) <= _FEW else (*self.classes[:2], "...")
        return f"{len(self.classes):,} of {self.space!r} ({', '.join(few)})"


_FEW = 20  # Classes that a message names.
# Words in the place of a list.
IMAGENET, GEIRHOS16 = "imagenet", "geirhos16"


def of_outputs(given: Given, where: str = "classes") -> LabelSpace:
    """What the outputs of a network are, in their order, for every set that it is shown.

    given is one of
      "imagenet"        the 1000 classes in the order of published networks;
      "geirhos16"       Geirhos' 16 classes in alphabetical order;
      WordNet ids       all of them or some; sets of ImageNet's classes, and of Geirhos'
                        16, are answered;
      ImageNet's words  as torchvision and Hugging Face list them ("tench", or "tench,
                        Tinca tinca"), all 1000 in their order, or some that are unique:
                        the same as their ids;
      names of one's own  they answer sets whose classes bear all the same names, and of
                        Geirhos' 16 those that some of them name, such as "dog";
      a dictionary      {own name: class}, in the order of outputs: several may answer for
                        one class, which is one of the 16, an id, a word or a set's own
                        name, and "" for none;
      a path            of a file with one of these a line, or of a CSV file with the columns
                        train_class and test_class, which is the dictionary.
    ValueError, which begins with `where`, for what is none of these.
    """
    given = listed(given, where)
    if isinstance(given, Mapping):
        names, targets = tuple(given), tuple(given.values())
        if not all(isinstance(x, str) for x in (*names, *targets)) or not any(targets):
            raise ValueError(f"{where}: must map names to names, got {given}")
        if len(set(targets)) == len(targets) and all(targets):
            known = {x: x for x in (*geirhos16(), *tables.wnids())} | _ids(targets)
            is_known = known.keys() >= set(targets)
            outputs = [known[x] for x in targets] if is_known else targets
            found = of_outputs(outputs, where)
            if found.space != "wnid":
                return found
            return found._replace(answers=_as_given(found.classes, targets))
        pairs = tuple((own, x) for own, x in zip(names, targets, strict=True) if x)
        return LabelSpace(names, "names", pairs)
    names = tuple(given)
    if not names or not all(isinstance(x, str) and x for x in names):
        raise ValueError(f"{where}: must be names, got {names[:8]}")
    if set(names) <= set(tables.wnids()):
        found = LabelSpace(names, "wnid")
    elif len(names) == 1000 and sum(map(str.__eq__, map(_word, names), _words())) > 900:
        # In their order; two are a crane, which lists tell apart in their own ways.
        found = LabelSpace(tables.wnids(), "wnid", _as_given(tables.wnids(), names))
    elif set(names) <= (ids := _ids(names)).keys():
        classes = tuple(ids[x] for x in names)
        found = LabelSpace(classes, "wnid", _as_given(classes, names))
    else:
        same = tuple((x, x) for x in names if x in geirhos16())
        found = LabelSpace(names, "names", same)
    if again := [x for i, x in enumerate(found.classes) if x in found.classes[:i]]:
        must = f"{where}: must name each class once, got {again[0]!r} twice"
        raise ValueError(f"{must}; tell them apart")
    return found


def _as_given(classes: Names, names: Names) -> tuple[tuple[str, str], ...]:
    """Return pairs of a WordNet id and its name as given, where these differ."""
    return tuple((own, x) for own, x in zip(classes, names, strict=True) if own != x)


def _ids(names: Iterable[str]) -> dict[str, str]:
    """The WordNet ids of those names that are a word of one class of ImageNet."""
    known = _ids_of_words()
    return {name: known[_word(name)] for name in names if _word(name) in known}


@functools.cache
def _ids_of_words() -> Mapping[str, str]:
    """Return the WordNet id of each word that one class of ImageNet has."""
    words = _words()
    times = collections.Counter(words)
    return {x: wnid for x, wnid in zip(words, tables.wnids()) if times[x] == 1}


def _words() -> list[str]:
    return [*map(_word, tables.lemmas().values())]


def _word(name: str) -> str:
    return name.partition(",")[0].strip().lower().replace("_", " ")


def listed(given: Given, where: str = "classes") -> Sequence[str] | Mapping[str, str]:
    """What `of_outputs` takes, with a word for the 1000 or a file's path resolved."""
    if not isinstance(given, str):
        return given
    if given == IMAGENET:
        return tables.wnids()
    if is_mapping(given):
        return _read_outputs(given, where)
    if given == GEIRHOS16:
        return tuple(geirhos16())
    must = f"{where}: must be {cli.OUTPUT_LISTS}, got {given!r} ("
    with (
        base.explain_errors(must, OSError, ValueError, remedy=")"),
        opening.text(os.path.expanduser(given)) as file,
    ):
        text = file.read()
    return list(filter(None, map(str.strip, text.splitlines())))


def is_mapping(path: str) -> bool:
    """Return whether a file of classes maps outputs to the classes of sets: a CSV file."""
    return path.lower().endswith(".csv")


def list_all(path: str) -> str:
    """Return what to do where a file of classes does not list all outputs of a model."""
    if is_mapping(path):
        return (
            "list all outputs in order, a line train_class,test_class for each, with an "
            "empty test_class for those without one"
        )
    return "give a file with a name or WordNet id a line, for all outputs in order"


def _read_outputs(path: str, where: str) -> dict[str, str]:
    """Return {output: class} of a CSV file; ValueError where an output is named twice."""
    classes: dict[str, str] = {}
    for line, output, test_class in _mapping_lines(path):
        if output in classes:
            raise ValueError(
                f"{where}: must name each output once, got {output!r} twice, again in "
                f"{line}; tell them apart"
            )
        classes[output] = test_class
    return classes


def match(
    train_classes: Names,
    train_space: str,
    test_classes: Names,
    test_space: str,
    *,
    aggregate: str = "mean_prob",
    mapping: str | None = None,
    restrict: bool = False,
    answers: Sequence[tuple[str, str]] = (),
) -> ClassMap:
    """Maps the classes of a trained network to those of a test set, by their names.

    Inside one space decisions are training classes; a test class that training lacks
    is refused. WordNet ids answer Geirhos' 16 classes c by S_c, the members of c among
    the training classes; c without a member gets a zero column and relabel -1.
    `mapping`, a CSV file as `read_mapping` reads it, goes before both and decides among
    the test's classes. `restrict` leaves only the test's classes to choose among: of
    1000 logits the 200 columns of ImageNet-A or ImageNet-R, as their authors have it.
    `answers`: of LabelSpace; they decide among the test's classes where the two sides
    name theirs otherwise.

    The mean of probabilities is the published rule for 16 classes. "mean_logit", as
    BiasBed's release has it, puts large classes at a disadvantage.
    Source: Geirhos et al. 2019; model-vs-human at 79ed7cd, decision_mappings.py:30-52;
    natural-adv-examples at 0777070, eval.py; imagenet-r at 3131cac, eval.py:23-70.

    base.Mismatch, a ValueError, where training lacks classes; ValueError for wrong arguments.
    """
    base.check_choice("data.labels: aggregate", aggregate, AGGREGATES)
    train = LabelSpace(tuple(train_classes), train_space)
    test = LabelSpace(tuple(test_classes), test_space)
    sides = f"; training has {train}, the test {test}"
    with base.explain_errors("", ValueError, remedy=sides):
        found = _find(train, test, aggregate, mapping, dict(answers))
    return _restricted(found, len(train.classes)) if restrict else found


@functools.cache
def geirhos16() -> Mapping[str, tuple[str, ...]]:
    """Geirhos' 16 classes, in alphabetical order, and the WordNet ids of each."""
    classes = tables.read("geirhos16")["classes"]
    return {name: tuple(wnids) for name, wnids in classes.items()}


def _class_of_16() -> dict[str, str]:
    """Which of Geirhos' 16 classes each WordNet id belongs to, if to any."""
    return {wnid: name for name, wnids in geirhos16().items() for wnid in wnids}


def _find(train, test, aggregate, mapping, answers) -> ClassMap:
    same_space = train.space == test.space
    comparable = same_space or test.space != "entry16"
    is_answered = comparable and {*test.classes} <= {*train.classes}
    if mapping:
        given = answers if train.space == "wnid" else {}
        pairs = _read_mapping(mapping, train.classes, test.classes, given)
    else:  # What outputs are said to answer for goes before what they are called.
        pairs = _answered(train, test, answers)
    if pairs:
        return _grouped(pairs, train.classes, test.classes, test.classes, aggregate)
    if is_answered or same_space:  # By the names, whatever else they may mean.
        return _by_name(train.classes, test.classes)
    if (train.space, test.space) == ("wnid", "entry16"):
        return _sixteen(train.classes, test.classes, aggregate)
    must = "label spaces must be the same, or 'wnid' for training and 'entry16' for the"
    got = f"test, got {train.space!r} and {test.space!r}; test on a set of the same"
    raise base.Mismatch(f"data.labels: {must} {got} classes, or write a mapping")


def _answered(
    train: LabelSpace, test: LabelSpace, answers: Mapping[str, str]
) -> dict[str, str]:
    """Return {class of training: class of the test} by what training's are called.

    A set of one's own is answered whole, or not at all: {} where it would be in part.
    """
    if (train.space, test.space) == ("wnid", "entry16"):
        return {}  # Answered by ids.
    pairs = {own: _class_meant(x, test) for own, x in answers.items()}
    pairs = {own: x for own, x in pairs.items() if x in test.classes}
    if test.space == "entry16":
        return pairs
    in_part = {*test.classes} > {*pairs.values()}
    if all(own == x for own, x in pairs.items()) or train.space == "wnid" and in_part:
        return {}
    return pairs


def _class_meant(name: str, test: LabelSpace) -> str:
    """Return the class of a test that a name means: the class so called, if there is one.

    Else a word of ImageNet means its WordNet id, and an id its class of Geirhos' 16.
    """
    (spelled,) = base.match_spelling([name], test.classes)
    if spelled in test.classes:
        return spelled
    wnid = _ids([name]).get(name, name)
    return _class_of_16().get(wnid, wnid) if test.space == "entry16" else wnid


def _by_name(train: tuple[str, ...], test: tuple[str, ...]) -> ClassMap:
    ids = {name: label for label, name in enumerate(train)}
    test = base.match_spelling(test, train)
    if lacking := [name for name in test if name not in ids]:
        hint = base.did_you_mean(lacking[0], train)
        must = "data.labels: training must have every class of the test"
        got = f"{len(lacking)} of {len(test)} lack, first {lacking[0]!r}; {hint}"
        raise base.Mismatch(f"{must}, {got}; or write a mapping of those in common")
    return ClassMap(train, None, np.array([ids[name] for name in test], np.int32))


def _sixteen(train: tuple[str, ...], test: tuple[str, ...], aggregate: str) -> ClassMap:
    table, entry = geirhos16(), _class_of_16()
    for name in test:
        what = "data.labels: classes of 'entry16' must be Geirhos' 16"
        base.check_known(what, name, table)
    if not {*train} & entry.keys():
        must = "data.labels: some training classes must be members of Geirhos' 16, none"
        raise base.Mismatch(f"{must} of {len(train)} is; train on classes of ImageNet")
    return _grouped(entry, train, tuple(table), test, aggregate)


def _grouped(pairs, train, decisions, test, aggregate) -> ClassMap:
    """Answers `decisions` by the training classes that `pairs` give to each."""
    ids = {name: i for i, name in enumerate(decisions)}
    matrix = np.zeros((len(train), len(decisions)), np.float32)
    for i, name in enumerate(train):
        if name in pairs:
            matrix[i, ids[pairs[name]]] = 1
    members = matrix.sum(0)
    if aggregate in ("mean_prob", "mean_logit"):
        matrix /= np.maximum(members, 1)
    relabel = [ids[name] if members[ids[name]] else -1 for name in test]
    return ClassMap(decisions, matrix, np.array(relabel, np.int32), aggregate)


def _restricted(found: ClassMap, k_train: int) -> ClassMap:
    """Keeps the columns of the test's classes, in the order of these.

    A lone member is its own mean, sum and maximum. By its logit it is compared without
    a rounding.
    """
    kept = found.relabel >= 0
    columns, (matrix, aggregate) = found.relabel[kept], (found.matrix, found.aggregate)
    if matrix is None:
        matrix, aggregate = np.eye(k_train, dtype=np.float32), "mean_logit"
    relabel = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    classes = tuple(found.classes[i] for i in columns)
    return ClassMap(classes, matrix[:, columns], relabel, aggregate)


MAPPING_COLUMNS = ("train_class", "test_class")


def _read_mapping(
    path: str, train: Names, test: Names, answers: Mapping[str, str]
) -> dict[str, str]:
    """Read a mapping whose training classes may have the names that outputs were given.

    answers: {training class: its name as given}.
    """
    own = {name: name for name in train}
    aliases = {name: wnid for wnid, name in answers.items() if name not in own}
    pairs = read_mapping(path, (*own, *aliases), test)
    found: dict[str, str] = {}
    for name, other in pairs.items():
        wnid = aliases.get(name, name)
        if found.setdefault(wnid, other) != other:
            must = f"{path}: a class of training must be mapped once"
            got = f"got {wnid!r} for {found[wnid]!r} and, as {name!r}, for {other!r}"
            raise ValueError(f"{must}, {got}; leave one line")
    return found


def read_mapping(path: str, train: Names, test: Names) -> dict[str, str]:
    """Reads {training class: test class}; every line must name known classes.

    base.Mismatch where none of the training classes is known: it is of another network.
    """
    pairs, lines = {}, _mapping_lines(path)
    if lines:
        places, train_names, test_names = zip(*lines)
        train_names = base.match_spelling(train_names, train)
        test_names = base.match_spelling(test_names, test)
        lines = list(zip(places, train_names, test_names, strict=True))
    kind = ValueError if any(one in train for _, one, _ in lines) else base.Mismatch
    for where, one, other in lines:
        must = f"{where}: train_class must be a class of training"
        base.check_known(must, one, train, kind)
        must = f"{where}: test_class must be a class of the test"
        base.check_known(must, other, test, kind)
        if one in pairs:
            must = f"{where}: a class of training must be mapped once"
            got = f"got {one!r} for {pairs[one]!r} and again for {other!r}"
            raise ValueError(f"{must}, {got}; leave one line")
        pairs[one] = other
    if not pairs:
        must = f"{path}: a mapping must have a line for some class"
        raise ValueError(f"{must}, got the header alone")
    return pairs


def _mapping_lines(path: str) -> list[tuple[str, str, str]]:
    """Of each line its place and the two cells, without the spaces around them."""
    must = f"{path}: a mapping must be a CSV file in UTF-8, got "
    remedy = f"; write one with the columns {','.join(MAPPING_COLUMNS)}"
    with base.explain_errors(must, *set_options.CSV_ERRORS, remedy=remedy):
        header, lines = set_options.csv_lines(os.path.expanduser(path))
    if missing := [one for one in MAPPING_COLUMNS if header.count(one) != 1]:
        must = f"{path}: the header must have {' and '.join(MAPPING_COLUMNS)} once each"
        got = f"{missing[0]} does not, got {','.join(header)!r}"
        raise ValueError(f"{must}, {got}; name the columns so, with a comma between")
    cells = [[(row[one] or "").strip() for one in MAPPING_COLUMNS] for _, row in lines]
    return [(f"{path}:{n}", *pair) for (n, _), pair in zip(lines, cells, strict=True)]
