"""The columns of a table of decisions, recognised by their names.

The names are compared without regard to case, spaces at their ends and "_", "-" or " "
between words. Other columns of a table are ignored.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from jbias import errors

# Accepted names by role; the first is model-vs-human's, if that format has the role.
NAMES: Mapping[str, tuple[str, ...]] = {
    "image": (
        "imagename",
        "image",
        "image_name",
        "image_id",
        "image_file",
        "img",
        "filename",
        "file_name",
        "file",
        "stimulus",
    ),
    "decision": (
        "object_response",
        "pred_label",
        "prediction",
        "predicted",
        "predicted_label",
        "predicted_class",
        "pred_class",
        "pred",
        "decision",
    ),
    "raw": (
        "response",
        "raw_response",
        "answer",
        "output",
        "text",
        "raw",
        "caption",
        "completion",
    ),
    "observer": ("subj", "subject", "observer", "model", "model_name", "network"),
    "dataset": ("set", "dataset"),
    "label": ("category", "label", "true_label", "truth", "target", "ground_truth"),
    "texture": ("texture", "texture_class", "texture_label"),
    "condition": ("condition",),
    "options": ("drawn_options",),
    "prompt": ("prompt",),
}
# Names of roles for messages, where they differ.
_WORDS = {
    "raw": "model's own words",
    "dataset": "set",
    "options": "options drawn for each image",
}
_OTHER_DELIMITERS = {";": "';'", "\t": "tabs", "|": "'|'"}
# The key of each role in --columns=KEY=NAME.
KEYS: Mapping[str, str] = {
    "image": "image",
    "decision": "response",
    "raw": "raw",
    "observer": "network",
    "dataset": "set",
    "label": "label",
    "texture": "texture",
    "condition": "condition",
    "options": "options",
    "prompt": "prompt",
}

# Columns of tables of scores, for a message.
_OF_SCORES = ("score", "accuracy", "algorithm", "method", "metric", "mean", "seed")


@dataclasses.dataclass(frozen=True)
class Roles:
    """The column for each role, by its name in the header; "" for a role without a column.

    A table has a column `decision` or a column `raw`, or both. Without `decision`, the values
    of `raw` may be class names, or the words of a model.
    """

    image: str
    decision: str
    raw: str
    observer: str
    dataset: str
    label: str
    texture: str
    condition: str
    options: str  # Of the question that the words of a row answer.
    prompt: str  # The question or template that a row answers, a factor of the model.


def parse(text: str) -> dict[str, str]:
    """Return the names of columns by key, from the value of --columns.

    text: such as "response=predicted,image=path"; {} for "". ValueError for a key that is not
    among the values of KEYS, and for a pair without a name.
    """
    columns = {}
    for pair in filter(None, text.split(",")):
        key, equals, name = pair.partition("=")
        errors.check_known("--columns", key, KEYS.values())
        if not equals or not name:
            raise ValueError(f"--columns: must be {key}=NAME, got {pair!r}; name it")
        columns[key] = name
    return columns


def recognise(where: str, header: Sequence[str], columns: Mapping[str, str]) -> Roles:
    """Return the column of each role.

    where: start of error messages, such as "file.csv:1". header: the names of all columns.
    columns: result of `parse`; these names are used as they are. ValueError if a column is
    named twice, a named column is missing, several columns may have one role, or there is no
    column of images or of decisions.
    """
    delimiter = find_other_delimiter(header)
    if delimiter:
        raise ValueError(
            f"{where}: must have commas between its columns, got {delimiter}; save the table "
            "as CSV with commas"
        )
    repeated = [name for name in header if header.count(name) > 1]
    if repeated:
        raise ValueError(
            f"{where}: must name every column once, got {errors.abbreviate(repeated[0])} "
            "twice; remove one of the two"
        )
    _refuse_lacking(where, [x for x in columns.values() if x not in header], header)
    free = [name for name in header if name not in columns.values()]
    role_columns = {
        role: columns.get(key) or _only_candidate(where, role, free)
        for role, key in KEYS.items()
    }
    roles = Roles(**role_columns)
    lacking = [] if roles.decision or roles.raw else [NAMES["decision"][0]]
    lacking += [] if roles.image else [NAMES["image"][0]]
    _refuse_lacking(where, lacking, header)
    return roles


def may_have_decisions(header: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Return False if a table has no column for images, or none for decisions or words.

    header, columns: see `recognise`. True also for a table with another delimiter than commas, and
    for one with two columns of one name, which `recognise` refuses.
    """
    has_role = {
        role: columns.get(KEYS[role]) in header
        or not {*map(plain, header)}.isdisjoint(map(plain, NAMES[role]))
        for role in ("image", "decision", "raw")
    }
    has_answers = has_role["decision"] or has_role["raw"]
    is_malformed = bool(find_other_delimiter(header)) or len({*header}) < len(header)
    return is_malformed or (has_role["image"] and has_answers)


def find_other_delimiter(header: Sequence[str]) -> str:
    """Return the name of the delimiter in the only cell of a header; "" if commas may be right."""
    if len(header) != 1:
        return ""
    marks = [name for mark, name in _OTHER_DELIMITERS.items() if mark in header[0]]
    return marks[0] if marks else ""


def _refuse_lacking(where: str, lacking: Sequence[str], header: Sequence[str]) -> None:
    """Raise ValueError if there are lacking columns; header: the names of all columns."""
    if lacking:
        shown = ", ".join(name for name in header if name)
        is_decision = [*lacking] != [NAMES["image"][0]]
        keys = ["response=YOURS"] * is_decision
        keys += ["image=YOURS"] * ([*lacking] != [NAMES["decision"][0]])
        remedy = f"name yours: --columns={','.join(keys)}"
        if is_decision:
            remedy += (
                ", with raw=YOURS in place of response=YOURS for a column of the model's own "
                "words"
            )
        scores = sorted({name for name in header if plain(name) in _OF_SCORES})
        if scores and NAMES["image"][0] in lacking:
            remedy += (
                f"; a table of scores, as {', '.join(scores)} suggests, is for jbias report "
                "(see jbias report --help)"
            )
        raise ValueError(
            f"{where}: must have the column(s) {', '.join(lacking)}, got "
            f"{_printable(shown) or 'none'}; {remedy}"
        )


def _only_candidate(where: str, role: str, header: Sequence[str]) -> str:
    """Return the only column whose name fits a role, or ""; ValueError if several fit."""
    names = {plain(name) for name in NAMES[role]}
    candidates = [name for name in header if plain(name) in names]
    if len(candidates) > 1:
        shown = " and ".join(repr(name) for name in candidates)
        raise ValueError(
            f"{where}: must have one column for the {_WORDS.get(role, role)}, got {shown}; choose by "
            f"--columns={KEYS[role]}={candidates[0]}"
        )
    return candidates[0] if candidates else ""


def plain(name: str) -> str:
    """Return a column's name in lower case, without spaces, "_" and "-"."""
    return "".join(letter for letter in name.casefold() if letter not in " _-\t")


def _printable(text: str) -> str:
    """Return a text for a message: at most 300 letters, with "?" for control letters."""
    cut = text if len(text) <= 300 else f"{text[:300]} ..."
    return "".join(letter if letter.isprintable() else "?" for letter in cut)
