"""What a report is, sections of text, tables and figures, and how it is written.

A report is a module that computes frames and declares a Report of them. Here alone is it
known how a page looks, which files lie beside it, and what JSON cannot say.
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
    """A paragraph, or the items of a list."""

    words: str | Sequence[str]


@dataclasses.dataclass(frozen=True)
class Links:
    """A list of pages that lie below this one, by what they are called."""

    pages: Mapping[str, str]

    def __post_init__(self):
        for page in self.pages.values():
            _check_inside(page)


@dataclasses.dataclass(frozen=True)
class Folded:
    """Text as it stands, such as a config, which opens under its title."""

    title: str
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class Figure:
    """A figure; its files have its name.

    source: the figure, or a function that draws it. The latter is called where files are
    made, which several processes may share.
    """

    name: str
    caption: str
    source: plots.Figure | Callable[[], plots.Figure]

    @functools.cached_property
    def drawn(self) -> plots.Figure:
        return self.source() if callable(self.source) else self.source

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()


Block = Text | Links | Folded | tables.Table | Figure


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a page under a title; one without blocks is left out.

    A folded one shows its title and opens on a click, or where a link leads into it. On
    paper it is left out while it is closed, unless `is_printed`.
    """

    id: str
    title: str
    blocks: Iterable[Block]
    is_folded: bool = False
    is_printed: bool = True

    @property
    def contents(self) -> str:
        """Return how many figures and tables the section has, such as "1 figure, 2 tables"."""
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
    """A page, and what lies beside it.

    `results` is what results.json says beside answer, warnings and the list of files: mappings,
    sequences, numbers, frames (as records), text; what is not finite or not known is null.
    `frames` are tables that the page does not show, by name; `files` others by path.
    """

    title: str  # Of the browser's tab.
    heading: str
    subtitle: str
    answer: tuple[str, str]  # In one sentence, and what it rests on.
    highlights: Sequence[str] = ()  # Sentences that a command prints after the answer.
    points: Sequence[str] = ()  # The page's list in place of what the answer rests on.
    warnings: Sequence[str] = ()  # What may make the answer wrong, on top of the page.
    facts: Mapping[str, object]
    sections: Sequence[Section]
    results: Mapping[str, Any]
    source: str = ""  # What it is made from, in sentences for the foot of the page.
    frames: Mapping[str, pd.DataFrame] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)


Placed = Iterable[tuple[str, Block | None]]  # Blocks behind the sections they stand in.


def sections(
    titles: Mapping[str, str],
    *placed: Placed,
    unfolded: Collection[str] | None = None,
    printed: Collection[str] = (),
) -> list[Section]:
    """Return sections in the order of `titles`, with the blocks that are placed in them.

    titles: by id. unfolded: ids of sections that are open; None if all are. printed: ids of
    folded sections that are on paper even while they are closed.
    """
    blocks: dict[str, list[Block]] = {name: [] for name in titles}
    for part in placed:
        for name, block in part:
            if block is not None:
                blocks[name].append(block)
    return [
        Section(
            name,
            titles[name],
            blocks[name],
            is_folded=unfolded is not None and name not in unfolded,
            is_printed=unfolded is None or name in (*unfolded, *printed),
        )
        for name in titles
    ]


def write(
    report: Report, out: pathlib.Path, *, figures: Collection[str] = ("svg",)
) -> str:
    """Write the page and all beside it; return the line that says so.

    figures: forms of the figures' files, of "svg", "pdf" and "png"; the page needs svg.
    What cannot be drawn is known before anything is written.
    """
    return save(render(report, figures=figures), out)


def save(files: Mapping[str, str | bytes], out: pathlib.Path) -> str:
    """Write the files of a report, each whole or not at all; return the line that says so.

    Those of an earlier report that this one lacks are removed. Raises ValueError, before
    anything is written, where a file is there that no report wrote.
    """
    outputs.check_report_files(out, files)
    old = outputs.removable(out, files)
    claim = files["results.json"]
    if lost := outputs.report_files(out) - files.keys():
        claim = _claim(claim, lost)
    for name, data in [("results.json", claim), *files.items()]:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        files_lib.write(out / name, data, lasting=False)
    for path in old:
        path.unlink(missing_ok=True)
    return f"written: {out / 'index.html'}"


def _claim(text: str | bytes, earlier: frozenset[str]) -> str:
    """Return results.json as it is while other files are written: with those of before.

    A report that a kill cuts short is thus known as one, and can be written again.
    """
    tree = json.loads(text)
    return to_json({**tree, "files": sorted({*tree["files"], *earlier})})


def render(
    report: Report, *, figures: Collection[str] = ("svg",)
) -> dict[str, str | bytes]:
    """Return the files of a report by their paths.

    figures: forms of the figures' files, of "svg", "pdf" and "png"; the page needs svg.
    """
    if unknown := {*figures} - {*cli.FIGURES}:
        raise ValueError(
            f"figures: must be one or more of {', '.join(cli.FIGURES)}, got {sorted(unknown)}; "
            "leave these out"
        )
    forms = [form for form in cli.FIGURES if form in {"svg", *figures}]
    names: set[str] = set()
    kept = []
    for one in report.sections:
        filled = (x for x in one.blocks if not (isinstance(x, Text) and not x.words))
        if blocks := [_named(block, names) for block in filled]:
            kept.append(dataclasses.replace(one, blocks=blocks))
    report = dataclasses.replace(report, sections=kept)
    blocks = [block for section in kept for block in section.blocks]
    drawn = [block for block in blocks if isinstance(block, Figure)]
    files: dict[str, str | bytes] = {}
    with contextlib.closing(_Drawing(drawn, forms)) as drawing:
        for block in blocks:
            if isinstance(block, tables.Table):
                files |= {f"tables/{name}": text for name, text in tables.files(block)}
        for name, frame in report.frames.items():
            assert f"tables/{name}.csv" not in files, name
            files[f"tables/{name}.csv"] = tables.to_csv(frame)
            files[f"tables/{name}.parquet"] = tables.to_parquet(frame)
        files |= drawing.finish()
    svgs = {figure.name: files[f"figures/{figure.name}.svg"] for figure in drawn}
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
    page = _template().render(report=report, svgs=svgs, figures=_forms_in_words(forms))
    files["index.html"] = _shown(page)
    return files


def _shown(page: str) -> str:
    """Return a page whose names show control letters and marks of direction as codes."""
    lines = (line.split("\t") for line in page.split("\n"))
    return "\n".join("\t".join(map(messages.printable, parts)) for parts in lines)


def _forms_in_words(forms: Sequence[str]) -> str:
    """Return in which forms the figures lie beside the page, and how to get the others."""
    capitals = {form: form.upper() for form in cli.FIGURES}
    text = f"as {tables.join([capitals.pop(form) for form in forms])}"
    if capitals:
        flag = f"--figures={','.join(capitals)}"
        text += f" (the flag {flag} adds {tables.join([*capitals.values()])})"
    return text


class _Drawing:
    """Figures that are being drawn by forks of this process, and by itself in `finish`.

    Each process takes the next figure, from the last to the first: those of all epochs are
    the largest and come last. Nothing is forked where JAX is loaded: a fork has no threads
    but the one that calls it, which is no harm to drawing, but to JAX.
    """

    def __init__(self, figures: Sequence[Figure], forms: Collection[str]) -> None:
        self._figures, self._forms = figures, forms
        receiver, sender = os.pipe()
        self._numbers = io.FileIO(receiver)
        with open(sender, "wb") as tokens:
            tokens.write(b"".join(map(_to_token, range(len(figures)))))
        forks = sys.platform == "linux" and "jax" not in sys.modules
        count = len(os.sched_getaffinity(0)) if forks else 1
        self._pipes = [self._fork() for _ in range(1, min(count, len(figures)))]

    def _fork(self) -> multiprocessing.connection.Connection:
        """Start a process that draws; return the pipe that brings its files."""
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Of those threads.
            context.Process(target=self._send, args=(sender,), daemon=True).start()
        sender.close()
        return receiver

    def _send(self, pipe: multiprocessing.connection.Connection) -> None:
        with contextlib.suppress(Exception):
            pipe.send(self._draw_next())

    def _draw_next(self) -> dict[int, dict[str, str | bytes]]:
        """Draw figures until none is left; return the files of each by its number."""
        files = {}
        while token := self._numbers.read(_TOKEN_BYTES):
            number = len(self._figures) - 1 - int.from_bytes(token)
            files[number] = _draw(self._figures[number], self._forms)
        return files

    def close(self) -> None:
        """Let go of the list of figures; forks end by themselves."""
        self._numbers.close()

    def finish(self) -> dict[str, str | bytes]:
        """Return the files of all figures, in the order of the figures."""
        files = self._draw_next()
        for pipe in self._pipes:
            with contextlib.suppress(EOFError):
                files |= pipe.recv()
        for number, figure in enumerate(self._figures):
            if number not in files:  # A fork failed, and so says why here.
                files[number] = _draw(figure, self._forms)
        return {
            path: content
            for number in range(len(self._figures))
            for path, content in files[number].items()
        }


_TOKEN_BYTES = 4


def _to_token(number: int) -> bytes:
    return number.to_bytes(_TOKEN_BYTES)


def _draw(figure: Figure, forms: Collection[str]) -> dict[str, str | bytes]:
    """Return the files of a figure by their paths."""
    writers = {"svg": plots.to_svg, "pdf": plots.to_pdf, "png": plots.to_png}
    return {
        f"figures/{figure.name}.{form}": writers[form](figure.drawn) for form in forms
    }


def _check_inside(path: str) -> None:
    """Refuses what is no file below the page."""
    if not re.fullmatch(r"[\w][\w.+-]*(/[\w][\w.+-]*)*", path):
        raise ValueError(f"a file of a report: must lie in its folder, got {path!r}")


def _named(block: Block, names: set[str]) -> Block:
    """Gives a table or a figure a name that a file can have, and no other block has."""
    if not isinstance(block, tables.Table | Figure):
        return block
    name = plain = re.sub(r"[^\w+-]+", "-", block.name).strip("-") or "unnamed"
    count = 1
    while (kind := f"{type(block).__name__}/{name}") in names:
        count += 1
        name = f"{plain}-{count}"
    names.add(kind)
    return block if name == block.name else dataclasses.replace(block, name=name)


def to_json(tree: Any) -> str:
    """Gives strict JSON: null for what is not finite or not known."""
    text = json.dumps(_plain(tree), indent=1, allow_nan=False, ensure_ascii=False)
    return text + "\n"


_SEQUENCES = list | tuple | set | frozenset | pd.Series | pd.Index | ValuesView


def _plain(tree: Any) -> Any:
    """The same of what JSON knows."""
    if isinstance(tree, pd.DataFrame):
        tree = tree.to_dict("records")
    if isinstance(tree, Mapping):
        return {str(key): _plain(value) for key, value in tree.items()}
    if isinstance(tree, _SEQUENCES):
        return [_plain(value) for value in tree]
    if isinstance(tree, np.ndarray | np.generic):
        return _plain(tree.tolist())
    infinite = isinstance(tree, float) and not math.isfinite(tree)
    if tree is None or tree is pd.NA or tree is pd.NaT or infinite:
        return None
    if isinstance(tree, float | str | int):
        return tree
    if isinstance(tree, os.PathLike):
        return os.fspath(tree)
    raise TypeError(f"results.json: has no form for a {type(tree).__name__}")


@functools.cache
def _template() -> jinja2.Template:
    how = dict(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    loader = jinja2.FileSystemLoader(FOLDER)
    how |= dict(loader=loader, undefined=jinja2.StrictUndefined)
    environment = jinja2.Environment(**how)
    for kind in (Text, Links, Folded, Figure, tables.Table):
        is_kind = lambda block, kind=kind: isinstance(block, kind)
        environment.tests[kind.__name__.lower()] = is_kind
    environment.filters["inline"] = plots.inline
    script = environment.get_template("page.js").render()
    environment.globals["policy"] = content_security_policy(script)
    return environment.get_template("page.html.j2")


def content_security_policy(script: str) -> str:
    """Return what a page may do: show itself, and run its one script, by its hash.

    Nothing is loaded from anywhere. Styles stay open, as figures and tables have them in
    attributes, which no hash covers; pictures are part of the page.
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
