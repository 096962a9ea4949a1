"""Trains all seeds of a config, watches them out of distribution, keeps what it saw.

    python -m jbias.main --config=configs/sagnet.py
    python -m jbias.main --config=configs/erm.py:data=pacs,root=/data/pacs,seeds=2
    python -m jbias.main --config=configs/padain.py --config.algo.p=0.05 --workdir=runs/x

The part after the colon holds the config's own arguments (see the top of the file);
`--config.key=value` changes any entry. The same command resumes a run, or says that it
is done. Exit codes: 0 done, 1 every seed diverged, 2 the config, the data or the disk
does not allow it, 143 or 130 stopped by SIGTERM or SIGINT with all work saved.
"""

import os
import pathlib
import sys

import jax
from absl import app, flags, logging
from etils import epath
from ml_collections import config_flags

from jbias import config as jc
from jbias import train

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "The experiment: a file with get_config, and its arguments."
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where the run lives; runs/<algorithm>-<data>-<hash> if not given."
)


def main(argv: list[str]) -> int:
    """Runs what the flags say; returns the exit code."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]!r}; see --help")
    if _CONFIG.value is None:
        raise app.UsageError("--config is missing, e.g. --config=configs/erm.py")
    _set_up_jax()
    config = _CONFIG.value
    workdir = _WORKDIR.value or epath.Path("runs") / jc.run_name(config)
    try:
        return 0 if train.run(config, workdir) else 1
    except train.Interrupted as stopped:
        return _fail(workdir, stopped, 130 if "SIGINT" in str(stopped) else 143)
    except (ValueError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        return _fail(workdir, error, 2)


def _set_up_jax() -> None:
    """Keeps compiled programs on disk, so that a second start does not wait."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = os.environ.get("JBIAS_CACHE", "~/.cache/jbias")
        jax.config.update(
            "jax_compilation_cache_dir", os.path.expanduser(f"{cache}/xla")
        )


def _fail(workdir: epath.PathLike, error: Exception, code: int) -> int:
    line = " ".join(str(error).split())
    print(f"jbias: {line}", file=sys.stderr)
    log = pathlib.Path(workdir) / "log.txt"
    if log.exists():
        with log.open("a") as file:
            file.write(f"jbias: {line}\n")
    return code


def _parse(argv: list[str]) -> list[str]:
    """Reads the flags; what is wrong with them, or in a config file, is one line."""
    try:
        return flags.FLAGS(argv)
    except (flags.Error, ValueError, AttributeError, KeyError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        text = error.args[0] if isinstance(error, KeyError) else error
        print(f"jbias: {' '.join(str(text).split())}", file=sys.stderr)
        sys.exit(2)


def cli() -> None:
    """The command: flags, then the run."""
    logging.set_verbosity(logging.ERROR)  # Orbax tells of every file.
    app.run(main, flags_parser=_parse)


if __name__ == "__main__":
    cli()
