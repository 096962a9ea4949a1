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
