"""Names with markup of HTML, LaTeX, Markdown, shells or spreadsheets are escaped."""

import html.parser
import json
import re

import pandas as pd
import pytest

from jbias import report
from jbias.report import document, tables
from jbias.runs import results
from tests.report import conftest, test_tables

NAMES = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "../../</style></title></pre><svg onload=alert(1)>",
    r"\input{/etc/passwd} \write18{id} $x^2$ 50% a_b ~ # &",
    "=cmd|' /C calc'!A0",
    "](javascript:alert(1)) `x` <!-- --> \x1b[2J\u202e",
)
# Elements that a report never contains.
NEVER = {"img", "iframe", "object", "embed", "link", "form", "base", "audio", "video"}


class Reader(html.parser.HTMLParser):
    """A parser that counts elements and collects attributes that run code."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.acting, self.targets = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.acting += [name for name, _ in attrs if name.startswith("on")]
        self.targets += [
            v for name, v in attrs if name in ("href", "src", "xlink:href")
        ]


def write_report(tmp_path, names):
    """Write the report of runs with these names and return its folder."""
    first, second, data, more, note, model = names
    for number, name in enumerate((first, second)):
        records = [
            [
                record._replace(
                    algorithm=name,
                    model=model,
                    dataset={"edge": data, "sketch": more}.get(
                        record.dataset, record.dataset
                    ),
                )
                for record in epoch
                if record.metric == "accuracy"
            ]
            for epoch in conftest.fake_records(
                f"{name} {number}",
                name,
                number / 10,
                (0, 1),
                epochs=2,
                sets=("edge", "sketch"),
            )
        ]
        config = conftest.fake_config(name, (0, 1))
        config["tests"] = {data: {"data": more, "split": note}}
        conftest.write_run(tmp_path / f"run{number}", config, records)
        provenance = json.loads((tmp_path / f"run{number}/provenance.json").read_text())
        provenance["data"][data] = {"cite": note, "note": more, "fingerprint": model}
        provenance["packages"] = {note: model}
        (tmp_path / f"run{number}/provenance.json").write_text(json.dumps(provenance))
    out = tmp_path / "out"
    argv = [f"--runs={tmp_path}/run0", f"--runs={tmp_path}/run1", f"--out={out}"]
    assert report.main(argv) == 0
    return out


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Return the folders of reports of hostile and of plain names."""
    plain = ("a1", "b1", "c1", "d1", "e1", "f1")
    return [
        write_report(tmp_path_factory.mktemp("report") / "in", names)
        for names in (NAMES, plain)
    ]


@pytest.fixture
def out(reports):
    return reports[0]


@pytest.mark.slow
def test_hostile_names_add_no_elements_to_the_page(reports):
    page, expected = (Reader((folder / "index.html").read_text()) for folder in reports)
    assert (
        "alert(1)" in (reports[0] / "index.html").read_text()
    )  # The names are shown as text.
    for tag in ("script", "style", "svg", "table", "a", "pre", "title"):
        assert page.tags.count(tag) == expected.tags.count(tag), tag
    assert not NEVER & set(page.tags) and not page.acting
    assert all(target.startswith("#") for target in page.targets)
    for path in (reports[0] / "figures").glob("*.svg"):
        figure = Reader(path.read_text())
        assert not {"script", "image", "foreignobject", *NEVER} & set(figure.tags)
        assert not figure.acting


def test_hostile_names_are_escaped_in_latex_and_markdown(out):
    for path in (out / "tables").glob("*.tex"):
        text = path.read_text()
        assert not re.search(r"\\(input|write|include|openin)", text)
        body = text.partition("\n")[2]
        assert not re.search(
            r"(?<!\\)%(?!\n)", body
        )  # Comments of the report end a line.
        assert not re.search(r"(?<!\\)#", body)
    paths = [*(out / "tables").glob("*.md"), *(out / "tables").glob("*.tex")]
    for path in (*paths, out / "methods.md"):
        assert path.read_text().replace("\n", "").isprintable(), path
    for path in (out / "tables").glob("*.md"):
        assert not re.search(r"(?<!\\)<(?!/?u>)", path.read_text())


@pytest.mark.parametrize("quote", ["'", '"'])
def test_names_cannot_close_an_attribute(quote):
    name = f"x{quote} onfocus={quote}alert(1)"
    table = tables.Table(name, "", ("run",), (("a",),), pd.DataFrame({"run": ["a"]}))
    page = Reader(test_tables.page_of(table, document.Links({name: "page.html"})))
    assert not page.acting


def test_names_cannot_leave_the_report_folder(reports):
    for out in reports:
        assert {path.name for path in out.parent.parent.iterdir()} == {"in"}
        assert {path.name for path in out.iterdir()} == {
            *("index.html", "results.json", "methods.md", "methods.bib"),
            *("tables", "figures"),
        }


def test_names_with_nul_or_line_breaks_are_shown_on_one_line(tmp_path, capsys):
    (path := tmp_path / "1.jsonl").write_text('{"a\\u001b[2J": "\\n"}\n')
    with pytest.raises(ValueError) as refusal:
        results.loads(path.read_text(), where=str(path))
    (tmp_path / "run" / "evals").mkdir(parents=True)
    path.rename(tmp_path / "run" / "evals" / "1.jsonl")
    assert report.main([f"--runs={tmp_path}/run", f"--out={tmp_path}/out"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "\x1b" not in message
    assert "must have the fields" in str(refusal.value)
