"""The command line of every command: the parser, argument types, shared flags, exit codes.

A mistyped flag is an error of one line that names the most similar flag. Slow packages are
not imported here, so that --help and errors in arguments appear immediately.
"""

import argparse
import contextlib
import functools
import math
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jbias import errors, numerals
from jbias.runtime import messages, signals, switches, xla


def unknown_argument(word: str, known: Iterable[str]) -> str:
    """Return the error message for an unknown argument such as --dta=pacs.

    word: the argument as typed. known: names of the existing flags, without dashes; the
    message suggests the most similar name.
    """
    name, dot, key = word.lstrip("-").partition("=")[0].partition(".")
    close = errors.nearest(name, known)
    hint = f"did you mean --{close}{dot}{key}?" if close else "see --help"
    return f"unknown argument {word!r}; {hint}"


# Commands whose names differ from the names of their modules.
_COMMAND_NAMES = {
    "cards": "card",
    "export_stimuli": "export-stimuli",
    "measuring": "measure",
    "observing": "observe",
}


class Parser(argparse.ArgumentParser):
    """A parser of the arguments of `jbias COMMAND`.

    command: the command's module in jbias, such as "report.measured".
    doc: the description at the top of --help.
    options: further options of argparse.ArgumentParser.
    """

    # Arguments --<overrides>.KEY=VALUE are accepted and returned unparsed.
    overrides = ""

    def __init__(self, command: str = "", doc: str = "", **options: Any):
        command_name = _COMMAND_NAMES.get(command, command.replace(".", " "))
        options.setdefault("prog", f"jbias {command_name}")
        options.setdefault("description", doc)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)
        # `type=int` and `type=float` would otherwise accept "1_000".
        self.register("type", int, numerals.whole)
        self.register("type", float, numerals.real)
        self.color = False  # Since Python 3.14, help has colour codes by default.

    def parse_known_args(self, args: Sequence[str] | None = None, namespace=None):
        """Return (namespace, list of arguments that were not parsed), as argparse does.

        --<overrides>.KEY=VALUE is in the list. Any other unknown flag --NAME before a subcommand
        or "--" exits with code 2, before a missing argument is reported.
        """
        words = sys.argv[1:] if args is None else list(args)
        known = [name[2:] for name in self._option_string_actions if name[:2] == "--"]
        for word in words:
            if word == "--" or self._subparsers and word[:1] != "-":
                break  # The subcommand's parser checks its own flags.
            is_override = self.overrides and word.startswith(f"--{self.overrides}.")
            name = word[2:].partition("=")[0]
            if word[:2] == "--" and name not in known and not is_override:
                self.error(unknown_argument(word, known))
        return super().parse_known_args(words, namespace)

    def error(self, message: str):
        """Print one line on stderr, and exit with code 2."""
        self.exit(2, f"{self.prog}: error: {messages.one_line(message)}\n")

    def exit(self, status: int = 0, message: str | None = None):
        """Print the message to stderr, then exit with code `status`."""
        if message:
            messages.print_text(message, to_stderr=True, end="")
        raise SystemExit(status)

    def print_help(self, file: Any = None) -> None:
        """Print the help to stdout, or to stderr if `file` is sys.stderr."""
        with messages.stdout_errors_exit():
            text = self.format_help()
            messages.print_text(text, to_stderr=file is sys.stderr, end="")

    def print_usage(self, file: Any = None) -> None:
        """Print the usage to stdout, or to stderr if `file` is sys.stderr."""
        with messages.stdout_errors_exit():
            text = self.format_usage()
            messages.print_text(text, to_stderr=file is sys.stderr, end="")


def number(
    kind: type, is_valid: Callable[[Any], bool], description: str
) -> Callable[[str], Any]:
    """Return an argparse type: an int or float for which `is_valid` returns True.

    kind: int or float. description: the valid values, for the error "must be ...".
    """
    parse_text = {int: numerals.whole, float: numerals.real}[kind]

    def read(text: str) -> Any:
        """Return the number in a text; argparse.ArgumentTypeError if it is invalid."""
        try:
            value = parse_text(text)
        except ValueError:
            value = None
        if value is None or not is_valid(value):
            raise argparse.ArgumentTypeError(f"must be {description}, got {text!r}")
        return value

    return read


def at_least(low: int) -> Callable[[str], int]:
    """Return an argparse type: an int >= `low`."""
    return number(
        int,
        lambda value: value >= low,
        description=f"a whole number of at least {low}",
    )


positive = number(
    float,
    lambda value: 0 < value < math.inf,
    description="a number above 0",
)


def names(text: str) -> tuple[str, ...]:
    """Return a tuple of distinct names from a text such as "A,B" (an argparse type).

    argparse.ArgumentTypeError for empty or repeated names.
    """
    parsed_names = tuple(map(str.strip, text.split(",")))
    if all(parsed_names) and len(set(parsed_names)) == len(parsed_names):
        return parsed_names
    raise argparse.ArgumentTypeError(
        f"must be different names separated by commas, such as A,B, got {text!r}"
    )


def add_count(
    parser: Parser, flag: str, low: int, default: int, help: str, metavar: Any = "N"
) -> None:
    """Add a flag that takes an int >= `low`; append the default to its help.

    flag: such as "--seeds". metavar: the placeholder of the value in --help.
    """
    parser.add_argument(
        flag,
        type=at_least(low),
        default=default,
        metavar=metavar,
        help=f"{help} (default: %(default)s)",
    )


def add_texts(parser: Parser, flags: Mapping[str, str]) -> None:
    """Add flags that take text.

    flags: help texts by flag and metavar, such as {"--model=NAME": "the network"}.
    """
    for flag, flag_help in flags.items():
        name, _, metavar = flag.partition("=")
        parser.add_argument(name, metavar=metavar, help=flag_help)


def add_names(parser: Parser, flag: str, default: Any, help: str) -> None:
    """Add a flag that takes distinct names separated by commas, read by `names`.

    flag: such as "--only". default: value without the flag. help: text for --help.
    """
    parser.add_argument(flag, type=names, default=default, metavar="A,B", help=help)


def parse(
    parser: Parser,
    argv: Sequence[str] | None,
    overrides: str,
    check: Callable[[Mapping[str, Any]], object],
) -> tuple[argparse.Namespace, list[str]]:
    """Return the parsed arguments, and the arguments --<overrides>.KEY=VALUE as texts.

    argv: the arguments; None: the process's arguments. overrides: "config" or "suite".
    check: called with the mapping from argument names to values.
    Exits with code 2 if an argument is invalid, an override has no "=", or `check` raises a
    ValueError.
    """
    parser.overrides = overrides
    args, unparsed = parser.parse_known_args(argv)
    changes = [text for text in unparsed if text.startswith(f"--{overrides}.")]
    if len(changes) < len(unparsed):
        unknown = next(text for text in unparsed if text not in changes)
        may_be_path = unknown[0] != "-" and "--checkpoint" in parser.format_usage()
        hint = (
            "; write a path as --checkpoint=PATH, and a glob in quotes"
            if may_be_path
            else ""
        )
        if unknown[0] != "-" and " MODEL " in parser.format_usage():
            hint = "; give one MODEL: a folder of files, or a glob in quotes"
        parser.error(f"unknown argument {unknown!r}{hint}")
    for change in changes:
        if "=" not in change:
            parser.error(f"{change}: must be --{overrides}.KEY=VALUE")
    try:
        check(vars(args))
    except ValueError as error:
        parser.error(str(error))
    return args, changes


def settle(
    parser: Callable[[], Parser],
    args: argparse.Namespace,
    unused: Iterable[str],
    where: str,
    defaults: Mapping[str, Any],
) -> None:
    """Reject given flags that have no effect, and set the defaults of absent flags in `args`.

    An absent flag has the value None in `args`, which is changed in place.

    parser: returns the command's parser, which reports the error with exit code 2.
    unused: names of the flags that have no effect. where: the condition for the error
    message, such as "without --runs". defaults: values by name of the argument.
    """
    for name in unused:
        if getattr(args, name) is not None:
            parser().error(f"--{name} has no effect {where}; remove it")
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


_MAX_LETTERS = 500  # Length of an out-of-memory error: allocators print long tables.
_BATCH_FLAGS = "--suite.run.batch=N, in training config.run.eval_batch"


def run(
    work: Callable[[], int],
    *,
    rerun: str,
    uses_jax: bool = True,
    check: Callable[[], None] | None = None,
) -> int:
    """Call `work` and return the exit code of the command.

    The exit code is the return value of `work`. The code is 2 for an invalid input, a missing
    package or full memory; 1 for an error in the user's own code or a call of sys.exit(0);
    130 after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP. One line on stderr has the reason.
    Other errors, and the SystemExit of sys.exit with another code, are raised. With
    JBIAS_TRACEBACK=1, errors of inputs, user code and memory are raised, too.

    work: does the command's work; it imports slow packages itself, so that --help is fast.
    rerun: end of the message "the same command ..." of a stopped command, such as
      "resumes" or "starts again".
    uses_jax: False: the settings of JAX are left alone, because importing it takes seconds.
    check: raises errors of arguments that need no slow package; called first.
    """
    xla.set_flags()
    try:
        if check is not None:
            check()
        from jbias.runtime import console, heap

        console.silence_warnings()
        heap.limit_arenas()
        if uses_jax:
            xla.cache_programs()
        settings = xla.fixed_settings() if uses_jax else contextlib.nullcontext([])
        with signals.termination_interrupts(), settings as overridden:
            for line in overridden:
                console.logger(None)(line)
            return work()
    except (ValueError, OSError) as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        for line in messages.error_lines(error):
            messages.print_text(f"jbias: {line}", to_stderr=True)
        return 1 if isinstance(error, messages.UserCodeError) else 2
    except SystemExit as error:
        # A package or the user's code called sys.exit; `work` returns its exit code.
        if error.code not in (0, None):
            raise
        line = "jbias: stopped before the end: some code called sys.exit(0)"
        messages.print_text(f"{line}; the same command {rerun}", to_stderr=True)
        return 1
    except ModuleNotFoundError as error:
        if not (line := messages.missing_package(error)):
            raise
        messages.print_text(f"jbias: {line}", to_stderr=True)
        return 2
    except Exception as error:
        if switches.is_on("JBIAS_TRACEBACK") or not messages.lacks_memory(error):
            raise
        reason = messages.one_line(error)[:_MAX_LETTERS]
        messages.print_text(
            f"jbias: {reason}; memory is full: use smaller batches ({_BATCH_FLAGS}); "
            f"the same command {rerun}",
            to_stderr=True,
        )
        return 2
    except signals.Interrupted as stopped:  # A training saved its last step.
        messages.print_text(f"jbias: stopped: {stopped}", to_stderr=True)
        return signals.exit_code(stopped)
    except KeyboardInterrupt as stop:
        cause = f" by {stop}" if isinstance(stop, signals.Terminated) else ""
        line = f"jbias: stopped{cause}; the same command {rerun}"
        messages.print_text(line, to_stderr=True)
        return getattr(stop, "exit_code", 130)


# The values that --classes takes, for messages.
OUTPUT_LISTS = (
    "imagenet, geirhos16 (in alphabetical order), folders (only in `jbias measure`: the "
    "classes of --data, in alphabetical order), a file with one class name or WordNet id "
    "per line, or a CSV file with the columns train_class and test_class"
)
# The values that --classes takes, for --help; FOLDERS_LIST is for `jbias measure` only.
OUTPUT_LISTS_HELP = (
    "imagenet (the 1,000 classes in the order of published networks), geirhos16 (Geirhos' "
    "16 classes in alphabetical order), {folders}a text file with one class name or WordNet "
    "id per line, or a CSV file with one row per output: column train_class has the "
    "name of the output, and column test_class the class of the test sets for which the output "
    "counts (empty: none)"
)
FOLDERS_LIST = (
    "folders (only for functions and modules: the class folders of --data in alphabetical "
    "order), "
)
METHOD_HELP = "name of the training method, shown in records and reports, e.g. fmix (default: no name)"
TRAINED_HELP = (
    "name of the data set that the network was trained on (docs/data.md lists names), shown in "
    "records and reports, e.g. imagenet (default: unknown)"
)
STEP_HELP = (
    "for runs: the checkpoint to use: best (the highest validation accuracy), latest, or "
    "the number of a saved training step"
)
FILE_FLAGS = ("model", "classes", "mean", "std", "trained", "method", "zoo")


def add_network_flags(
    parser: Parser,
    subject: str = "for weights files",
    step_default: str = "best",
    mean_default: str = "the value of the first of --zoo, the file and the "
    "architecture that has one; a printed line about each file shows it",
) -> None:
    """Add the flags that select networks and describe their files.

    The flags are --checkpoint (or --runs), --model, --zoo, --classes, --mean, --std, --trained,
    --method and --step.

    subject: the networks that --classes, --mean, --std, --trained and --method describe.
    step_default, mean_default: the defaults of --step, and of --mean and --std.
    All arguments except `parser` are texts for --help.
    """
    parser.add_argument(
        "--checkpoint",
        "--runs",
        action="append",
        default=[],
        metavar="PATH",
        help="networks to use: a weights file (.pth, .pt, .tar, .bin, .ckpt, .torch, "
        ".safetensors, .npz), the workdir of a run, a folder of weights files or workdirs, a "
        "glob in quotes, weights on the Hugging Face Hub, hf:OWNER/NAME@COMMIT (needs "
        "pip install 'jbias[hub]'), or a network of timm, timm:NAME or timm:NAME@FILE. The flag may be repeated. --runs is another name for "
        "--checkpoint",
    )
    add_texts(
        parser,
        {
            "--model=NAME": "for weights files: the architecture, such as resnet50 "
            "(docs/models.md lists the names), or my.py:make, a function in your file my.py "
            "that takes the number of classes and returns a flax module; its weights file "
            "ends in .msgpack (default: the architecture in --zoo, else recognised by names "
            "and shapes of the weights)",
            "--zoo=FILE": "for weights files: a Python file like configs/zoo.py, which "
            "lists published weights files by name, with architecture, mean, standard "
            "deviation and category; --zoo= uses no list (default: jbias:zoo, the list of "
            "the package)",
            "--classes=FILE": f"{subject}: classes of the network's outputs, in the order of "
            f"the outputs: {OUTPUT_LISTS_HELP.format(folders='')} (default: the class names "
            "stored in the weights file, else imagenet)",
        },
    )
    add_constants(parser, subject, mean_default)
    add_texts(
        parser,
        {
            "--trained=DATA": f"{subject}: {TRAINED_HELP}",
            "--method=NAME": f"{subject}: {METHOD_HELP}",
            "--step=STEP": f"{STEP_HELP} (default: {step_default})",
        },
    )


def add_constants(parser: Parser, subject: str, default: str) -> None:
    """Add the flags --mean and --std.

    subject, default: for the help, such as "for weights files" and "detected".
    """
    descriptions = {
        "mean": "mean of the red, green and blue channel, subtracted from images with values "
        "in [0, 1]",
        "std": "standard deviation of the red, green and blue channel, by which images are "
        "divided after --mean is subtracted",
    }
    for key, description in descriptions.items():
        parser.add_argument(
            f"--{key}",
            type=functools.partial(_constants, least=-1e9 if key == "mean" else 1e-9),
            metavar="R,G,B",
            help=f"{subject}: {description}; three numbers, or one for all channels "
            f"(default: {default})",
        )


def add_suite_flags(parser: Parser, **texts: str) -> None:
    """Add the flags --suite, --only and --devices, and the flags of `add_network_flags`.

    texts: `subject` and `mean_default` of `add_network_flags`.
    """
    step_default = "run.step in the suite, else best"
    add_network_flags(parser, step_default=step_default, **texts)
    parser.add_argument(
        "--suite",
        metavar="FILE[:ARGS]",
        help="suite: a Python file that lists measures and the test sets to compute them on. "
        "Use a suite of the package, e.g. jbias:suites/biases:images=1000, or your own, e.g. "
        "my/suite.py:images=1000. `--suite=jbias:` prints the suites of the "
        "package. The "
        "docstring of a suite explains its ARGS. --suite.KEY=VALUE changes an entry and may "
        "be repeated, e.g. --suite.measures.pgd.steps=10 or --suite.run.precision=float32",
    )
    add_names(
        parser,
        "--only",
        default=None,
        help="names of the suite's measures to use, separated by commas; an unknown name is "
        "refused with a list of all names (default: all measures)",
    )
    parser.add_argument(
        "--devices",
        type=at_least_0,
        default=0,
        metavar="N",
        help="number of GPUs, TPU chips or CPUs of this machine to use; 0 means run.devices "
        "in the suite, which is all devices in the suites of the package (default: "
        "%(default)s)",
    )


def _constants(text: str, least: float) -> tuple[float, ...]:
    """Return three numbers from "R,G,B", or one number three times, each in [`least`, 1e9].

    For an argparse type. argparse.ArgumentTypeError for other texts.
    """
    try:
        values = tuple(map(numerals.real, text.split(",")))
    except ValueError:
        values = ()
    if len(values) not in (1, 3) or not all(least <= x <= 1e9 for x in values):
        sign = "positive " if least > 0 else ""
        raise argparse.ArgumentTypeError(
            f"must be three {sign}numbers such as 0.485,0.456,0.406, or one, got {text!r}"
        )
    return values * (3 // len(values))


def split_values(argv: Sequence[str] | None, flag: str) -> list[str]:
    """Return the arguments with each `flag=value` replaced by two arguments, flag and value.

    argv: the arguments; None: the process's arguments. flag: such as "--runs".
    A shell expands the glob in `--runs=runs/*` to `--runs=runs/a runs/b`; argparse then
    reads the two values only if the flag and the first value are separate.
    """
    argv = sys.argv[1:] if argv is None else argv
    words = []
    for word in argv:
        name, _, value = word.partition("=")
        words += [name, value] if name == flag and value else [word]
    return words


def output_folder(text: str) -> str:
    """Return the text, the path of a local folder to write into (an argparse type).

    The folder need not exist yet. argparse.ArgumentTypeError for a remote path such as
    gs://x, for an empty text, and if the path or one of its parents is a file.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("must be a folder, got ''; name one")
    path = pathlib.Path(text)
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"must be a local folder, got {text!r}; copy it afterwards"
        )
    for parent in (path, *path.parents):
        if parent.exists() and not parent.is_dir():
            raise argparse.ArgumentTypeError(
                f"must be a folder, got {text!r}, but {str(parent)!r} is a file; name another"
            )
    return text


probability = number(
    float,
    lambda value: 0 < value < 1,
    description="a number between 0 and 1",
)
at_least_1, at_least_0 = at_least(1), at_least(0)

# Options of arguments that several commands share, without the help text.
WORKDIRS = types.MappingProxyType(
    {"nargs": "+", "action": "extend", "metavar": "WORKDIR"}
)
OUT = types.MappingProxyType(
    {"type": output_folder, "required": True, "metavar": "DIR"}
)
ALPHA = types.MappingProxyType({"type": probability, "default": 0.05})


FIGURES = ("svg", "pdf", "png")  # File formats of a report's figures.


def figure_formats(text: str) -> tuple[str, ...]:
    """Return the formats of figures in a text such as "pdf,png" (an argparse type).

    "svg" is always among the formats, because the report's page needs this format; the order is as
    in FIGURES. argparse.ArgumentTypeError for other formats.
    """
    formats = {name.strip() for name in text.lower().split(",")}
    if not formats <= {*FIGURES}:
        raise argparse.ArgumentTypeError(
            f"must be one or more of {', '.join(FIGURES)}, such as pdf,png, got {text!r}"
        )
    return tuple(name for name in FIGURES if name in {"svg", *formats})


def add_figures(parser: argparse.ArgumentParser) -> None:
    """Add the flag --figures: the formats in which a report's figures are written."""
    parser.add_argument(
        "--figures",
        type=figure_formats,
        default=FIGURES[:1],
        metavar="FORMATS",
        help="formats of the files in figures/, separated by commas: svg (always written), "
        "pdf (for papers) and png (for slides), e.g. --figures=pdf,png (default: svg)",
    )


def add_permutation_flags(parser: Parser) -> None:
    """Add the flags of permutation tests: --adjust, --alpha, --permutations, --seed."""
    parser.add_argument(
        "--adjust",
        choices=("none", "holm", "bh"),
        default="holm",
        help="correction of the p-values for multiple tests: none, holm (Holm: controls the "
        "chance of any false positive) or bh (Benjamini-Hochberg: controls the share of false "
        "positives) (default: %(default)s)",
    )
    parser.add_argument(
        "--alpha",
        **ALPHA,
        metavar="P",
        help="significance level, between 0 and 1: p-values of at most P count as significant "
        "(default: %(default)s)",
    )
    add_count(
        parser,
        "--permutations",
        low=1,
        default=9_999,
        help="number of random permutations per p-value",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed of the permutations (default: %(default)s)",
    )


def print_lines(command: str, make_lines: Callable[[], Iterable[str]]) -> int:
    """Print the lines that `make_lines` returns, and return the exit code.

    command: name of the command, at the start of an error line. The exit code is 0, or 2 if
    `make_lines` raises a ValueError or an OSError, whose text is printed on stderr. Lines
    that cannot be written to stdout are handled as in `messages.stdout_errors_exit`.
    """
    try:
        lines = make_lines()
    except (ValueError, OSError) as error:
        for line in messages.error_lines(error):
            messages.print_text(f"{command}: {line}", to_stderr=True)
        return 2
    with messages.stdout_errors_exit():
        for line in lines:
            if not messages.print_text(line):
                break  # The reader of stdout has gone.
    return 0
