"""A testbed for texture and shape bias in JAX."""

import os
import sys

__version__ = "0.1.0"

# In a checkout `configs` and `launch` lie beside this folder, in a wheel inside it.
if not os.path.exists(os.path.join(__path__[0], "configs", "__init__.py")):
    __path__.append(os.path.dirname(__path__[0]))


def measure(model, suite=None, **options):
    """Return what is measured of a model, on the images that are there.

    found = jbias.measure(model, stimuli="geirhos", imagenet="imagenet", data="photos")
    found.shape_bias, found.accuracy  # floats with .lower, .upper and .n
    found.numbers  # all of it, a row a number; the records are in found.folder
    found.left_out  # the measures that were not made, each with the reason

    model: a function of images, a module of PyTorch, a jbias.evals.predictors.Predictor, or
      a text as `jbias measure --help` lists them: a file of weights, a run, "timm:NAME",
      "hf:OWNER/NAME@COMMIT", "my.py:predict", a table of decisions.
    stimuli, imagenet, data, humans: folders, as `jbias measure` takes them. What is missing
      for some measures is said in one line.
    size: of the images' sides, in pixels; by itself what the model says, else 224.
    images: how many are shown by measures that change them; 0 is all. Or what a function
      takes, an option of a Predictor: "float", "uint8" or "files".
    only: names of measures. changes: of the suite, such as "--suite.run.batch=8".
    out: where the model's folder is; called again, it resumes.
    random_weights: of "timm:NAME". trained, method: for the records. step: of a run.
    columns: of a table of decisions. Others are options of jbias.torch.wrap or a Predictor,
      such as classes, mean, std, preprocess and name.
    suite: measures by a suite instead, such as "jbias:suites/biases:data=imagenet,root=DIR".

    Returns a Measured (jbias.evals.measured), for several networks, such as a run's seeds,
    a tuple of these. ValueError, in one line, for what is wrong.
    """
    if "jax" not in sys.modules:  # A model of another framework needs the GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from jbias.measuring import arguments, run

    with arguments.named_in_errors():
        return run.measure(model, suite, **options)


def read_scores(source, *, verbose: bool = True, **choices):
    """Return any table of scores as a tidy frame: algorithm, dataset, run and score.

    source: a file (CSV, TSV, Markdown, LaTeX, JSON, Excel, Parquet) or a pandas frame, long or
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
