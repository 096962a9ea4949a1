"""The one command: `jbias COMMAND ...` is `python -m` of the module that COMMAND names.

jbias                     lists the commands
jbias train --help        what one of them takes
jbias completion bash     prints what a shell completes with
"""

import difflib
import os
import runpy
import sys
import types
from collections.abc import Mapping, Sequence

from jbias.runtime import messages

# By name: the module, and what it does. A group's next word is a module in it.
COMMANDS: Mapping[str, tuple[str, str]] = types.MappingProxyType(
    {
        "train": ("jbias.main", "trains what a config says, many seeds at once"),
        "measure": ("jbias.measuring", "measures a model on the images that are there"),
        "evaluate": ("jbias.evaluate", "measures networks by a suite of your choice"),
        "report": ("jbias.report", "tables, tests and figures of runs and scores"),
        "plan": ("jbias.plan", "memory, time and money of a run on other devices"),
        "sweep": ("jbias.launch.sweep", "many runs: searches, here or on clusters"),
        "prepare": ("jbias.prepare", "makes and checks data sets, converts weights"),
        "audit": ("jbias.audit", "finds attributes of images that hurt a network"),
        "study": ("jbias.study", "trains under chosen distribution shifts"),
        "export-stimuli": ("jbias.export_stimuli", "stimuli as PNG, for use elsewhere"),
        "look": ("jbias.look", "draws stimuli, and what a network looks at"),
        "papers": ("jbias.papers", "ours beside the numbers that papers print"),
    }
)
REPORTS = ("biases", "correlate", "distortion", "measured", "shifts")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, which may end the process itself; return the exit code."""
    with messages.stdout_errors_exit():
        return _run(argv)


def _run(argv: Sequence[str] | None) -> int:
    asked, *rest = [*(sys.argv[1:] if argv is None else argv), ""][:-1] or [""]
    if asked in ("", "-h", "--help", "help"):
        messages.print_text(_usage())
        return 0 if asked else 2
    if asked == "--version":
        from jbias import __version__

        messages.print_text(__version__)
        return 0
    if asked == "completion":
        return _complete(rest)
    if asked not in COMMANDS:
        close = difflib.get_close_matches(asked, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(COMMANDS)}"
        line = f"jbias: unknown command {asked!r}; {hint}"
        messages.print_text(messages.one_line(line), to_stderr=True)
        return 2
    module = COMMANDS[asked][0]
    if rest and rest[0] in GROUPS.get(asked, ()):
        module, rest = f"{module}.{rest[0]}", rest[1:]
    elif asked == "papers" or asked in GROUPS and _is_mistyped(rest):
        line = f"jbias {asked}: one of {', '.join(GROUPS[asked])}"
        messages.print_text(line, to_stderr=True)
        return 2
    sys.argv = [f"jbias {asked}", *rest]
    _add_working_directory()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        if not (line := missing_package(module, error)):
            raise
        messages.print_text(line, to_stderr=True)
        return 2
    return 0


def _add_working_directory() -> None:
    """Let a user's config import modules beside it, as under `python -m`.

    The working directory comes last, so that its files hide no installed package; Python's
    option -P and PYTHONSAFEPATH leave it out.
    """
    folder = os.getcwd()
    if not sys.flags.safe_path and not {"", folder} & {*sys.path}:
        sys.path.append(folder)


def _is_mistyped(words: Sequence[str]) -> bool:
    """Return whether the first word is the name of a report, written wrongly.

    `jbias report` also takes files and folders, whose names have a dot or a slash, or exist.
    """
    word = words[0] if words else ""
    is_path = os.path.exists(word) or bool(set("./*[:") & set(word))
    return word[:1] not in ("", "-") and not is_path


def missing_package(module: str, error: BaseException) -> str:
    """What the command of that module lacks, in one line; "" if it is no package."""
    known = {name: f"{of}." for name, (of, _) in COMMANDS.items()}
    made = (name for name, of in known.items() if f"{module}.".startswith(of))
    missing = isinstance(error, ModuleNotFoundError) and messages.missing_package(error)
    return f"jbias {next(made, module)}: {missing}" if missing else ""


def _usage() -> str:
    lines = "\n".join(f"  {name:14} {told}" for name, (_, told) in COMMANDS.items())
    return (
        f"usage: jbias COMMAND ...; jbias COMMAND --help says what one takes\n\n{lines}"
        f"\n\njbias report {'|'.join(REPORTS)} are reports of their own.\n"
        "jbias completion bash|zsh prints what a shell completes with."
    )


def _complete(shells: Sequence[str]) -> int:
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
    script = _SHELLS[shells[0]] + script
    messages.print_text(script)
    return 0


if __name__ == "__main__":
    sys.exit(main())
