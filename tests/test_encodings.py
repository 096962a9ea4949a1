"""Text is UTF-8 in every locale: every call that opens a text file has an encoding."""

import ast
import pathlib

PACKAGE = pathlib.Path(__file__).parents[1] / "jbias"
_TEXT = ("read_text", "write_text")


def opened_without_encoding(source: str) -> list[int]:
    """Return the lines that read or write text in the encoding of the locale."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        keywords = {keyword.arg for keyword in node.keywords}
        inner = [x for argument in node.args for x in ast.walk(argument)]
        words = [x.value for x in inner if isinstance(x, ast.Constant)]
        modes = [x for x in words if isinstance(x, str) and set(x) <= set("rwaxbt+")]
        is_text = called in _TEXT
        if called == "open":
            is_builtin = isinstance(node.func, ast.Name)
            is_text = (is_builtin or modes) and not any("b" in mode for mode in modes)
        least = 2 if called == "write_text" else 1
        is_positional = called in _TEXT and len(node.args) >= least
        if is_text and "encoding" not in keywords and not is_positional:
            lines.append(node.lineno)
    return lines


def test_the_check_detects_code_that_depends_on_the_locale():
    for text in ("open(p)", "open(p, 'w')", "p.open('a')", "p.read_text()"):
        assert opened_without_encoding(text) == [1], text
    for text in ("open(p, 'rb')", "p.open('rb')", "p.read_text('utf-8')", "s.open(i)"):
        assert not opened_without_encoding(text), text


def test_no_text_is_read_or_written_in_the_encoding_of_the_locale():
    places = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in opened_without_encoding(path.read_text(encoding="utf-8"))
    ]
    assert not places
