"""A testbed for texture and shape bias in JAX."""

import os
import sys

__version__ = "0.1.0"

# In a checkout `configs` and `launch` are next to this folder, in a wheel inside it.
if not os.path.exists(os.path.join(__path__[0], "configs", "__init__.py")):
    __path__.append(os.path.dirname(__path__[0]))


def measure(model, suite=None, **options):
    """Measure a model on the available images; return the results.

    results = jbias.measure(model, stimuli="geirhos", imagenet="imagenet", data="photos")
    results.shape_bias, results.accuracy  # floats with .lower, .upper and .n
    results.numbers  # a table of all numbers; the records are in results.folder
    results.left_out  # the measures that were not computed, with reasons

    model: a function of images, a PyTorch module, a jbias.evals.predictors.Predictor, or a
      name as for `jbias measure`: a file of weights, a run, "timm:NAME",
      "hf:OWNER/NAME@COMMIT", "my.py:predict", or a table of decisions.
    stimuli, imagenet, data, humans: folders, as for `jbias measure`; a table of decisions may
      need none. One line names the measures whose folders are missing.
    size: side of the images in pixels; default: the model's own, else 224.
    images: number of images for measures that change images; 0: all. For a function, `images` may
    instead be the input type, an option of Predictor: "float", "uint8" or "files".
    only: names of the measures to compute; default: all. changes: changes of the suite, such
      as ["--suite.run.batch=8"].
    out: parent of the results' folder; a repeated call resumes.
    random_weights: for "timm:NAME", skip the pretrained weights. trained, method: texts for
      the records. step: the checkpoint of a run to measure. columns: the names of the columns
      in a table of decisions. dataset, parse: the name of its set, and "raw" to parse the words
      of a model again, for a table without folders. letters: the options of the question, such
      as "A=airplane,B=bear", for these words. Further options are those of jbias.torch.wrap or Predictor,
      such as classes, mean, std, preprocess and name.
    suite: a suite of measures to use instead, such as
      "jbias:suites/biases:data=imagenet,root=DIR".

    Returns a Measured (jbias.evals.measured); for several networks, such as the seeds of a
    run, a tuple of them. ValueError, in one line, for wrong arguments.
    """
    if "jax" not in sys.modules:  # A model of another framework needs the GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from jbias.measuring import arguments, run

    with arguments.named_in_errors():
        return run.measure(model, suite, **options)


def read_scores(source, *, verbose: bool = True, **choices):
    """Return a table of scores as a tidy pandas frame: algorithm, dataset, run and score.

    The frame has one row per score. Without runs in the table, it has no column "run"; if the
    table has means with a spread, such as "73.8 ± 0.2", it has a column "deviation", too.

    source: a file (CSV, TSV, Markdown, LaTeX, JSON, Excel, Parquet) or a pandas frame, long or
    wide. verbose: print in three lines how the table was read. choices: options that decide
    between several readings of a table, as for `jbias.scores.read`. Errors: see
    `jbias.scores.read`.

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
    """Print one line and exit with code 2 if a package is missing; else print the traceback.

    A function for sys.excepthook, so that `python -m jbias.X` ends like `jbias X`. kind,
    error, trace: type, value and traceback of the exception.
    """
    from jbias import __main__ as command
    from jbias.runtime import messages

    module = sys.orig_argv[-len(sys.argv)].removeprefix("-m")
    line = command.missing_package(module, error)
    if not line:
        return messages.print_traceback(kind, error, trace)
    messages.print_text(line, to_stderr=True)
    sys.exit(2)


if sys.argv[:1] == ["-m"]:  # True while `python -m` imports the package.
    sys.excepthook = _explain_missing
