"""Maps from the classes of a trained network to the classes of a test set.

Classes are matched by their names inside one label space, from WordNet ids to classes that
consist of classes of ImageNet, such as Geirhos' 16 (`members`), or by a user's own CSV file with
the columns `train_class` and `test_class`: a line for each class of the network that is used.
Several classes of the network may be mapped to one class of the test, but each class of the
network to one class only. The network's classes that are mapped to a class of the test are called
its members. Other columns are ignored.
"""

import collections
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jbias import errors
from jbias.data import base, set_options, tables
from jbias.data.base import Names
from jbias.runtime import cli
from jbias.untrusted import opening

# Names of a network's outputs; or IMAGENET, GEIRHOS16 or a file's path.
Outputs = str | Sequence[str] | Mapping[str, str]
AGGREGATES = ("mean_prob", "sum_prob", "max_prob", "mean_logit")


class ClassMap(NamedTuple):
    """A map from a network's logits to decisions, and from test labels to decisions.

    matrix[i, c] > 0 where training class i is a member of decision class c. The decision is
    the class c whose members have the largest mean, sum or maximum of p = softmax(logits), or
    the largest mean logit, depending on `aggregate`. For means and sums, the decision is
    argmax(p @ matrix); for "mean_logit", argmax(logits @ matrix). Without a `matrix` (None),
    the decision is argmax(logits). A test class with relabel -1 has no members and is never the
    decision.
    """

    classes: tuple[str, ...]  # Decision id -> name.
    matrix: Float[np.ndarray, "k_train k_decision"] | None
    relabel: Int[np.ndarray, "k_test"]  # Test class id -> decision id, or -1.
    aggregate: str = "mean_prob"

    @property
    def digest(self) -> str | None:
        """16 hex digits that identify the map; None without a matrix."""
        if self.matrix is None:
            return None
        text = f"{self.classes} {self.relabel.tolist()} {self.aggregate}"
        return hashlib.sha256(text.encode() + self.matrix.tobytes()).hexdigest()[:16]

    @property
    def description(self) -> str:
        """The decision rule in words, for tables."""
        if self.matrix is None:
            return f"argmax over the network's {len(self.classes):,} classes"
        used = np.count_nonzero(self.matrix.any(1))
        rule = f"argmax of {self.aggregate} over {len(self.classes):,} classes"
        return f"{rule}, answered by {used:,} of the network's {len(self.matrix):,}"


class LabelSpace(NamedTuple):
    """The classes of a network or of a test set, and the space of their names.

    answers: pairs (class of the network, its name in other data sets), for classes that have
    such a name. The name is one of Geirhos' 16 classes, a WordNet id, a word of ImageNet, or a
    data set's own class name, which has precedence.
    """

    classes: tuple[str, ...]  # Names, in the order of class ids.
    space: str  # One of base.SPACES.
    answers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the number of classes, the space and the names, for messages.

        Of more than 20 names, only the first two are returned.
        """
        shown = self.classes
        if len(self.classes) > _MAX_SHOWN:
            shown = (*self.classes[:2], "...")
        return f"{len(self.classes):,} of {self.space!r} ({', '.join(shown)})"


_MAX_SHOWN = 20  # Classes that a message names.
# Words for known lists of outputs.
IMAGENET, GEIRHOS16 = "imagenet", "geirhos16"


def of_outputs(outputs: Outputs, where: str = "classes") -> LabelSpace:
    """Return the label space of a network's outputs, in their order.

    outputs is one of
      "imagenet"        the 1000 classes in the order of published networks;
      "geirhos16"       Geirhos' 16 classes in alphabetical order;
      WordNet ids       all or some of them, for data sets of ImageNet's classes and of
                        Geirhos' 16;
      ImageNet's words  as torchvision and Hugging Face list them ("tench", or "tench,
                        Tinca tinca"), all 1000 in their order, or some that are unique.
                        They have the same effect as their WordNet ids;
      own names         for data sets whose class names are all in the list, and for those of
                        Geirhos' 16 classes that are in the list, such as "dog";
      a dictionary      {own name: class}, in the order of outputs. A class is one of the 16,
                        an id, a word, a data set's own name, or "" for none; several outputs
                        may have the same class;
      a path            of a file with one of these names per line, or of a CSV file with the
                        columns train_class and test_class, which is the dictionary.
    where: start of error messages. ValueError for anything else, and for a class named twice.
    """
    outputs = resolve_outputs(outputs, where)
    if isinstance(outputs, Mapping):
        return _space_of_mapping(outputs, where)
    names = tuple(outputs)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{where}: must be names, got {names[:8]}")
    space = _space_of_names(names)
    classes = space.classes
    repeated = [name for i, name in enumerate(classes) if name in classes[:i]]
    if repeated:
        must = f"{where}: must name each class once, got {repeated[0]!r} twice"
        raise ValueError(f"{must}; tell them apart")
    return space


def _space_of_mapping(outputs: Mapping[str, str], where: str) -> LabelSpace:
    """Return the label space of {own name: class}, the outputs of a network in order.

    If every output has a class and no class repeats, the result is the label space of the
    classes. Otherwise the result is the space of the own names, with the classes as `answers`.
    See `of_outputs`. where: start of error messages. ValueError for keys or values that are not
    text, if no output has a class, and as `of_outputs` does.
    """
    names, targets = tuple(outputs), tuple(outputs.values())
    if not all(isinstance(x, str) for x in (*names, *targets)) or not any(targets):
        raise ValueError(f"{where}: must map names to names, got {outputs}")
    if len(set(targets)) == len(targets) and all(targets):
        known = {x: x for x in (*geirhos16(), *tables.wnids())} | _ids(targets)
        is_known = known.keys() >= set(targets)
        classes = [known[x] for x in targets] if is_known else targets
        space = of_outputs(classes, where)
        if space.space != "wnid":
            return space
        return space._replace(answers=_differing_pairs(space.classes, targets))
    answers = tuple(
        (name, target) for name, target in zip(names, targets, strict=True) if target
    )
    return LabelSpace(names, "names", answers)


def _space_of_names(names: tuple[str, ...]) -> LabelSpace:
    """Return the label space of output names.

    Its space is "wnid" if all names are WordNet ids or words of ImageNet that identify one, or
    if more than 900 of 1000 names are the words in the order of ids; else "names". `answers`
    has the pairs (id, name) that differ or, for "names", a pair (name, name) for names of
    Geirhos' 16.
    """
    if set(names) <= set(tables.wnids()):
        return LabelSpace(names, "wnid")
    # All 1000 in their order: more than 900 are equal, since two classes are a crane,
    # for which lists have different names.
    if len(names) == 1000 and sum(map(str.__eq__, map(_word, names), _words())) > 900:
        answers = _differing_pairs(tables.wnids(), names)
        return LabelSpace(tables.wnids(), "wnid", answers)
    ids = _ids(names)
    if set(names) <= ids.keys():
        classes = tuple(ids[name] for name in names)
        return LabelSpace(classes, "wnid", _differing_pairs(classes, names))
    answers = tuple((name, name) for name in names if name in geirhos16())
    return LabelSpace(names, "names", answers)


def _differing_pairs(classes: Names, names: Names) -> tuple[tuple[str, str], ...]:
    """Return the pairs (class, name) in which class and name differ.

    classes: WordNet ids or the user's names. names: name of each class in other data sets,
    or the user's name.
    """
    return tuple(
        (wnid, name) for wnid, name in zip(classes, names, strict=True) if wnid != name
    )


def _ids(names: Iterable[str]) -> dict[str, str]:
    """Return {name: WordNet id}; names that match no ImageNet class, or several, are left out.

    Names are compared as by `_word`: up to the first comma, in lower case.
    """
    known = _ids_of_words()
    return {name: known[_word(name)] for name in names if _word(name) in known}


@functools.cache
def _ids_of_words() -> Mapping[str, str]:
    """Return {word: WordNet id} of the words that belong to exactly one ImageNet class."""
    words = _words()
    counts = collections.Counter(words)
    return {
        word: wnid for word, wnid in zip(words, tables.wnids()) if counts[word] == 1
    }


def _words() -> list[str]:
    """Return the normalised word of each ImageNet class, in the order of ids."""
    return [*map(_word, tables.lemmas().values())]


def _word(name: str) -> str:
    """Return a name up to its first comma, in lower case, with spaces for underscores."""
    return name.partition(",")[0].strip().lower().replace("_", " ")


def resolve_outputs(
    outputs: Outputs, where: str = "classes"
) -> Sequence[str] | Mapping[str, str]:
    """Return the names of a network's outputs in order, or {name: class} of a CSV file.

    outputs: "imagenet", "geirhos16" or the path of a file; anything but a string is returned
    unchanged. See `of_outputs`. Lines of a text file are trimmed, and empty lines left out.
    where: start of error messages. ValueError if the file cannot be read.
    """
    if not isinstance(outputs, str):
        return outputs
    if outputs == IMAGENET:
        return tables.wnids()
    if is_mapping(outputs):
        return _read_outputs(outputs, where)
    if outputs == GEIRHOS16:
        return tuple(geirhos16())
    must = f"{where}: must be {cli.OUTPUT_LISTS}, got {outputs!r} ("
    with (
        base.explain_errors(must, OSError, ValueError, remedy=")"),
        opening.open_text(os.path.expanduser(outputs)) as file,
    ):
        text = file.read()
    return list(filter(None, map(str.strip, text.splitlines())))


def is_mapping(path: str) -> bool:
    """Return True if `path` ends in ".csv": such a file maps outputs to test classes."""
    return path.lower().endswith(".csv")


def listing_remedy(path: str) -> str:
    """Return advice, for messages, for a file of classes that lacks outputs of a network.

    path: path of the file; only its ending is used.
    """
    if is_mapping(path):
        return (
            "list all outputs in order, a line train_class,test_class for each, with an "
            "empty test_class for those without one"
        )
    return "give a file with a name or WordNet id a line, for all outputs in order"


def _read_outputs(path: str, where: str) -> dict[str, str]:
    """Return {output: class} of a CSV file, in order; "" for an output without a class.

    ValueError for an output named twice, and as `_mapping_lines` does. where: start of error
    messages.
    """
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
    """Return the map from the classes of a trained network to the classes of a test set.

    If both sides have the same space, decisions are training classes, and every test class
    must be one of them. Other spaces are also matched by equal names if training has all names
    of the test, except for a test in "entry16". For WordNet ids and a test in one of
    base.GROUPED_SPACES, decisions are all classes of that space, such as Geirhos' 16, whose
    members are training classes; a class without a member gets a zero column and relabel -1.

    train_space, test_space: one of base.SPACES.
    aggregate: one of AGGREGATES. The mean of probabilities is the published rule for 16
      classes. "mean_logit", as in BiasBed's release, puts large classes at a disadvantage.
    mapping: path of a CSV file (`read_mapping`) that replaces the rules above; decisions are
      then the test's classes.
    restrict: True: choose among the test's classes only. ImageNet-A and ImageNet-R then use 200
      of the 1000 logits, as in the authors' code.
    answers: LabelSpace.answers of the network; if `answers` differ from the training classes,
      decisions are the test's classes.

    Source: Geirhos et al. 2019; model-vs-human at 79ed7cd, decision_mappings.py:30-52;
    natural-adv-examples at 0777070, eval.py; imagenet-r at 3131cac, eval.py:23-70.

    Raises base.Mismatch, a ValueError, if training lacks classes; ValueError for wrong
    arguments.
    """
    errors.check_choice("data.class_maps", aggregate, AGGREGATES, name="aggregate")
    train = LabelSpace(tuple(train_classes), train_space)
    test = LabelSpace(tuple(test_classes), test_space)
    sides = f"; training has {train}, the test {test}"
    with base.explain_errors("", ValueError, remedy=sides):
        class_map = _match(
            train,
            test,
            aggregate=aggregate,
            mapping=mapping,
            answers=dict(answers),
        )
    return _restricted(class_map, len(train.classes)) if restrict else class_map


def geirhos16() -> Mapping[str, tuple[str, ...]]:
    """Return {class: WordNet ids} of Geirhos' 16 classes, in alphabetical order."""
    return members("entry16")


@functools.cache
def members(space: str) -> Mapping[str, tuple[str, ...]]:
    """Return {class: WordNet ids} of a space's classes, which consist of classes of ImageNet.

    space: one of base.GROUPED_SPACES. "refined_bias" has the classes of both cues.
    """
    if space == "refined_bias":
        table = tables.read("refined_bias")
        classes = {**table["shape"], **table["texture"]}
    else:
        classes = tables.read({"entry16": "geirhos16"}.get(space, space))["classes"]
    return {name: tuple(wnids) for name, wnids in classes.items()}


def _class_of_id(space: str) -> dict[str, str]:
    """Return {WordNet id: class} of the members of all classes of a space (`members`)."""
    return {wnid: name for name, wnids in members(space).items() for wnid in wnids}


def _match(
    train: LabelSpace,
    test: LabelSpace,
    *,
    aggregate: str,
    mapping: str | None,
    answers: Mapping[str, str],
) -> ClassMap:
    """Return the map between two label spaces, without `restrict`; see `match`.

    The first rule that applies is used: the file `mapping`; the pairs of `_explicit_pairs`;
    equal names, if the spaces are equal or, for other tests than "entry16", all test classes
    are training classes; WordNet ids as members of the test's classes. base.Mismatch if no rule
    applies. answers: {class of training: its name in other data sets}.
    """
    same_space = train.space == test.space
    comparable = same_space or test.space != "entry16"
    is_answered = comparable and {*test.classes} <= {*train.classes}
    if mapping:
        user_names = answers if train.space == "wnid" else {}
        pairs = _read_mapping(mapping, train.classes, test.classes, answers=user_names)
    else:  # Explicit answers go before names.
        pairs = _explicit_pairs(train, test, answers)
    if pairs:
        return _grouped(
            pairs,
            train.classes,
            decisions=test.classes,
            test=test.classes,
            aggregate=aggregate,
        )
    if is_answered or same_space:  # Equal names go before the meanings of names.
        return _by_name(train.classes, test.classes)
    if _consists_of_ids(train, test):
        return _by_members(train.classes, test, aggregate)
    must = "label spaces must be the same, or 'wnid' for training and one of"
    must = f"{must} {', '.join(base.GROUPED_SPACES)} for the test"
    got = f"got {train.space!r} and {test.space!r}; test on a set of the same classes"
    raise base.Mismatch(f"data.class_maps: {must}, {got}, or write a mapping")


def _consists_of_ids(train: LabelSpace, test: LabelSpace) -> bool:
    """Return True if the test's classes consist of WordNet ids, and the network's are such ids."""
    return train.space == "wnid" and test.space in base.GROUPED_SPACES


def _explicit_pairs(
    train: LabelSpace, test: LabelSpace, answers: Mapping[str, str]
) -> dict[str, str]:
    """Return {class of training: class of the test} by the names in `answers`.

    answers: {class of training: its name in other data sets}. Names that are no class of the
    test are left out. {} if the network has WordNet ids and the test's classes consist of such
    ids. For other tests than "entry16", {} if no pair has different names, or if the network has
    WordNet ids and a class of the test has no pair. Equal names or WordNet ids are then used
    instead.
    """
    if _consists_of_ids(train, test):
        return {}  # Answered by ids.
    matched = {
        train_class: _test_class(answer, test)
        for train_class, answer in answers.items()
    }
    pairs = {
        train_class: test_class
        for train_class, test_class in matched.items()
        if test_class in test.classes
    }
    if test.space == "entry16":
        return pairs
    is_partial = {*test.classes} > {*pairs.values()}
    is_trivial = all(
        train_class == test_class for train_class, test_class in pairs.items()
    )
    if is_trivial or train.space == "wnid" and is_partial:
        return {}
    return pairs


def _test_class(name: str, test: LabelSpace) -> str:
    """Return the class of a test set to which the name of a network's class is mapped.

    This is `name` itself, if the test has a class of this name. Otherwise a word of ImageNet is
    replaced by its WordNet id, and an id by the class of which it is a member, if the test's
    space has such classes (`members`). The result need not be a class of the test.
    """
    (spelled,) = base.match_spelling([name], test.classes)
    if spelled in test.classes:
        return spelled
    wnid = _ids([name]).get(name, name)
    if test.space not in base.GROUPED_SPACES:
        return wnid
    return _class_of_id(test.space).get(wnid, wnid)


def _by_name(train: tuple[str, ...], test: tuple[str, ...]) -> ClassMap:
    """Return the map by equal names; base.Mismatch if training lacks a test class.

    Decisions are the training classes, without a matrix.
    """
    ids = {name: label for label, name in enumerate(train)}
    test = base.match_spelling(test, train)
    lacking = [name for name in test if name not in ids]
    if lacking:
        hint = errors.suggest(lacking[0], train)
        must = "data.class_maps: training must have every class of the test"
        got = f"{len(lacking)} of {len(test)} lack, first {lacking[0]!r}; {hint}"
        raise base.Mismatch(f"{must}, {got}; or write a mapping of those in common")
    return ClassMap(train, None, np.array([ids[name] for name in test], np.int32))


_OF_SPACE = {
    "entry16": "Geirhos' 16",
    "objectnet": "ObjectNet's 113",
    "refined_bias": "the 20 of REFINED-BIAS",
}


def _by_members(train: tuple[str, ...], test: LabelSpace, aggregate: str) -> ClassMap:
    """Return the map from WordNet ids to classes that consist of them, such as Geirhos' 16.

    Decisions are all classes of the test's space (`members`). train: WordNet ids. ValueError if
    a test class is not one of them, base.Mismatch if no training class is a member of one.
    """
    known, class_of_id = members(test.space), _class_of_id(test.space)
    which = _OF_SPACE[test.space]
    for name in test.classes:
        noun, must = f"classes of {test.space!r}", f"be {which}"
        errors.check_known("data.class_maps", name, known, noun, must=must)
    if not {*train} & class_of_id.keys():
        must = (
            f"data.class_maps: some training classes must be members of {which}, none"
        )
        raise base.Mismatch(f"{must} of {len(train)} is; train on classes of ImageNet")
    return _grouped(
        class_of_id,
        train,
        decisions=tuple(known),
        test=test.classes,
        aggregate=aggregate,
    )


def _grouped(
    pairs: Mapping[str, str],
    train: Names,
    *,
    decisions: Names,
    test: Names,
    aggregate: str,
) -> ClassMap:
    """Return the map in which training classes are members of decision classes.

    pairs: {training class: decision class}; training classes that are no key are not used.
    train, decisions, test: names of classes; each test class is one of `decisions`, and has
    relabel -1 if that decision has no member. aggregate: one of AGGREGATES; for the means, a
    matrix entry is 1 / (number of members of the decision), else 1.
    """
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


def _restricted(class_map: ClassMap, k_train: int) -> ClassMap:
    """Return the map with the decisions restricted to the test's classes, in their order.

    Test classes with relabel -1 are left out and keep -1. k_train: number of training classes.
    Without a matrix every decision class has a single member, for which all aggregates agree.
    The aggregate is then "mean_logit", since logits are not rounded by a softmax.
    """
    has_answer = class_map.relabel >= 0
    columns = class_map.relabel[has_answer]
    matrix, aggregate = class_map.matrix, class_map.aggregate
    if matrix is None:
        matrix, aggregate = np.eye(k_train, dtype=np.float32), "mean_logit"
    relabel = np.where(has_answer, np.cumsum(has_answer) - 1, -1).astype(np.int32)
    classes = tuple(class_map.classes[i] for i in columns)
    return ClassMap(classes, matrix[:, columns], relabel=relabel, aggregate=aggregate)


MAPPING_COLUMNS = ("train_class", "test_class")


def _read_mapping(
    path: str, train: Names, test: Names, answers: Mapping[str, str]
) -> dict[str, str]:
    """Return {training class: test class} of a CSV file that may use the user's class names.

    answers: {training class: the user's name}. Errors: see `read_mapping`; also ValueError if
    the two names of a class have lines with different test classes.
    """
    aliases = {name: wnid for wnid, name in answers.items() if name not in train}
    pairs = read_mapping(path, (*dict.fromkeys(train), *aliases), test)
    test_class_of: dict[str, str] = {}
    for name, test_class in pairs.items():
        wnid = aliases.get(name, name)
        first = test_class_of.setdefault(wnid, test_class)
        if first != test_class:
            must = f"{path}: a class of training must be mapped once"
            got = f"got {wnid!r} for {first!r} and, as {name!r}, for {test_class!r}"
            raise ValueError(f"{must}, {got}; leave one line")
    return test_class_of


def read_mapping(path: str, train: Names, test: Names) -> dict[str, str]:
    """Return {training class: test class} of the CSV file `path`.

    train, test: the known classes. ValueError for a file that cannot be read or lacks a column,
    a line with an unknown class, a training class with two lines, and a file without lines;
    base.Mismatch if no training class of the file is known, since the file is then for a
    different network.
    """
    pairs, lines = {}, _mapping_lines(path)
    if lines:
        places = [place for place, _, _ in lines]
        train_names = base.match_spelling([name for _, name, _ in lines], train)
        test_names = base.match_spelling([name for _, _, name in lines], test)
        lines = list(zip(places, train_names, test_names, strict=True))
    is_of_network = any(train_class in train for _, train_class, _ in lines)
    kind = ValueError if is_of_network else base.Mismatch
    for where, train_class, test_class in lines:
        must = "be a class of training"
        errors.check_known(
            where, train_class, train, "train_class", must=must, kind=kind
        )
        must = "be a class of the test"
        errors.check_known(where, test_class, test, "test_class", must=must, kind=kind)
        if train_class in pairs:
            must = f"{where}: a class of training must be mapped once"
            got = f"got {train_class!r} for {pairs[train_class]!r}"
            got += f" and again for {test_class!r}"
            raise ValueError(f"{must}, {got}; leave one line")
        pairs[train_class] = test_class
    if not pairs:
        must = f"{path}: a mapping must have a line for some class"
        raise ValueError(f"{must}, got the header alone")
    return pairs


def _mapping_lines(path: str) -> list[tuple[str, str, str]]:
    """Return (place, train_class, test_class) of each line of a CSV file, trimmed.

    place: "<path>:<line number>". ValueError if the file cannot be read, or if a column is
    missing or occurs twice.
    """
    must = f"{path}: a mapping must be a CSV file in UTF-8, got "
    remedy = f"; write one with the columns {','.join(MAPPING_COLUMNS)}"
    with base.explain_errors(must, *set_options.CSV_ERRORS, remedy=remedy):
        header, lines = set_options.csv_lines(os.path.expanduser(path))
    wrong = [name for name in MAPPING_COLUMNS if header.count(name) != 1]
    if wrong:
        must = f"{path}: the header must have {' and '.join(MAPPING_COLUMNS)} once each"
        got = f"{wrong[0]} does not, got {','.join(header)!r}"
        raise ValueError(f"{must}, {got}; name the columns so, with a comma between")
    cells = []
    for number, row in lines:
        train_class, test_class = ((row[x] or "").strip() for x in MAPPING_COLUMNS)
        cells.append((f"{path}:{number}", train_class, test_class))
    return cells
