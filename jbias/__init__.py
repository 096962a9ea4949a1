"""A testbed for texture and shape bias in JAX."""

import os
import sys

__version__ = "0.1.0"

# In a checkout `configs` and `launch` lie beside this folder, in a wheel inside it.
if not os.path.exists(os.path.join(__path__[0], "configs", "__init__.py")):
    __path__.append(os.path.dirname(__path__[0]))


def measure(predict, suite, **options):
    """Measures anybody's model: `jbias.evals.predictors.measure`, which says the rest.

    jbias.measure(predict, "jbias:suites/biases:data=imagenet,root=DIR", classes="imagenet")
    """
    if "jax" not in sys.modules:  # A model of another framework needs the GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from jbias.evals import predictors

    return predictors.measure(predict, suite, **options)


def read_scores(source, *, verbose: bool = True, **choices):
    """Return any table of scores as a tidy frame: algorithm, dataset, run and score.

    source: a file (CSV, TSV, Markdown, LaTeX, Excel, Parquet) or a pandas frame, long or
    wide. Means with a spread, "73.8 ± 0.2", have a column deviation, too. verbose: print in
    three lines what was understood. choices: what decides where a table has several
    readings, as in `jbias.scores.read`, whose errors it raises.

    jbias.read_scores("table.csv", columns="algorithm=method,score=acc")
    """
    from jbias import scores
    from jbias.runtime import messages

    reading = scores.read(source, **choices)
    if verbose:
        messages.print_text("\n".join(reading.description))
    frame = reading.tidy.drop(columns="place")
    return frame if frame["run"].any() else frame.drop(columns="run")


def _explain_missing(kind, error, trace) -> None:
    """Ends `python -m jbias.X` as `jbias X` ends where a package is not installed."""
    from jbias import __main__ as command
    from jbias.runtime import messages

    module = sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    if not (line := command.missing_package(module, error)):
        return messages.print_traceback(kind, error, trace)
    messages.print_text(line, to_stderr=True)
    sys.exit(2)


if sys.argv[:1] == ["-m"]:  # So it is while `python -m` looks a module up.
    sys.excepthook = _explain_missing
