"""Classes for a report's page and its blocks, and the functions that write the report's files.

The module of a report computes frames and returns a `Report`. This module defines the layout of
the page, the names of the files and the conversion to JSON.
"""

import base64
import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import re
import sys
import warnings
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
    ValuesView,
)
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from jbias.report import plots, tables
from jbias.runtime import cli, messages, outputs
from jbias.runtime import files as files_lib

FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph (a string), or a list with one item per string."""

    words: str | Sequence[str]


@dataclasses.dataclass(frozen=True)
class Links:
    """A list of links to pages in the folder of the report; ValueError for other paths."""

    pages: Mapping[str, str]  # Path of each page, relative to the report, by title.

    def __post_init__(self):
        for page in self.pages.values():
            _check_inside(page)


@dataclasses.dataclass(frozen=True)
class Folded:
    """Preformatted text, such as a config, that is hidden until a click on its title."""

    title: str
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class Figure:
    """A figure with its caption; `name` is the name of its files.

    source: the figure, or a function that draws the figure. The function is called when the files
    are written, possibly in another process.
    """

    name: str
    caption: str
    source: plots.Figure | Callable[[], plots.Figure]

    @functools.cached_property
    def drawn(self) -> plots.Figure:
        """The figure as a matplotlib figure; it is drawn on first use."""
        return self.source() if callable(self.source) else self.source

    @property
    def title(self) -> str:
        """The name in words, for screen readers."""
        return self.name.replace("_", " ").capitalize()


@dataclasses.dataclass(frozen=True)
class PairMenus:
    """Two menus of names that show the sentence of the chosen pair.

    Without scripts, the page has the sentences in a list that is hidden until a click on its title.
    """

    title: str  # Of the list.
    question: str  # In front of the menus.
    names: Sequence[str]
    sentences: Sequence[
        str
    ]  # Of each pair of names, in the order of itertools.combinations.

    def __post_init__(self):
        assert len(self.sentences) == math.comb(len(self.names), 2), self.title


Block = Text | Links | Folded | PairMenus | tables.Table | Figure
Blocks = Iterable[Block | None]  # Of a section; None is left out.


@dataclasses.dataclass(frozen=True)
class Section:
    """A titled group of blocks of the page; sections without blocks are left out.

    A folded section shows its title, and opens on a click on the title or on a link to the section.
    On paper, a closed section is left out unless `is_printed`.
    """

    id: str
    title: str
    blocks: Iterable[Block]
    is_folded: bool = False
    is_printed: bool = True

    @property
    def contents(self) -> str:
        """The numbers of figures and tables in words, such as "1 figure, 2 tables"; "" for none."""
        kinds = {"figure": Figure, "table": tables.Table}
        sizes = {
            noun: sum(isinstance(block, kind) for block in self.blocks)
            for noun, kind in kinds.items()
        }
        return ", ".join(
            tables.count(size, noun) for noun, size in sizes.items() if size
        )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """Content of a report: the page, results.json and further files.

    `results` has the entries of results.json without headline, basis (the two entries of `answer`),
    warnings and files, which `render` adds: mappings, sequences, numbers, frames (as records) and
    text; values that are missing or not finite become null. `frames` are tables that the page does
    not show, by name.
    """

    title: str  # Title of the browser's tab.
    heading: str
    subtitle: str
    answer: tuple[str, str]  # (headline, sentences on the data and tests).
    highlights: Sequence[
        str
    ] = ()  # Sentences that a command prints after the headline.
    points: Sequence[str] = ()  # List on the page in place of answer[1].
    warnings: Sequence[str] = ()  # Warnings on top of the page.
    facts: Mapping[str, object]  # Cells of the table at the top, by label.
    sections: Sequence[Section]
    results: Mapping[str, Any]
    source: str = ""  # Sentences on the source of the data, for the foot of the page.
    frames: Mapping[str, pd.DataFrame] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str | bytes] = dataclasses.field(
        default_factory=dict
    )  # By path.


@dataclasses.dataclass(frozen=True)
class SectionMaker:
    """A section of a page before it has data: id, title, and the function that makes its blocks.

    make: function of the data of the page that returns blocks. A page has one list of such
    sections, in their order. is_folded, is_printed: see `Section`.
    """

    id: str
    title: str
    make: Callable[[Any], Blocks]
    is_folded: bool = False
    is_printed: bool = True


def make_sections(makers: Iterable[SectionMaker], data: Any) -> list[Section]:
    """Return the sections of a page, in the order of `makers`; a section may have no blocks.

    data: argument of every function `SectionMaker.make`.
    """
    return [
        Section(
            maker.id,
            maker.title,
            [block for block in maker.make(data) if block is not None],
            is_folded=maker.is_folded,
            is_printed=maker.is_printed,
        )
        for maker in makers
    ]


def write(
    report: Report, out: pathlib.Path, *, figures: Collection[str] = ("svg",)
) -> str:
    """Write the page and all files of a report to the folder `out`; return the line to print.

    figures: file formats of figures, of "svg", "pdf" and "png"; svg is always included. All
    figures are drawn before any file is written. Raises ValueError as `render` and `save` do.
    """
    return save(render(report, figures=figures), out)


def save(files: Mapping[str, str | bytes], out: pathlib.Path) -> str:
    """Write the files of a report, each atomically, to the folder `out`; return the line to print.

    The line is "written: " and the path of index.html. Tables and figures of an earlier report that
    are not in `files` are removed. Raises ValueError, before anything is written, if a path is a
    link, a folder or a file that no report wrote. files: content by path relative to `out`, with
    results.json.
    """
    outputs.check_report_files(out, files)
    obsolete = outputs.removable(out, files)
    first_results = files["results.json"]
    earlier_files = outputs.report_files(out) - files.keys()
    if earlier_files:
        first_results = _with_files(first_results, earlier_files)
    for name, data in [("results.json", first_results), *files.items()]:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        files_lib.write(out / name, data, lasting=False)
    for path in obsolete:
        path.unlink(missing_ok=True)
    return f"written: {out / 'index.html'}"


def _with_files(results: str | bytes, earlier_files: frozenset[str]) -> str:
    """Return results.json with the files of an earlier report added to its list of files.

    results: content of results.json. earlier_files: paths relative to the folder of the report.

    The returned version is written before the other files. If the process is killed meanwhile, all
    files are listed as files of a report, so the report can be written again.
    """
    tree = json.loads(results)
    return to_json({**tree, "files": sorted({*tree["files"], *earlier_files})})


def render(
    report: Report, *, figures: Collection[str] = ("svg",)
) -> dict[str, str | bytes]:
    """Return the content of the files of a report, by path relative to its folder.

    Paths: index.html, results.json, tables/ (tables of the page as `tables.files`, `report.frames`
    as CSV and Parquet), figures/<name>.<format>, and the paths of `report.files`. figures: file
    formats of figures, of "svg", "pdf" and "png"; svg is always included. Raises ValueError for
    another format, and for a path of `report.files` outside the folder.
    """
    unknown = {*figures} - {*cli.FIGURES}
    if unknown:
        raise ValueError(
            f"figures: must be one or more of {', '.join(cli.FIGURES)}, got {sorted(unknown)}; "
            "remove the unknown formats"
        )
    formats = [name for name in cli.FIGURES if name in {"svg", *figures}]
    report = dataclasses.replace(report, sections=_filled_sections(report.sections))
    blocks = [block for section in report.sections for block in section.blocks]
    drawn_figures = [block for block in blocks if isinstance(block, Figure)]
    files: dict[str, str | bytes] = {}
    with contextlib.closing(_Drawing(drawn_figures, formats)) as drawing:
        for block in blocks:
            if isinstance(block, tables.Table):
                files |= {f"tables/{name}": text for name, text in tables.files(block)}
        for name, frame in report.frames.items():
            assert f"tables/{name}.csv" not in files, name
            files[f"tables/{name}.csv"] = tables.to_csv(frame)
            files[f"tables/{name}.parquet"] = tables.to_parquet(frame)
        files |= drawing.finish()
    svgs = {
        figure.name: files[f"figures/{figure.name}.svg"] for figure in drawn_figures
    }
    for name in report.files:
        _check_inside(name)
    assert not files.keys() & report.files.keys(), files.keys() & report.files.keys()
    files |= report.files
    answer, basis = report.answer
    tree = {
        "headline": answer,
        "basis": basis,
        "warnings": list(report.warnings),
        **report.results,
    }
    tree["files"] = sorted([*files, "index.html", "results.json"])
    files["results.json"] = to_json(tree)
    page = _template().render(
        report=report, svgs=svgs, figures=_formats_in_words(formats)
    )
    files["index.html"] = _without_controls(page)
    return files


def _filled_sections(sections: Sequence[Section]) -> list[Section]:
    """Return sections without empty texts, with unique names of tables and figures.

    Sections without a block are left out.
    """
    names: set[str] = set()
    filled = []
    for section in sections:
        blocks = [
            _named(block, names)
            for block in section.blocks
            if not (isinstance(block, Text) and not block.words)
        ]
        if blocks:
            filled.append(dataclasses.replace(section, blocks=blocks))
    return filled


def _without_controls(page: str) -> str:
    """Return HTML with control characters and marks of text direction replaced by visible codes."""
    lines = (line.split("\t") for line in page.split("\n"))
    return "\n".join("\t".join(map(messages.printable, parts)) for parts in lines)


def _formats_in_words(formats: Sequence[str]) -> str:
    """Return a phrase with the written file formats of figures, and the flag for other formats.

    Example: "as SVG and PDF (the flag --figures=png adds PNG)".
    """
    unwritten = [name for name in cli.FIGURES if name not in formats]
    text = f"as {tables.join([name.upper() for name in formats])}"
    if unwritten:
        flag = f"--figures={','.join(unwritten)}"
        names = tables.join([name.upper() for name in unwritten])
        text += f" (the flag {flag} adds {names})"
    return text


class _Drawing:
    """A pool of processes that draw the figures of a report: forks, and this process in `finish`.

    Each process takes the next figure, from the last to the first, because figures over all
    epochs are the largest and come last. If JAX is loaded, no process is forked: a fork has
    only the calling thread, and JAX needs several threads.
    """

    def __init__(self, figures: Sequence[Figure], formats: Collection[str]) -> None:
        self._figures, self._formats = figures, formats
        receiver, sender = os.pipe()
        self._numbers = io.FileIO(receiver)
        with open(sender, "wb") as tokens:
            tokens.write(b"".join(map(_to_token, range(len(figures)))))
        forks = sys.platform == "linux" and "jax" not in sys.modules
        count = len(os.sched_getaffinity(0)) if forks else 1
        self._pipes = [self._fork() for _ in range(1, min(count, len(figures)))]

    def _fork(self) -> multiprocessing.connection.Connection:
        """Start a process that draws figures. Return the pipe that receives their files."""
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # On threads in forks.
            context.Process(target=self._send, args=(sender,), daemon=True).start()
        sender.close()
        return receiver

    def _send(self, pipe: multiprocessing.connection.Connection) -> None:
        """Draw figures in a fork and send their files through the pipe.

        An error ends the fork; `finish` draws the figure again and raises the error.
        """
        with contextlib.suppress(Exception):
            pipe.send(self._draw_next())

    def _draw_next(self) -> dict[int, dict[str, str | bytes]]:
        """Draw figures until none is left; return {figure number: {path: file content}}."""
        files = {}
        while token := self._numbers.read(_TOKEN_BYTES):
            number = len(self._figures) - 1 - int.from_bytes(token)
            files[number] = _draw(self._figures[number], self._formats)
        return files

    def close(self) -> None:
        """Close the pipe of figure numbers; forks end by themselves."""
        self._numbers.close()

    def finish(self) -> dict[str, str | bytes]:
        """Return the content of the files of all figures by path, in the order of the figures.

        If a figure cannot be drawn, its error is raised.
        """
        files = self._draw_next()
        for pipe in self._pipes:
            with contextlib.suppress(EOFError):
                files |= pipe.recv()
        for number, figure in enumerate(self._figures):
            if number not in files:  # A fork failed: draw again to raise its error.
                files[number] = _draw(figure, self._formats)
        return {
            path: content
            for number in range(len(self._figures))
            for path, content in files[number].items()
        }


_TOKEN_BYTES = 4  # Bytes of a figure number in the pipe.


def _to_token(number: int) -> bytes:
    """Return a figure number as `_TOKEN_BYTES` bytes."""
    return number.to_bytes(_TOKEN_BYTES)


def _draw(figure: Figure, formats: Collection[str]) -> dict[str, str | bytes]:
    """Return the content of the files of a figure by path, one file per format ("svg", ...)."""
    writers = {"svg": plots.to_svg, "pdf": plots.to_pdf, "png": plots.to_png}
    return {
        f"figures/{figure.name}.{name}": writers[name](figure.drawn) for name in formats
    }


def _check_inside(path: str) -> None:
    """Raise ValueError unless a path is relative and inside the folder of the report.

    Each part of the path must consist of letters, digits and the characters "_.+-", and start with
    a letter, a digit or "_".
    """
    if not re.fullmatch(r"[\w][\w.+-]*(/[\w][\w.+-]*)*", path):
        raise ValueError(
            f"a file of a report must be inside the report's folder, got {path!r}; use a "
            "relative path without '..'"
        )


def _named(block: Block, names: set[str]) -> Block:
    """Return a table or figure with a name that is unique and valid for files.

    Characters that are not letters, digits, "_", "+" or "-" become "-"; a repeated name gets "-2",
    "-3" and so on at its end; a table and a figure may share a name. Other blocks are returned
    unchanged. names: "Table/name" and "Figure/name" of names used so far, to which the name of this
    block is added.
    """
    if not isinstance(block, tables.Table | Figure):
        return block
    kind = type(block).__name__
    base = re.sub(r"[^\w+-]+", "-", block.name).strip("-") or "unnamed"
    name = base
    count = 1
    while f"{kind}/{name}" in names:
        count += 1
        name = f"{base}-{count}"
    names.add(f"{kind}/{name}")
    return block if name == block.name else dataclasses.replace(block, name=name)


def to_json(tree: Any) -> str:
    """Return nested mappings, sequences, frames and numbers as strict JSON text.

    Values that are missing or not finite become null. Raises TypeError for other types.
    """
    text = json.dumps(_plain(tree), indent=1, allow_nan=False, ensure_ascii=False)
    return text + "\n"


_SEQUENCES = list | tuple | set | frozenset | pd.Series | pd.Index | ValuesView


def _plain(tree: Any) -> Any:
    """Return nested mappings and sequences as types that JSON has; TypeError for other types.

    Keys become text; values that are missing or not finite become None.
    """
    if isinstance(tree, pd.DataFrame):
        tree = tree.to_dict("records")
    if isinstance(tree, Mapping):
        return {str(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, _SEQUENCES):
        return [_plain(value) for value in tree]
    if isinstance(tree, np.ndarray | np.generic):
        return _plain(tree.tolist())
    is_infinite = isinstance(tree, float) and not math.isfinite(tree)
    if tree is None or tree is pd.NA or tree is pd.NaT or is_infinite:
        return None
    if isinstance(tree, float | str | int):
        return tree
    if isinstance(tree, os.PathLike):
        return os.fspath(tree)
    raise TypeError(f"results.json: cannot store a {type(tree).__name__}")


@functools.cache
def _template() -> jinja2.Template:
    """Return the jinja2 template of the page, with the page's script and its security policy."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for kind in (Text, Links, Folded, PairMenus, Figure, tables.Table):
        is_kind = lambda block, kind=kind: isinstance(block, kind)
        environment.tests[kind.__name__.lower()] = is_kind
    environment.filters["inline"] = plots.inline
    script = environment.get_template("page.js").render()
    environment.globals["policy"] = content_security_policy(script)
    return environment.get_template("page.html.j2")


def content_security_policy(script: str) -> str:
    """Return the Content-Security-Policy of a page that may only run the given script.

    The page may not load anything. Inline styles are allowed, because figures and tables have
    style attributes, which a hash cannot cover; images are data URLs.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{digest}'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)
