"""Code stays plain: few vague names, docstrings that say what is returned, no packed calls.

The limits are the counts that each folder has reached; lower them where code becomes plainer.
"""

import ast
import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
WORDS = """
    one found told of held given taken kept asked seen way how what own mine rest same made
    parts pieces about facts now here before after each many others heard fate so such
    further
"""
VAGUE = frozenset(WORDS.split())
MANNERED_OPENING = re.compile(
    r"(What|Whether|How|Which|Where|Who|Whose|When|So |As |Likewise|The same|Does as|Gives"
    r"|Tells|Says|Of |In |That |Those )\b"
)
FORWARDED = ("args", "axes", "shape", "names")

# For each folder: mannered openings of docstrings, vague names, splats of a variable into
# positional arguments, and splats of a dict(...) into keyword arguments.
LIMITS = {
    "jbias/*": {"opening": 0, "vague name": 1, "splat": 4, "**dict(": 0},
    "jbias/algos": {"opening": 0, "vague name": 2, "splat": 0, "**dict(": 0},
    "jbias/augment": {"opening": 0, "vague name": 0, "splat": 5, "**dict(": 0},
    "jbias/data": {"opening": 0, "vague name": 3, "splat": 5, "**dict(": 0},
    "jbias/evals": {"opening": 0, "vague name": 7, "splat": 3, "**dict(": 0},
    "jbias/calibrating": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/cards": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/answers": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/deciding": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/asking": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/measures": {"opening": 0, "vague name": 0, "splat": 5, "**dict(": 0},
    "jbias/measuring": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/models": {"opening": 0, "vague name": 1, "splat": 8, "**dict(": 0},
    "jbias/observing": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/papers": {"opening": 0, "vague name": 0, "splat": 1, "**dict(": 0},
    "jbias/planting": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "jbias/prepare": {"opening": 0, "vague name": 1, "splat": 3, "**dict(": 0},
    "jbias/report": {"opening": 0, "vague name": 14, "splat": 4, "**dict(": 0},
    "jbias/runs": {"opening": 0, "vague name": 1, "splat": 1, "**dict(": 0},
    "jbias/runtime": {"opening": 0, "vague name": 8, "splat": 3, "**dict(": 0},
    "jbias/scores": {"opening": 0, "vague name": 1, "splat": 0, "**dict(": 0},
    "jbias/stats": {"opening": 0, "vague name": 4, "splat": 3, "**dict(": 0},
    "jbias/stimuli": {"opening": 0, "vague name": 7, "splat": 0, "**dict(": 0},
    "jbias/training": {"opening": 0, "vague name": 8, "splat": 12, "**dict(": 0},
    "jbias/untrusted": {"opening": 0, "vague name": 0, "splat": 1, "**dict(": 0},
    "configs": {"opening": 0, "vague name": 6, "splat": 0, "**dict(": 0},
    "launch": {"opening": 0, "vague name": 0, "splat": 2, "**dict(": 0},
    "benchmarks": {"opening": 0, "vague name": 2, "splat": 4, "**dict(": 0},
    "studies": {"opening": 0, "vague name": 0, "splat": 4, "**dict(": 0},
    "qa": {"opening": 0, "vague name": 1, "splat": 6, "**dict(": 0},
    "examples": {"opening": 0, "vague name": 0, "splat": 0, "**dict(": 0},
    "tests": {"opening": 0, "vague name": 1, "splat": 77, "**dict(": 0},
}


def signs(path: pathlib.Path) -> list[tuple[str, int]]:
    """Return the kind and line of each sign of private language or packed code in a file."""
    located_kinds = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        located_kinds += [(kind, getattr(node, "lineno", 1)) for kind in _kinds(node)]
    return located_kinds


def _kinds(node: ast.AST) -> list[str]:
    """Return the kinds of signs at a node of the syntax tree."""
    documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
    if isinstance(node, documented):
        is_mannered = MANNERED_OPENING.match(ast.get_docstring(node) or "")
        return ["opening"] if is_mannered else []
    if isinstance(node, ast.Name):
        is_stored = isinstance(node.ctx, ast.Store)
        return ["vague name"] if is_stored and node.id in VAGUE else []
    if isinstance(node, ast.arg):
        return ["vague name"] if node.arg in VAGUE else []
    if not isinstance(node, ast.Call):
        return []
    starred = [arg.value for arg in node.args if isinstance(arg, ast.Starred)]
    variables = [value for value in starred if isinstance(value, ast.Name)]
    kinds = ["splat" for value in variables if value.id not in FORWARDED]
    for keyword in node.keywords:
        is_call = keyword.arg is None and isinstance(keyword.value, ast.Call)
        if is_call and getattr(keyword.value.func, "id", "") == "dict":
            kinds.append("**dict(")
    return kinds


def places(folder: str) -> dict[str, list[str]]:
    """Return the file and line of each sign in a folder's own files, by kind."""
    by_kind = collections.defaultdict(list)
    recursive = not folder.endswith("/*")
    pattern = "**/*.py" if recursive else "*.py"
    for path in sorted((ROOT / folder.removesuffix("/*")).glob(pattern)):
        for kind, line in signs(path):
            by_kind[kind].append(f"{path.relative_to(ROOT)}:{line}")
    return by_kind


@pytest.mark.parametrize("folder", LIMITS)
def test_no_folder_has_more_signs_than_its_limit(folder):
    by_kind = places(folder)
    for kind, limit in LIMITS[folder].items():
        count = len(by_kind[kind])
        assert count <= limit, (
            f"{folder}: {count} of kind {kind!r}, at most {limit}; see CONTRIBUTING.md, "
            f"and write one of these plainly: {', '.join(by_kind[kind])}"
        )


def test_every_folder_has_a_limit():
    folders = {"jbias/*", "configs", "launch", "examples", "tests"}
    folders |= {"benchmarks", "studies", "qa"}
    packages = (ROOT / "jbias").glob("*/__init__.py")
    folders |= {f"jbias/{path.parent.name}" for path in packages}
    assert set(LIMITS) == folders


def test_signs_are_recognised(tmp_path):
    file = tmp_path / "packed.py"
    file.write_text(
        '"""What a file has."""\n'
        "def f(one, *rest):\n"
        '    """Gives b."""\n'
        "    found = g(*rest, **dict(a=1))\n"
        "    return h(*args, **options)\n"
    )
    counts = collections.Counter(signs(file))
    assert counts == {
        ("opening", 1): 1,
        ("opening", 2): 1,
        ("vague name", 2): 2,
        ("vague name", 4): 1,
        ("splat", 4): 1,
        ("**dict(", 4): 1,
    }
