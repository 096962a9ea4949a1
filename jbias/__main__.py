"""The command `jbias COMMAND ...`, which runs the module of COMMAND.

jbias                     list the commands
jbias train --help        show the options of a command
jbias completion bash     print the completion script for bash or zsh
"""

import os
import runpy
import sys
import types
from collections.abc import Mapping, Sequence

from jbias import errors
from jbias.runtime import messages

# For each command: its module, and what it does. After a command in GROUPS, the next word
# names a module of that package.
COMMANDS: Mapping[str, tuple[str, str]] = types.MappingProxyType(
    {
        "train": (
            "jbias.main",
            "train the networks of a config, all seeds in one process",
        ),
        "measure": (
            "jbias.measuring",
            "measure a model on Geirhos' stimuli or your images",
        ),
        "evaluate": (
            "jbias.evaluate",
            "measure networks with a suite, a file that lists measures and test sets",
        ),
        "report": (
            "jbias.report",
            "test which differences are significant, and write a report",
        ),
        "plan": (
            "jbias.plan",
            "estimate memory, time and cost of a run before it starts",
        ),
        "sweep": (
            "jbias.launch.sweep",
            "train a config with many settings, on this machine or a cluster",
        ),
        "prepare": ("jbias.prepare", "make and check data sets, convert weights files"),
        "audit": (
            "jbias.audit",
            "find image attributes, such as hair colour, that lower accuracy",
        ),
        "study": (
            "jbias.study",
            "train a config under many distribution shifts (docs/shifts.md)",
        ),
        "export-stimuli": (
            "jbias.export_stimuli",
            "write test images as PNG files, for networks that run elsewhere",
        ),
        "observe": (
            "jbias.observing",
            "write a page on which you decide as a network does",
        ),
        "submit": (
            "jbias.submit",
            "check a folder of decisions for the standing table",
        ),
        "card": (
            "jbias.cards",
            "write or verify a card of a model's biases, with a badge",
        ),
        "calibrate": (
            "jbias.calibrate",
            "test measures of shape bias on networks with planted reliance",
        ),
        "ask": (
            "jbias.ask",
            "ask a vision-language model behind an API about images",
        ),
        "look": ("jbias.look", "draw test images and saliency maps"),
        "papers": (
            "jbias.papers",
            "compare our numbers with those of published studies",
        ),
    }
)
REPORTS = ("biases", "correlate", "decisions", "distortion", "measured", "shifts")
GROUPS: Mapping[str, Sequence[str]] = types.MappingProxyType(
    {"report": REPORTS, "papers": ("biases", "distortion", "shifts")}
)
_COMPLETION = r"""_jbias() {
    local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" group=""
    case "$command" in GROUPS
    esac
    if [ "$COMP_CWORD" = 1 ]; then
        COMPREPLY=($(compgen -W "NAMES" -- "$word"))
    elif [ "${word#-}" != "$word" ]; then
        case " $group " in *" ${COMP_WORDS[2]} "*) command="$command ${COMP_WORDS[2]}";; esac
        COMPREPLY=($(compgen -W "$(jbias $command --help 2>/dev/null |
            grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)" -- "$word"))
    elif [ "$COMP_CWORD" = 2 ]; then
        COMPREPLY=($(compgen -W "$group" -- "$word"))
    fi
}
complete -o default -F _jbias jbias"""
_SHELLS = {"bash": "", "zsh": "autoload -U bashcompinit && bashcompinit\n"}
_HELP_WORDS = ("-h", "--help")
_PAPERS_USAGE = """\
usage: jbias papers STUDY ...

Compare numbers computed by jbias with those printed in a published study. STUDY is one of

  biases      Can Biases in ImageNet Models Explain Generalization? (CVPR 2024)
  distortion  On the Effects of Artificial Data Modification (ICML 2022)
  shifts      Understanding and Testing Generalization of Deep Networks on
              Out-of-Distribution Data (arXiv 2021)

Run `jbias papers STUDY --help` for the options of a study."""
_COMPLETION_USAGE = """\
usage: jbias completion bash|zsh

Print a shell script that lets the Tab key complete the commands and flags of jbias. To use
it in this shell:

  source <(jbias completion bash)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; return the exit code.

    argv: the arguments, such as ["train", "--help"]; None: the process's arguments. A command
    may also exit itself, by SystemExit.
    """
    with messages.stdout_errors_exit():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    """Run the command that the arguments name; return the exit code.

    argv: see `main`. The exit code is 0 after --help, --version and a command that returns. The
    exit code is 2 without arguments, for an unknown command, report or study, and for a missing
    package.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    command, arguments = (words[0], words[1:]) if words else ("", [])
    if command in ("", "-h", "--help", "help"):
        messages.print_text(_usage())
        return 0 if command else 2
    if command == "--version":
        from jbias import __version__

        messages.print_text(__version__)
        return 0
    if command == "completion":
        return _complete(arguments)
    if command not in COMMANDS:
        close = errors.nearest(command, COMMANDS, cutoff=0.6)
        hint = f"did you mean {close}?" if close else f"one of {', '.join(COMMANDS)}"
        line = f"jbias: unknown command {command!r}; {hint}"
        messages.print_text(messages.one_line(line), to_stderr=True)
        return 2
    module = COMMANDS[command][0]
    if command == "papers" and arguments[:1] and arguments[0] in _HELP_WORDS:
        messages.print_text(_PAPERS_USAGE)
        return 0
    if arguments and arguments[0] in GROUPS.get(command, ()):
        module, arguments = f"{module}.{arguments[0]}", arguments[1:]
    elif command == "papers" or command in GROUPS and _is_mistyped(arguments):
        line = _unknown_in_group(command, arguments)
        messages.print_text(messages.one_line(line), to_stderr=True)
        return 2
    sys.argv = [f"jbias {command}", *arguments]
    _add_working_directory()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        line = missing_package(module, error)
        if not line:
            raise
        messages.print_text(line, to_stderr=True)
        return 2
    return 0


def _unknown_in_group(command: str, arguments: Sequence[str]) -> str:
    """Return the error message for a word after "report" or "papers" that names no report or study.

    command: "report" or "papers". arguments: the words after the command; for "papers" possibly
    none.
    """
    known = GROUPS[command]
    names = ", ".join(known)
    if not arguments:
        return f"jbias {command}: name one of {names}"
    close = errors.nearest(arguments[0], known, cutoff=0.6)
    hint = f"did you mean {close}? Known: {names}" if close else f"known: {names}"
    files = ", or the path of an existing file or folder" if command == "report" else ""
    return f"jbias {command}: unknown {arguments[0]!r}; {hint}{files}"


def _add_working_directory() -> None:
    """Add the working directory to sys.path, so that a user's config can import from it.

    The directory is added at the end, so that its files hide no installed package. Nothing is
    added under Python's option -P or PYTHONSAFEPATH.
    """
    folder = os.getcwd()
    if not sys.flags.safe_path and not {"", folder} & {*sys.path}:
        sys.path.append(folder)


def _is_mistyped(words: Sequence[str]) -> bool:
    """Return True if the first word looks like a misspelled name of a report.

    `jbias report` also accepts paths and globs, so a word that exists as a file or folder, or
    contains one of . / * [ and :, is not misspelled. False without words or for a flag.
    """
    word = words[0] if words else ""
    is_path = os.path.exists(word) or bool(set("./*[:") & set(word))
    return word[:1] not in ("", "-") and not is_path


def missing_package(module: str, error: BaseException) -> str:
    """Return one line about a missing package that a command's module needs.

    module: the command's module, such as "jbias.main". error: the error that importing the module
    raised. "" for errors other than a missing package.
    """
    if not isinstance(error, ModuleNotFoundError):
        return ""
    missing = messages.missing_package(error)
    if not missing:
        return ""
    command = module
    for name, (command_module, _) in COMMANDS.items():
        if f"{module}.".startswith(f"{command_module}."):
            command = name
            break
    return f"jbias {command}: {missing}"


def _usage() -> str:
    """Return the text of `jbias --help`."""
    lines = [f"  {name:14} {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: jbias COMMAND ...",
            "",
            *lines,
            "",
            "Run `jbias COMMAND --help` for the options of a command.",
            f"`jbias report NAME` writes another report; NAME: {', '.join(REPORTS)}.",
            "`jbias completion bash` (or zsh) prints a script for tab completion.",
            "`jbias --version` prints the version.",
        ]
    )


def _complete(shells: Sequence[str]) -> int:
    """Print the completion script of a shell, or the usage; return the exit code.

    shells: the arguments of `jbias completion`: one of "bash", "zsh", "-h" and "--help". For
    other arguments, a line is printed on stderr and the exit code is 2, otherwise 0.
    """
    if shells and shells[0] in _HELP_WORDS:
        messages.print_text(_COMPLETION_USAGE)
        return 0
    if len(shells) != 1 or shells[0] not in _SHELLS:
        messages.print_text("jbias completion: must be bash or zsh", to_stderr=True)
        return 2
    from jbias import prepare

    groups = {**GROUPS, "prepare": tuple(prepare.COMMANDS)}
    cases = "".join(
        f'\n        {name}) group="{" ".join(words)}";;'
        for name, words in groups.items()
    )
    script = _COMPLETION.replace("NAMES", " ".join(COMMANDS)).replace("GROUPS", cases)
    messages.print_text(_SHELLS[shells[0]] + script)
    return 0


if __name__ == "__main__":
    sys.exit(main())
