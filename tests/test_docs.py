"""Names in the documentation exist, and its commands can be parsed."""

import ast
import functools
import pathlib
import pkgutil
import re
import runpy
import shlex

from absl import flags

from jbias import __main__ as command_line
from jbias import (
    ask,
    audit,
    calibrate,
    evaluate,
    export_stimuli,
    look,
    plan,
    prepare,
    study,
    submit,
)
from jbias import config as jc
from jbias.cards import cli as cards_cli
from jbias.launch import sweep
from jbias.measuring import cli as measuring_cli
from jbias.observing import cli as observing_cli
from jbias.papers import biases as papers_biases
from jbias.papers import distortion as papers_distortion
from jbias.papers import shifts as papers_shifts
from jbias.report import biases, correlate, decisions, distortion, measured, shifts
from jbias.report import cli as report_cli
from jbias.runtime import cli
from tests import cases, source_files

ROOT = pathlib.Path(__file__).parents[1]
DOCS = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("examples/README.md", "examples/published/README.md"),
    *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
)
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCS}


def matches(pattern: str) -> list[tuple[str, str]]:
    """Return (document, text) of all matches of a pattern, without duplicates."""
    return [
        (name, match)
        for name, text in TEXTS.items()
        for match in dict.fromkeys(re.findall(pattern, text))
    ]


# Groups of entry points.
GROUPS = ("jbias.algorithms", "jbias.measures", "jbias.transforms")
COMMANDS = matches(
    rf"(?m)^ *(jbias (?:{'|'.join(command_line.COMMANDS)}) [^#`\\\n]*(?:\\\n[^#`\\\n]*)*)"
)


@cases.each(
    ("name", "path"),
    matches(r"\b(?:jbias|tests|configs|examples|launch)/[\w./]*\w[\w./]*"),
)
def test_paths_exist(name, path):
    assert (ROOT / path.rstrip(".")).exists()


@cases.each(("name", "target"), matches(r"\]\(([^)#\s]+)[^)]*\)"))
def test_links_exist(name, target):
    if not target.startswith("https://"):
        assert ((ROOT / name).parent / target).exists()


@cases.each(("name", "anchor"), matches(r"\]\(#([^)]+)\)"))
def test_anchors_are_headings(name, anchor):
    headings = re.findall(r"(?m)^#+ (.+)$", TEXTS[name])
    plain = [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]
    assert anchor in plain


@cases.each(("name", "dotted"), matches(r"\bjbias(?:\.[A-Za-z_]\w*)+"))
def test_names_resolve(name, dotted):
    if dotted.startswith("jbias.torch"):  # Its import needs PyTorch.
        tree = ast.parse((ROOT / "jbias/torch.py").read_text(encoding="utf-8"))
        known = {node.name for node in tree.body if hasattr(node, "name")}
        assert dotted.removeprefix("jbias.torch").lstrip(".") in {"", *known}
        return
    if dotted not in GROUPS:
        pkgutil.resolve_name(dotted)


@cases.each(("name", "target"), matches(r"\bmake ([a-z-]+)`"))
def test_make_targets_exist(name, target):
    assert re.search(rf"(?m)^{target}:", (ROOT / "Makefile").read_text())


# Flags of jbias train that compare with a reference.
UNTIL_DECIDED = (
    *("until-decided", "metric", "dataset", "selection", "points", "alpha"),
    *("quantity", "bounds", "max-seeds", "max-hours"),
)


def parse_main(arguments: list[str]) -> None:
    """Parse arguments as jbias.main does, and load the config."""
    values = flags.FlagValues()
    words, changes = jc.split_changes(arguments, flag="config")
    names = ("config", "workdir", "coordinator", "processes", "process", "wait")
    for name in (*names, *UNTIL_DECIDED):
        flags.DEFINE_string(name, None, "", flag_values=values)
    for name in ("check", "profile"):
        flags.DEFINE_bool(name, False, "", flag_values=values)
    remaining = values(["jbias", *words])
    assert remaining == ["jbias"]
    config = jc.load(values["config"].value, changes, flag="config")
    assert config["algo"]["name"]


def parse_evaluate(arguments: list[str]) -> None:
    """Parse arguments as jbias.evaluate does, and load the suite with its changes."""
    args, changes = cli.parse(evaluate.parser(), arguments, "suite", jc.check)
    if changes:
        jc.load(args.suite, changes, flag="suite")


READERS = {
    "main": parse_main,
    "report": lambda arguments: report_cli._parser().parse_args(arguments),
    "report.biases": lambda arguments: biases.parser().parse_args(arguments),
    "papers.biases": lambda arguments: papers_biases.parser().parse_args(arguments),
    "papers.distortion": lambda arguments: papers_distortion.parser().parse_args(
        arguments
    ),
    "papers.shifts": lambda arguments: papers_shifts.parser().parse_args(arguments),
    "report.distortion": lambda arguments: distortion.parser().parse_args(arguments),
    "report.decisions": lambda arguments: decisions._parser().parse_args(arguments),
    "report.measured": lambda arguments: measured._parser().parse_args(arguments),
    "report.shifts": lambda arguments: shifts.parser().parse_args(arguments),
    "report.correlate": lambda arguments: correlate._parser().parse_args(arguments),
    "evaluate": parse_evaluate,
    "measuring": lambda arguments: cli.parse(
        measuring_cli.parser(), arguments, "suite", jc.check
    ),
    "audit": lambda arguments: cli.parse(audit.parser(), arguments, "data", jc.check),
    "study": lambda arguments: cli.parse(study.parser(), arguments, "config", jc.check),
    "plan": lambda arguments: cli.parse(plan.parser(), arguments, "config", jc.check),
    "launch.sweep": lambda arguments: cli.parse(
        sweep.parser(), arguments, "config", jc.check
    ),
    "export_stimuli": lambda arguments: cli.parse(
        export_stimuli.parser(), arguments, "suite", jc.check
    ),
    "ask": lambda arguments: ask.parser().parse_args(arguments),
    "calibrate": lambda arguments: calibrate.parser().parse_args(arguments),
    "submit": lambda arguments: submit.parser().parse_args(arguments),
    "cards": lambda arguments: cli.parse(
        cards_cli.parser(), arguments, "suite", jc.check
    ),
    "observing": lambda arguments: observing_cli.parser().parse_args(arguments),
    "look": lambda arguments: look.parser().parse_args(arguments),
    "prepare": lambda arguments: prepare.parser(arguments[:1]).parse_args(arguments),
}


def test_the_documentation_has_commands():
    assert len(COMMANDS) > 10


@cases.each(("name", "command"), COMMANDS)
def test_commands_can_be_parsed(name, command, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, word, *arguments = shlex.split(command.replace("\\\n", " "), comments=True)
    module, _ = command_line.COMMANDS[word]
    if arguments[:1] and arguments[0] in command_line.GROUPS.get(word, ()):
        module, arguments = f"{module}.{arguments[0]}", arguments[1:]
    if "--help" not in arguments:
        READERS[module.removeprefix("jbias.")](arguments)
    for argument in arguments:
        if argument.startswith("--scores="):
            assert pathlib.Path(argument.removeprefix("--scores=")).exists()


@functools.cache
def known_flags() -> set[str]:
    parsers = [
        report_cli._parser(),
        evaluate.parser(),
        measuring_cli.parser(),
        prepare.parser(prepare.COMMANDS),
    ]
    parsers += [
        biases.parser(),
        papers_biases.parser(),
        papers_distortion.parser(),
        distortion.parser(),
        look.parser(),
    ]
    parsers += [papers_shifts.parser(), audit.parser(), study.parser(), sweep.parser()]
    parsers += [plan.parser(), measured._parser(), decisions._parser()]
    parsers += [submit.parser(), cards_cli.parser(), ask.parser()]
    parsers.append(calibrate.parser())
    commands = prepare.parser(prepare.COMMANDS)._subparsers._group_actions
    parsers += commands[0].choices.values()
    known = {o for p in parsers for a in p._actions for o in a.option_strings}
    known |= {f"--{name}" for name in UNTIL_DECIDED}
    return known | {"--check", "--coordinator", "--processes", "--process", "--wait"}


@functools.cache
def flags_of_benchmarks() -> set[str]:
    folders = ("benchmarks", "studies", "qa")
    paths = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    code = [path.read_text() for path in paths]
    return set(re.findall(r'add(?:_argument)?\(\s*"(--[\w-]+)"', "".join(code)))


@cases.each(("name", "flag"), matches(r"`(--[a-z][\w.-]*(?!<)[^`]*)`"))
def test_flags_in_the_text_are_known(name, flag):
    known = known_flags()
    if name.removeprefix("docs/") in (
        *("benchmarks.md", "performance.md", "results.md", "scaling.md"),
    ):
        known = known | flags_of_benchmarks()
    key, _, value = flag.partition("=")
    if key.startswith("--config.") and "<" not in key:
        value = value.strip("'") or "0"  # Quotes are the shell's.
        parse_main(["--config=configs/padain.py", f"{key}={value}"])
    elif key.startswith("--suite.") and "<" not in key and key != "--suite.key":
        suite = "distortion" if name == "docs/distortion.md" else "biases"
        jc.load(f"configs/suites/{suite}.py", [f"{key}={value or 0}"], flag="suite")
    else:
        assert (
            key in known | {"--config", "--config.<key>", "--profile", "--workdir"}
            or "<" in key
            or key.startswith("--xla_")  # Of the compiler.
        )


def test_rows_of_tables_are_whole():
    """Rows of tables are not wrapped, and no blank line divides a table."""
    broken = []
    for name, text in TEXTS.items():
        lines, is_code = text.splitlines(), False
        for number, line in enumerate(lines):
            is_code ^= line.lstrip().startswith("```")
            if is_code or not line.startswith("|"):
                continue
            is_first = not number or not lines[number - 1].startswith("|")
            has_head = re.match(
                r"\|[-: |]+\|$", "".join(lines[number + 1 : number + 2])
            )
            if not line.rstrip().endswith("|") or (is_first and not has_head):
                broken.append(f"{name}:{number + 1}")
    assert not broken


def test_docstrings_have_no_quotes_that_join_lines():
    """No docstring contains quotes that were meant to join string literals."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    for path in source_files.PYTHON:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts = [ast.get_docstring(node) for node in nodes if isinstance(node, kinds)]
        assert not [text for text in texts if text and re.search(r'"\n\s*"', text)], (
            path
        )


def test_the_picture_of_the_packages_shows_their_imports():
    """Its description lists exactly the imports between the boxes."""
    rooms = runpy.run_path(str(ROOT / "docs/site/rooms.py"))
    description = (
        (ROOT / "docs/rooms.svg").read_text().split("<desc>")[1].split("</desc>")[0]
    )
    pairs = {tuple(line.split(" imports ")) for line in description.splitlines()}
    assert pairs == rooms["arrows"]()
    assert ("algos", "models") in pairs and ("models", "algos") not in pairs
