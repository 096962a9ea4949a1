"""The command line of every command: the parser, argument types, shared flags, exit codes.

A mistyped flag is refused in one line that names the nearest one. Nothing slow is
imported here: --help and wrong arguments are answered at once.
"""

import argparse
import difflib
import functools
import math
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jbias import numerals
from jbias.runtime import messages, signals, switches, xla


def unknown_argument(word: str, known: Iterable[str]) -> str:
    """Says that an argument such as --dta=pacs is none, and which flag is nearest."""
    name, dot, key = word.lstrip("-").partition("=")[0].partition(".")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean --{close[0]}{dot}{key}?" if close else "see --help"
    return f"unknown argument {word!r}; {hint}"


# Commands that are spelled otherwise than their modules.
_SPELLINGS = {
    "export_stimuli": "export-stimuli",
    "measuring": "measure",
}


class Parser(argparse.ArgumentParser):
    """Reads the arguments of `jbias COMMAND`; its help begins with `doc`.

    command: the module, such as "report.measured".
    """

    entries = ""  # The flag whose --<entries>.KEY=VALUE are others' to read.

    def __init__(self, command: str = "", doc: str = "", **options: Any):
        words = _SPELLINGS.get(command, command.replace(".", " "))
        options.setdefault("prog", f"jbias {words}")
        options.setdefault("description", doc)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**{"allow_abbrev": False, **options})
        # `type=int` and `type=float` of all arguments read no "1_000".
        self.register("type", int, numerals.whole)
        self.register("type", float, numerals.real)
        self.color = False  # From Python 3.14 on help has codes of colours.

    def parse_known_args(self, args: Sequence[str] | None = None, namespace=None):
        """Before anything is said of what is missing, refuses flags that are not there."""
        words = sys.argv[1:] if args is None else list(args)
        known = [name[2:] for name in self._option_string_actions if name[:2] == "--"]
        for word in words:
            if word == "--" or self._subparsers and word[:1] != "-":
                break  # A command knows its own.
            entry = self.entries and word.startswith(f"--{self.entries}.")
            name = word[2:].partition("=")[0]
            if word[:2] == "--" and name not in known and not entry:
                self.error(unknown_argument(word, known))
        return super().parse_known_args(words, namespace)

    def error(self, message: str):
        """Ends with one line and exit code 2."""
        self.exit(2, f"{self.prog}: error: {messages.one_line(message)}\n")

    def exit(self, status: int = 0, message: str | None = None):
        """End the process; print the message to stderr before."""
        if message:
            messages.print_text(message, to_stderr=True, end="")
        raise SystemExit(status)

    def print_help(self, file: Any = None) -> None:
        """Print the help to stdout."""
        with messages.stdout_errors_exit():
            text = self.format_help()
            messages.print_text(text, to_stderr=file is sys.stderr, end="")

    def print_usage(self, file: Any = None) -> None:
        """Print the usage to stdout."""
        with messages.stdout_errors_exit():
            text = self.format_usage()
            messages.print_text(text, to_stderr=file is sys.stderr, end="")


def number(kind: type, fits: Callable[[Any], bool], what: str) -> Callable[[str], Any]:
    """Return an argparse type: an int or float for which `fits` holds, as `what` says."""
    parse_text = {int: numerals.whole, float: numerals.real}[kind]

    def read(text: str) -> Any:
        try:
            value = parse_text(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}")
        return value

    return read


def at_least(least: int) -> Callable[[str], int]:
    """What reads a whole number of at least that."""
    what = f"a whole number of at least {least}"
    return number(int, lambda value: value >= least, what)


positive = number(float, lambda value: 0 < value < math.inf, "a number above 0")


def names(text: str) -> tuple[str, ...]:
    """Reads "A,B"; each once."""
    found = tuple(map(str.strip, text.split(",")))
    if all(found) and len(set(found)) == len(found):
        return found
    raise argparse.ArgumentTypeError(f"must be different names, as A,B, got {text!r}")


def add_count(
    to: Parser, flag: str, least: int, default: int, what: str, metavar: Any = "N"
) -> None:
    """Adds a flag that takes a whole number; its help says the default behind `what`."""
    kind, more = at_least(least), f"{what} (default: %(default)s)"
    to.add_argument(flag, type=kind, default=default, metavar=metavar, help=more)


def add_texts(to: Parser, flags: Mapping[str, str]) -> None:
    """Adds flags that take text: by --name=METAVAR what each is for."""
    for flag, what in flags.items():
        name, _, metavar = flag.partition("=")
        to.add_argument(name, metavar=metavar, help=what)


def add_names(to: Parser, flag: str, default: Any, what: str) -> None:
    """Adds a flag that takes different names, as A,B."""
    to.add_argument(flag, type=names, default=default, metavar="A,B", help=what)


def parse(
    parser: Parser, argv: Sequence[str] | None, changed: str, check: Callable
) -> tuple[argparse.Namespace, list[str]]:
    """Reads the arguments; those of entries, --<changed>.KEY=VALUE, come second.

    Ends with exit code 2 where they are wrong, and where `check`, which sees them by
    name, raises a ValueError.
    """
    parser.entries = changed
    args, rest = parser.parse_known_args(argv)
    changes = [text for text in rest if text.startswith(f"--{changed}.")]
    if len(changes) < len(rest):
        unknown = next(text for text in rest if text not in changes)
        paths = unknown[0] != "-" and "--checkpoint" in parser.format_usage()
        hint = "; a path is --checkpoint=PATH, a glob in quotes" if paths else ""
        parser.error(f"unknown argument {unknown!r}{hint}")
    if wrong := next((text for text in changes if "=" not in text), None):
        parser.error(f"{wrong}: must be --{changed}.KEY=VALUE")
    try:
        check(vars(args))
    except ValueError as error:
        parser.error(str(error))
    return args, changes


def settle(parser: Callable, args: Any, idle: Iterable, where: str, defaults: Mapping):
    """Refuses flags that say nothing `where`, and fills in those that are not given.

    parser: makes the parser, which the refusal is of.
    """
    for name in idle:
        if getattr(args, name) is not None:
            parser().error(f"--{name} says nothing {where}; leave it out")
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


_LETTERS = 500  # Of an error of memory: allocators print tables.
_BATCHES = "--suite.run.batch=N, in training config.run.eval_batch"


def run(work: Callable[[], int], *, stopped: str) -> int:
    """Do the work and return its exit code.

    Returns 2 for what is refused, 1 for an error in the user's own code, 130 where Ctrl-C
    stopped it, and 143 or 129 where SIGTERM or SIGHUP did.

    `work` imports what it needs: --help and wrong arguments wait for nothing. `stopped`
    says what the same command does then. JBIAS_TRACEBACK=1 lets errors pass.
    """
    xla.set_flags()
    try:
        from jbias.runtime import console, heap

        console.silence_warnings()
        heap.limit_arenas()
        xla.cache_programs()
        with signals.termination_interrupts(), xla.fixed_settings() as overridden:
            for line in overridden:
                console.logger(None)(line)
            return work()
    except (ValueError, OSError) as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        messages.print_text(f"jbias: {messages.one_line(error)}", to_stderr=True)
        return 1 if isinstance(error, messages.UserCodeError) else 2
    except SystemExit as error:
        # Of a package or of the user's code: what is done returns an exit code.
        if error.code not in (0, None):
            raise
        line = "jbias: stopped before the end: some code called sys.exit(0)"
        messages.print_text(f"{line}; the same command {stopped}", to_stderr=True)
        return 1
    except ModuleNotFoundError as error:
        if not (line := messages.missing_package(error)):
            raise
        messages.print_text(f"jbias: {line}", to_stderr=True)
        return 2
    except Exception as error:
        if switches.is_on("JBIAS_TRACEBACK") or not messages.lacks_memory(error):
            raise
        line = f"jbias: {messages.one_line(error)[:_LETTERS]}; memory is full: take smaller"
        line = f"{line} batches ({_BATCHES}); the same command {stopped}"
        messages.print_text(line, to_stderr=True)
        return 2
    except KeyboardInterrupt as stop:
        by = f" by {stop}" if isinstance(stop, signals.Terminated) else ""
        line = f"jbias: stopped{by}; the same command {stopped}"
        messages.print_text(line, to_stderr=True)
        return getattr(stop, "exit_code", 130)


# What --classes may be, for the help and for messages.
OUTPUT_LISTS = (
    "imagenet, geirhos16 (in alphabetical order), folders (of `jbias measure`: the classes "
    "of --data, in alphabetical order), a file with a name or WordNet id a line, or a CSV "
    "file with the columns train_class and test_class"
)
FILE_FLAGS = ("model", "classes", "mean", "std", "trained", "method", "zoo")


def add_network_flags(parser: Parser) -> None:
    """Adds the flags that say which networks."""
    add = parser.add_argument
    what = (
        "a file of weights (.pth, .pt, .tar, .bin, .ckpt, .torch, .safetensors, "
        ".npz), a run's workdir, a folder of these, a glob, or weights on the Hugging Face "
        "Hub, hf:OWNER/NAME@COMMIT (extra `hub`); may be given again, and under either name"
    )
    paths = dict(action="append", default=[], metavar="PATH")
    add("--checkpoint", "--runs", **paths, help=what)
    files = {
        "--model=NAME": "of jbias.models.MODELS, e.g. resnet50, for files that --zoo does "
        "not know; found by names and shapes if not given; or my.py:make, which makes a "
        "flax module of your own from the number of classes: its variables are .msgpack "
        "files",
        "--zoo=FILE": "a table of published files, by whose names model, mean, deviation "
        "and category are known; --zoo= is none (default: jbias:zoo)",
        "--classes=FILE": f"what the outputs of a file's network are: {OUTPUT_LISTS} "
        "(default: what the file itself says, else imagenet)",
    }
    add_texts(parser, files)
    add_constants(parser, "of a file's network")
    others = {
        "--trained=DATA": "of a file's network: the data set that it was trained on, as "
        "jbias.data.DATASETS has it, for its records and reports (default: unknown)",
        "--method=NAME": "of a file's network: how it was trained, for its records and "
        "reports, e.g. basic or fmix, as a config calls its variant (default: nothing)",
        "--step=STEP": "of a run: best (by validation), latest, or a number (default: the "
        "suite's run.step, which is best if it does not say)",
    }
    add_texts(parser, others)


def add_constants(parser: Parser, whose: str) -> None:
    """Add --mean and --std; `whose` begins their help."""
    for key, what in (("mean", "taken off"), ("std", "what is then divided by")):
        parser.add_argument(
            f"--{key}",
            type=functools.partial(_constants, least=-1e9 if key == "mean" else 1e-9),
            metavar="R,G,B",
            help=f"{whose}: {what} of images in [0, 1], three numbers or one; "
            "found as the line about each file says if not given",
        )


def add_suite_flags(parser: Parser) -> None:
    """Adds the flags of commands that measure: networks, suite, devices."""
    add_network_flags(parser)
    what = (
        "what is measured, e.g. jbias:suites/biases:images=1000 of the package (`jbias:` "
        "lists them) or a file of your own, my/suite.py:images=1000; ARGS are the "
        "suite's own, which the top of its file lists; --suite.KEY=VALUE, as often as "
        "wanted, changes an entry of it, e.g. --suite.measures.pgd.steps=10 or "
        "--suite.run.precision=float32"
    )
    add_texts(parser, {"--suite=FILE[:ARGS]": what})
    what = "measures of the suite, by their names there; all if not given"
    add_names(parser, "--only", None, what)
    what = (
        "how many of those here are used, whatever the run or the suite has; 0 is "
        "all, or what the suite says (default: %(default)s)"
    )
    parser.add_argument("--devices", type=int, default=0, metavar="N", help=what)


def _constants(text: str, least: float) -> tuple[float, ...]:
    try:
        values = tuple(map(numerals.real, text.split(",")))
    except ValueError:
        values = ()
    if len(values) not in (1, 3) or not all(least <= x <= 1e9 for x in values):
        more = "positive " if least > 0 else ""
        raise argparse.ArgumentTypeError(
            f"must be three {more}numbers such as 0.485,0.456,0.406, or one, got {text!r}"
        )
    return values * (3 // len(values))


def split_values(argv: Sequence[str] | None, flag: str) -> list[str]:
    """Gives arguments in which `flag=a b`, as a shell leaves a glob, is `flag a b`."""
    argv = sys.argv[1:] if argv is None else argv
    found = []
    for one in argv:
        name, _, value = one.partition("=")
        found += [name, value] if name == flag and value else [one]
    return found


def output_folder(text: str) -> str:
    """Reads a folder to write into, which need not be there yet."""
    path = pathlib.Path(text)
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"must be a local folder, got {text!r}; copy it afterwards"
        )
    if any(one.exists() and not one.is_dir() for one in (path, *path.parents)):
        raise argparse.ArgumentTypeError(
            f"must be a folder, got {text!r}, which is or is in a file; name another"
        )
    return text


probability = number(float, lambda a: 0 < a < 1, "a number between 0 and 1")
at_least_1, at_least_0 = at_least(1), at_least(0)

# Arguments of several commands, but for what each says of them.
WORKDIRS = types.MappingProxyType(dict(nargs="+", action="extend", metavar="WORKDIR"))
OUT = types.MappingProxyType(dict(type=output_folder, required=True, metavar="DIR"))
ALPHA = types.MappingProxyType(dict(type=probability, default=0.05))


FIGURES = ("svg", "pdf", "png")  # Forms of the files of a report's figures.


def figure_forms(text: str) -> tuple[str, ...]:
    """argparse type: forms of figures as "pdf,png"; svg, which the page has, is always one."""
    forms = {form.strip() for form in text.lower().split(",")}
    if not forms <= {*FIGURES}:
        raise argparse.ArgumentTypeError(
            f"must be one or more of {', '.join(FIGURES)}, such as pdf,png, got {text!r}"
        )
    return tuple(form for form in FIGURES if form in {"svg", *forms})


def add_figures(to: argparse.ArgumentParser) -> None:
    """Add --figures: the forms in which a report's figures are written."""
    to.add_argument(
        "--figures",
        type=figure_forms,
        default=FIGURES[:1],
        metavar="FORMS",
        help="forms of the files in figures/: svg, which is always written, and beside it "
        "pdf (papers) and png (slides), e.g. --figures=pdf,png (default: svg)",
    )


def add_permutation_flags(to: Parser) -> None:
    """Adds what tests by random orders take: --adjust, --alpha, --permutations, --seed."""
    add = to.add_argument
    what = "p-values that say what is significant (default: %(default)s)"
    add("--adjust", choices=("none", "holm", "bh"), default="holm", help=what)
    add("--alpha", **ALPHA, help="level (default: %(default)s)")
    add_count(to, "--permutations", 1, 9_999, "random orders behind a p-value")
    add("--seed", type=int, default=0, help="of the orders (default: %(default)s)")


def print_lines(command: str, make: Callable[[], Iterable[str]]) -> int:
    """Print the lines that `make` returns; return 0, or 2 with one line on stderr."""
    try:
        lines = make()
    except (ValueError, OSError) as error:
        line = f"{command}: {messages.one_line(error)}"
        messages.print_text(line, to_stderr=True)
        return 2
    with messages.stdout_errors_exit():
        for line in lines:
            if not messages.print_text(line):
                break  # Nobody reads any more.
    return 0
