"""Reader of files of decisions: CSV and Parquet files -> observers, without images.

    observers = tables.read("decisions-vlm")

Columns, sets and no answers are recognised as in columns.py, stimulus_names.py and parsing.py.
"""

import collections
import dataclasses
import glob
import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jbias import errors
from jbias.answers import columns as column_names
from jbias.answers import (
    letter_options,
    observers,
    parsing,
    reading_notes,
    same_images,
    stimulus_names,
    table_rows,
)
from jbias.data import tables as data_tables
from jbias.runtime import console

PARSE = ("published", "raw")
TASKS = ("vqa", "captioning")  # Folders that are tasks.
SUFFIXES = (".csv", ".parquet")
_TIMESTAMP = re.compile(r"^(?:\d{8}_\d{6}|\d{4}x{4}_y{6})_")
_MAX_PROMPT = 60  # Letters of a prompt in an observer's name.
_PROMPT = re.compile(r"_(None|CLS|a_photo_of_a_CLS\.)$")


def find_files(path: str) -> list[str]:
    """Return the sorted paths of the CSV and Parquet files at a path.

    path: a file, which is returned with any ending; or a folder, which is searched with its
    folders, or a glob, of which files with other endings are left out. Hidden files and
    folders are left out. ValueError if no file remains.
    """
    if os.path.isfile(path):
        return [path]
    table_files = []
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        table_files += [
            os.path.join(folder, name)
            for name in names
            if _is_table(name) and not name.startswith(".")
        ]
    if not table_files and glob.has_magic(path):
        table_files = [name for name in glob.glob(path) if _is_table(name)]
    if not table_files:
        raise ValueError(
            f"--decisions: {path} must be a CSV or Parquet file or a folder of these, got "
            f"{_describe_lacking(path)}"
        )
    return sorted(table_files)


def _describe_lacking(path: str) -> str:
    """Return a text on a path without tables, with advice."""
    if not os.path.isdir(path):
        return "nothing there; check it"
    other_files = sorted(
        name
        for _, _, names in os.walk(path)
        for name in names
        if not name.startswith(".")
    )
    if not other_files:
        return "an empty one; check it"
    more = f" and {len(other_files) - 1:,} more" if len(other_files) > 1 else ""
    return f"other files, {other_files[0]!r}{more}; save them as CSV or Parquet files"


def decision_files(
    path: str, *, columns: Mapping[str, str], say: console.Say
) -> list[str]:
    """Return the files of `find_files` that may have decisions.

    Of a folder or glob, files without a column of images or of answers, such as tables of scores,
    are left out.
    columns: result of `columns.parse`. say: called with a line for each file that is left out.
    All files are returned if none has such a column.
    """
    paths = find_files(path)
    if paths == [path]:
        return paths
    headers = {file: _header(file) for file in paths}
    chosen = [
        file
        for file, header in headers.items()
        if header is None or column_names.may_have_decisions(header, columns)
    ]
    for file in paths if chosen else ():
        if file not in chosen:
            shown = errors.abbreviate(", ".join(filter(None, headers[file])))
            say(
                f"{file} is left out: it has no columns of images and decisions, only {shown}; "
                "if it has decisions, name yours: --columns=response=YOURS,image=YOURS"
            )
    return chosen or paths


def _header(path: str) -> list[str] | None:
    """Return the names of a table's columns; None for a table that cannot be read or is empty."""
    try:
        return next(table_rows.read(path), ("", None))[1]
    except ValueError:
        return None


def _is_table(name: str) -> bool:
    """Return True if a file's name has the ending of a table."""
    return name.lower().endswith(SUFFIXES)


def read(
    paths: str | Sequence[str],
    *,
    columns: Mapping[str, str] | None = None,
    dataset: str = "",
    parse: str = "published",
    options: Mapping[str, str] | None = None,
    say: console.Say = lambda line: None,
) -> list[observers.Observer]:
    """Return the observers in files of decisions, sorted by name and set.

    paths: one or several files, folders or globs, see `find_files`. columns: result of
    `columns.parse`; other columns are recognised by their names. dataset: name of the set of
    all images; "": by a column, the file's name or the images' names. parse: "published" for the
    file's column of decisions; "raw" to parse the words of the model again, by
    parsing.VERSION, in files that have them. options: result of `letter_options.parse`, the
    options of the question that the words answer; None or {}: the classes in alphabetical order.
    say: called with the sentences of `reading_notes.lines`.

    ValueError, one line that begins with the file and line, for a file that is no table of
    decisions, an unknown class, an image with two decisions or an unknown name, and for two
    files of one observer on one set in one folder. errors.SeveralErrors, a line for each file, for
    several such files.
    """
    errors.check_choice("parse", parse, PARSE)
    files = {
        os.path.abspath(file): _File(file, group)
        for path in ([paths] if isinstance(paths, str) else paths)
        for file, group in _grouped(os.fspath(path), columns=columns or {}, say=say)
    }
    read_files: list[_Read] = []
    refusals: list[tuple[str, str]] = []  # Path and message.
    opened: list[_Table] = []
    for file in files.values():
        try:
            opened += _read_tables(file, columns or {}, dataset)
        except ValueError as error:
            refusals.append((file.path, str(error)))
    further_classes = _own_classes(opened)
    for table in opened:
        try:
            read_files.append(
                _make_observer(
                    table,
                    parse=parse,
                    options=options or {},
                    further_classes=further_classes.get(table.own_set, ()),
                )
            )
        except ValueError as error:
            refusals.append((table.file.path, str(error)))
    errors.refuse_all([message for _, message in sorted(refusals)])
    for line in reading_notes.lines([x.reading for x in read_files], parse=parse):
        say(line)
    read_observers = name_prompts(x.observer for x in read_files)
    sessions = same_images.shorten_ids(same_images.join_sessions(read_observers))
    named = sorted(_make_unique(sessions), key=lambda x: (x.name, x.dataset))
    for line in same_images.describe_unshared(named):
        say(line)
    return named


class _File(NamedTuple):
    """A file of decisions, and its folder below the path that was read ("" for none)."""

    path: str
    group: str


def _grouped(
    path: str, *, columns: Mapping[str, str], say: console.Say
) -> Iterable[_File]:
    """Yield the files at a path; arguments: see `decision_files`."""
    for file in decision_files(path, columns=columns, say=say):
        folder = os.path.dirname(file)
        group = os.path.relpath(folder, path) if os.path.isdir(path) else "."
        yield _File(file, "" if group == "." else group.replace(os.sep, "/"))


class _Read(NamedTuple):
    """An observer of a file, and how its decisions were read."""

    observer: observers.Observer
    reading: reading_notes.Reading


class Cells(NamedTuple):
    """The cells of a row that are read, "" for a column that the table lacks."""

    where: str
    image: str
    decision: str
    raw: str
    observer: str
    dataset: str
    label: str
    texture: str
    condition: str
    options: str
    prompt: str


class _Table(NamedTuple):
    """The rows of one file that are about one set, by one observer with one prompt."""

    file: _File
    stem: str  # The file's name without its ending.
    sha256: str
    roles: column_names.Roles
    observer: str
    dataset: str  # As the file or the user names it; "" if unknown.
    prompt: str  # Of the table's column; "" without one.
    cells: Sequence[Cells]
    rows: Sequence[stimulus_names.Row]  # Of the same rows.

    @property
    def own_set(self) -> str:
        """Name of the set, if it is none of the published; "" otherwise."""
        return stimulus_names.own_set(self.rows, stem=self.stem, dataset=self.dataset)


def _own_classes(opened: Sequence[_Table]) -> dict[str, list[str]]:
    """Return the classes of sets that are not published, over all tables, by set.

    Classes are those of labels and of textures.
    """
    classes: dict[str, set[str]] = {}
    for table in opened:
        if table.own_set:
            names = {stimulus_names.label_of(row) for row in table.rows}
            names |= {row.texture.strip() for row in table.rows}
            drawn = (drawn_options(cell) or {} for cell in table.cells)
            names.update(*(options.values() for options in drawn))
            classes.setdefault(table.own_set, set()).update(names - {""})
    return {name: sorted(labels) for name, labels in classes.items()}


def _read_tables(file: _File, columns: Mapping[str, str], dataset: str) -> list[_Table]:
    """Return the rows of one file by observer and set; arguments: see `read`."""
    cells, roles = read_cells(file.path, columns)
    stem = os.path.basename(file.path).rpartition(".")[0]
    by_set = collections.defaultdict(list)
    for row, prompt in zip(cells, prompts_of(cells), strict=True):
        set_name = stimulus_names.set_name(dataset or row.dataset)
        by_set[row.observer.strip(), set_name, prompt].append(row)
    with open(file.path, "rb") as opened:
        sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
    return [
        _Table(
            file=file,
            stem=stem,
            sha256=sha256,
            roles=roles,
            observer=name or observer_name(stem),
            dataset=set_name,
            prompt=prompt,
            cells=set_rows,
            rows=[
                stimulus_names.Row(
                    row.where, row.image, row.label, row.condition, row.texture
                )
                for row in set_rows
            ],
        )
        for (name, set_name, prompt), set_rows in by_set.items()
    ]


def prompts_of(cells: Sequence[Cells]) -> list[str]:
    """Return the prompt of each row, by which an observer's rows are told apart; "" for none.

    Rows of an observer with several prompts are those of several prompts if an image has two of
    them. Otherwise each image has a question of its own, such as one with drawn options, and the
    prompt of these rows is "".
    """
    images = collections.Counter(
        (row.observer.strip(), row.dataset, row.condition, row.image) for row in cells
    )
    prompts: dict[str, set[str]] = {}
    repeated: set[str] = set()  # Observers that were asked about an image again.
    for row in cells:
        name = row.observer.strip()
        prompts.setdefault(name, set()).add(" ".join(row.prompt.split()))
        if images[name, row.dataset, row.condition, row.image] > 1:
            repeated.add(name)
    factors = {
        name: name in repeated or len(values) == 1 for name, values in prompts.items()
    }
    return [
        " ".join(row.prompt.split()) if factors[row.observer.strip()] else ""
        for row in cells
    ]


def read_cells(
    path: str, columns: Mapping[str, str]
) -> tuple[list[Cells], column_names.Roles]:
    """Return the rows of a file, and its columns.

    columns: result of `columns.parse`. ValueError for a damaged file, for a table without rows, and
    as `columns.recognise` raises.
    """
    table = table_rows.read(path)
    where, header = next(table, (f"{path}:1", []))
    if not header:
        raise ValueError(f"{path}: must hold decisions, got none; the file is empty")
    roles = column_names.recognise(where, header, columns)
    names = dataclasses.asdict(roles)
    place = {role: header.index(name) for role, name in names.items() if name}
    fields = [place.get(field, -1) for field in Cells._fields[1:]]
    cells = [
        Cells(where, *(row[i] if i >= 0 else "" for i in fields))
        for where, row in table
    ]
    if not cells:
        raise ValueError(f"{path}: must hold decisions, got a header alone; check it")
    return cells, roles


def drawn_options(row: Cells) -> Mapping[str, str] | None:
    """Return the class by letter that a row names for its question.

    {}: the question had no options. None: the row does not say. ValueError, beginning with the row's place, for a cell of another form.
    """
    try:
        return letter_options.parse_cell(row.options, "the drawn options")
    except ValueError as error:
        raise ValueError(f"{row.where}: {error}") from None


def _make_observer(
    table: _Table,
    *,
    parse: str,
    options: Mapping[str, str],
    further_classes: Sequence[str],
) -> _Read:
    """Return the observer of a table.

    parse, options: see `read`. further_classes: labels and textures of the set in all tables.
    """
    cells, roles = table.cells, table.roles
    stimuli = stimulus_names.recognise(
        table.rows,
        stem=table.stem,
        dataset=table.dataset,
        classes=[*options.values(), *further_classes],
    )
    _refuse_repeated(stimuli.images, cells)
    set_options = letter_options.of_classes(options or None, stimuli.classes)
    letters = set_options or parsing.letter_options(stimuli.classes)
    drawn = [row_options(row, stimuli.classes) for row in cells]
    options_by_row = [letters if x is None else x for x in drawn]
    is_drawn = any(row.options.strip() for row in cells)
    decision, reading = _decide(
        cells, stimuli, roles, parse=parse, options=options_by_row
    )
    reading = dataclasses.replace(
        reading,
        path=table.file.path,
        options=letters,
        has_own_options=set_options is not None,
        has_drawn_options=is_drawn,
        altered=_altered(stimuli),
    )
    order = sorted(range(len(cells)), key=stimuli.images.__getitem__)
    texture = stimuli.texture
    observer = observers.Observer(
        name=table.observer,
        dataset=stimuli.dataset,
        classes=stimuli.classes,
        images=tuple(stimuli.images[i] for i in order),
        label=stimuli.label[order],
        texture=None if texture is None else texture[order],
        decision=decision[order],
        responses=tuple(cells[i].raw for i in order) if roles.raw else None,
        parser=parsing.VERSION if reading.num_parsed else "",
        options=set_options,
        drawn_options=tuple(options_by_row[i] for i in order) if is_drawn else None,
        factors=_factors(table),
        path=table.file.path,
        sha256=table.sha256,
    )
    return _Read(observer, reading)


def row_options(row: Cells, classes: Sequence[str]) -> Mapping[str, str] | None:
    """Return the options that a row names, with the classes as the set spells them.

    {}: the question had no options. None: the row does not say. ValueError, beginning with the row's place, for a class that the set does not have.
    """
    try:
        return letter_options.of_classes(drawn_options(row), classes)
    except ValueError as error:
        prefix = "" if str(error).startswith(row.where) else f"{row.where}: "
        raise ValueError(f"{prefix}{error}") from None


def _altered(stimuli: stimulus_names.Stimuli) -> tuple[str, ...]:
    """Return the images that are no published cue conflicts, if at least half of the rows are."""
    if stimuli.dataset != stimulus_names.CUE_CONFLICT:
        return ()
    unpublished = {*stimuli.images} - {*data_tables.cue_conflicts()}
    return (
        tuple(sorted(unpublished))
        if 2 * len(unpublished) <= len(stimuli.images)
        else ()
    )


def _refuse_repeated(images: Sequence[str], cells: Sequence[Cells]) -> None:
    """Raise ValueError if an image has two rows."""
    first_row: dict[str, str] = {}
    for image, row in zip(images, cells, strict=True):
        if image in first_row:
            raise ValueError(
                f"{row.where}: an image must be decided about once, got "
                f"{errors.abbreviate(row.image)} again after {first_row[image]}; leave one of "
                "them out"
            )
        first_row[image] = row.where


def _decide(
    cells: Sequence[Cells],
    stimuli: stimulus_names.Stimuli,
    roles: column_names.Roles,
    *,
    parse: str,
    options: Sequence[Mapping[str, str]],
) -> tuple[Int[np.ndarray, "n"], reading_notes.Reading]:
    """Return the class id or NO_ANSWER of each row, and counts of how the rows were read.

    options: of each row. The column of decisions is parsed where it has other words and the table
    has raw words.
    """
    classes = stimuli.classes
    texts = [row.decision if roles.decision else row.raw for row in cells]
    ids = {name: number for number, name in enumerate(classes)}
    id_of = {text: _published_id(text, ids, classes) for text in set(texts)}
    has_words = not roles.decision and None in id_of.values()
    parses_all = bool(roles.raw) and (parse == "raw" or has_words)
    has_both = bool(roles.raw and roles.decision)
    decisions: list[int] = []
    parsed_rows: list[parsing.Parsed] = []
    parsed_by_words: dict[tuple[str, str], parsing.Parsed] = {}
    num_labels = num_named = 0
    for row, text, letters in zip(cells, texts, options, strict=True):
        decision = None if parses_all else id_of[text]
        if decision is None and not roles.raw:
            _refuse_class(row.where, text, roles.decision, stimuli)
        if decision is None:
            key = row.raw, row.options
            if key not in parsed_by_words:
                parsed_by_words[key] = parsing.parse(row.raw, letters, classes)
            parsed = parsed_by_words[key]
            parsed_rows.append(parsed)
            decision = ids[parsed.decision] if parsed.decision else observers.NO_ANSWER
        elif has_both and decision != observers.NO_ANSWER:
            num_labels += 1
            num_named += reading_notes.names_label(row.raw, classes[decision], letters)
        decisions.append(decision)
    counts = collections.Counter(parsed.letter for parsed in parsed_rows)
    reading = reading_notes.Reading(
        path="",
        column=roles.raw,
        num_rows=len(cells),
        num_parsed=len(parsed_rows),
        num_without=sum(not parsed.decision for parsed in parsed_rows),
        num_letters=counts["alone"],
        num_agree=counts["agrees"],
        num_differ=counts["differs"],
        num_labels=num_labels,
        num_named=num_named,
    )
    return np.array(decisions, np.int32), reading


def _refuse_class(
    where: str, text: str, column: str, stimuli: stimulus_names.Stimuli
) -> None:
    """Raise ValueError for a cell of a column of decisions that is neither a class nor no answer."""
    close = errors.nearest(text, stimuli.classes, cutoff=0.7)
    hints = [f"did you mean {close!r}?"] if close else []
    if len(stimuli.classes) <= 64:
        hints.append(f"Known: {', '.join(stimuli.classes)}")
    remedy = " ".join(hints)
    if len(text.split()) > 1 or len(text.strip()) == 1:
        remedy += f"; if these are a model's own words, --columns=raw={column}"
    elif stimuli.dataset not in stimulus_names.PUBLISHED_SETS:
        remedy += "; if the set has further classes, name all of them by --options"
    errors.refuse(
        where,
        "be one of the set's classes or a word for no answer, such as na",
        text,
        remedy.removeprefix("; "),
        name=column,
    )


def _published_id(
    text: str, ids: Mapping[str, int], classes: tuple[str, ...]
) -> int | None:
    """Return the class id of a cell, or NO_ANSWER; None if it is neither a class nor no answer."""
    name = parsing.match_class(text, classes)
    if name:
        return ids[name]
    return observers.NO_ANSWER if parsing.is_no_answer(text) else None


def observer_name(stem: str) -> str:
    """Return the name of an observer from its file's name.

    stem: the file's name without its suffix; a timestamp, the set and the session are removed.
    """
    name = _TIMESTAMP.sub("", stem)
    dataset = stimulus_names.longest_begin(name, stimulus_names.PUBLISHED_SETS)
    name = same_images.SESSION.sub(
        "", name.removeprefix(f"{dataset}_") if dataset else name
    )
    return name or stem


def _factors(table: _Table) -> dict[str, str]:
    """Return the factors of an observer, see `observers.Observer`.

    The prompt is that of the table's column, else of the file's name. The prompt "None" is "none":
    pandas reads "None" in a table as a missing value.
    """
    name, file = table.observer, table.file
    match = None if table.prompt else _PROMPT.search(table.stem)
    folder = os.path.basename(os.path.dirname(os.path.abspath(file.path)))
    prompt = match[1] if match else table.prompt
    return {
        "model": name.removesuffix(match[0]) if match else name,
        "task": folder if folder in TASKS else "",
        "prompt": "none" if prompt == "None" else prompt,
        "group": file.group,
    }


def name_prompts(
    read_observers: Iterable[observers.Observer],
) -> list[observers.Observer]:
    """Return the observers, those of one name with several prompts renamed "name, prompt".

    Long prompts are cut, and numbered if they begin alike.
    """
    by_name: dict[str, dict[str, None]] = {}
    read_observers = [*read_observers]
    for observer in read_observers:
        prompt = observer.factors.get("prompt", "")
        by_name.setdefault(observer.name, {})[prompt] = None
    labels = {name: short_prompts([*values]) for name, values in by_name.items()}
    named = []
    for observer in read_observers:
        prompt = observer.factors.get("prompt", "")
        if prompt and len(by_name[observer.name]) > 1:
            label = labels[observer.name][prompt]
            observer = dataclasses.replace(observer, name=f"{observer.name}, {label}")
        named.append(observer)
    return named


def short_prompts(prompts: Sequence[str]) -> dict[str, str]:
    """Return a short and unique text for each of several prompts, by prompt."""
    labels: dict[str, str] = {}
    for prompt in prompts:
        is_long = len(prompt) > _MAX_PROMPT
        label = start = f"{prompt[:_MAX_PROMPT]} ..." if is_long else prompt
        for number in itertools.count(2):
            if label not in labels.values():
                break
            label = f"{start} ({number})"
        labels[prompt] = label
    return labels


def _make_unique(read_observers: list[observers.Observer]) -> list[observers.Observer]:
    """Return the observers with names that are unique on each set.

    Observers of one name in several folders are named "name (folder)". ValueError if one
    folder has two files of an observer on a set.
    """
    by_name = collections.defaultdict(list)
    for observer in read_observers:
        by_name[observer.name].append(observer)
    named = []
    for name, members in by_name.items():
        folder_paths = {os.path.dirname(os.path.abspath(x.path)) for x in members}
        folders = _short_folders(folder_paths)
        first_path: dict[tuple[str, str], str] = {}
        for observer in members:
            folder = os.path.dirname(os.path.abspath(observer.path))
            key = folder, observer.dataset
            if key in first_path:
                raise ValueError(
                    f"{observer.path}: an observer must have one file on the set "
                    f"{observer.dataset}, got {name!r} again after {first_path[key]}; leave one "
                    "of them out, or put it into another folder"
                )
            first_path[key] = observer.path
            if len(folders) > 1:
                observer = dataclasses.replace(
                    observer, name=f"{name} ({folders[folder]})"
                )
            named.append(observer)
    return named


def _short_folders(paths: Iterable[str]) -> dict[str, str]:
    """Return, by path, the shortest end of each folder's path that no other has."""
    folders = {path: path.strip(os.sep).split(os.sep) for path in paths}
    for count in range(1, max(map(len, folders.values())) + 1):
        ends = {path: "/".join(names[-count:]) for path, names in folders.items()}
        if len({*ends.values()}) == len(ends):
            break
    return ends
