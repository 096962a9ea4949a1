"""Models that are given as Python functions from images to outputs, and their measurement.

    def predict(images):  # uint8 (b, 224, 224, 3)
        return session.run(None, {"x": images})[0]  # (b, 1000)

    model = Predictor(predict, classes="imagenet", images="uint8", size=224)

The function may use NumPy, PyTorch, JAX, ONNX Runtime or a server; it needs no JAX.
Measures that need gradients, or activations at sites, also need `apply`, `at` and `net`,
which jbias.torch.wrap provides.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from jaxtyping import Array, Float, Int, Shaped, UInt8

from jbias import config as jc
from jbias import errors
from jbias.data import base, class_maps, sources
from jbias.evals import (
    described_preprocessing,
    inference,
    measured,
    model_inputs,
    networks,
    runner,
    suites,
)
from jbias.models import taps
from jbias.runtime import console, messages, model_paths, xla
from jbias.stimuli import shown

FORMS = ("float", "uint8", "files")
KINDS = ("logits", "probabilities", "names")
_AGAIN = "correct it and repeat the command, which continues where it stopped"
_NUM_TRIAL_IMAGES = 16
# Logit of the classes that a function does not name; the named class has 0.
_NOT_NAMED = -100


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """A function that maps images to outputs, with a description of images and outputs.

    predict: images -> (b, k) logits or probabilities, or b class names. All batches have
      one size; the last batch of a set is padded with stimuli made from black images, and a
      list of files with the last file.
    classes: the classes of the outputs, in order; see data.class_maps.of_outputs.
    name: name of its folder of results and in reports; default: the function's name.
    images: the form of the images. "float": float32 (b, h, w, 3) in [0, 1], minus `mean` and
      divided by `std`, each three numbers or one. "uint8": uint8 (b, h, w, 3), to which
      stimuli are rounded. "files": a list of the bytes of image files (PNG for a set in
      memory), for a model with its own preprocessing; then only measures that show unchanged
      images are possible.
    preprocess: source of mean and std if they are not given: anything that
      described_preprocessing.parse reads, such as timm's `pretrained_cfg` or the transforms of
      torchvision's weights. None: no normalisation.
    size: side of the images that the function takes, in pixels; 0: any.
    outputs: one of KINDS; "": determined from the first result of `predict`. Class names give
      decisions without probabilities.
    version: identifies the weights. "": the weights are identified by the decisions about sixteen
      fixed images; give a version for a model whose decisions vary between calls.
    apply: float images in [0, 1] -> logits, differentiable by JAX, for attacks.
    at: (images, site) -> (activations at a site, gradient of each image's largest logit with
      respect to these activations).
    net: a taps.Readable, for measures that read all sites.
    factors: names by factor, such as {"model": "clip", "prompt": "a photo of a {}."}, for models
      that differ in one of them; stored in config.json, and shown on a card.
    """

    predict: Callable[[Any], Any]
    classes: str | Sequence[str] | Mapping[str, str] = class_maps.IMAGENET
    name: str = ""
    images: str = "float"
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    size: int = 0
    outputs: str = ""
    version: str = ""
    apply: Callable[[shown.Images], Array] | None = None
    at: Callable[[shown.Images, str], tuple[Array, Array]] | None = None
    net: taps.Readable | None = None
    preprocess: Any = None
    factors: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not callable(self.predict):
            errors.refuse("predict", "be a function of images", self.predict)
        errors.check_known("images", self.images, FORMS)
        if self.outputs:
            errors.check_known("outputs", self.outputs, KINDS)
        constants = [x for x in (self.mean, self.std) if x is not None]
        if constants and self.images != "float":
            errors.refuse("mean and std", "be left out", remedy='or say images="float"')
        if self.preprocess is not None and self.images != "float":
            errors.refuse("preprocess", "be left out", remedy='or say images="float"')
        _check_callable(self.predict)
        self.resolve()

    def resolve(self) -> described_preprocessing.Preprocessing:
        """Return the constants for normalising images, mean and std, with their origins.

        The fields `mean` and `std` take precedence over the values that `preprocess` describes. If
        only one of the two is known, the mean is 0 or the std is 1. If both are unknown, neither is
        in the result, and images stay in [0, 1]. Other values that `preprocess` describes, such as
        "size", are returned, too. ValueError for invalid values.
        """
        described = described_preprocessing.Preprocessing()
        if self.preprocess is not None:
            described = described_preprocessing.parse(self.preprocess)
        explicit = {"mean": self.mean, "std": self.std}
        # If only one of the two is given, the other is neutral.
        has_values = any(x is not None for x in explicit.values()) or described.values
        neutral = {"mean": 0.0, "std": 1.0} if has_values else {}
        return described_preprocessing.resolve(described, explicit, neutral)

    @property
    def code(self) -> str:
        """Return the path of the file that defines `predict`, or its class, for error messages.

        "" if unknown.
        """
        function = inspect.unwrap(self.predict)
        while isinstance(function, functools.partial):
            function = function.func
        for source in (function, type(function)):
            try:
                return inspect.getsourcefile(source) or ""
            except TypeError:
                continue
        return ""


@dataclasses.dataclass(frozen=True, eq=False)
class PredictorNetwork(networks.Network):
    """A network made of a `Predictor` with checked outputs; implements inference.BoundNetwork."""

    predictor: Predictor
    kind: str  # One of KINDS.
    output_names: tuple[str, ...]  # The classes, as the function names them.
    variables: Any = ()

    @property
    def preprocessing(self) -> dict[str, Any]:
        """Return "images" (their form) and "size", and "mean" and "std" as lists if they are given.

        With `preprocess`, both mean and std are returned.
        """
        predictor = self.predictor
        description = {"images": predictor.images, "size": predictor.size}
        applied = predictor.resolve().values
        for key, value in {"mean": predictor.mean, "std": predictor.std}.items():
            if value is not None or predictor.preprocess is not None:
                description[key] = list(applied[key])
        return description

    @property
    def graded(self) -> bool:
        """Return True if outputs contain more than the decided class."""
        return self.kind != "names"

    @property
    def net(self) -> taps.Readable | None:
        """Return the predictor's `net`; None if activations cannot be read."""
        return self.predictor.net

    @functools.cached_property
    def apply(self) -> Callable | None:
        """Return a function (variables, images) -> logits, always the same object.

        None if the predictor has no `apply`.
        """
        apply = self.predictor.apply
        return apply and (lambda variables, image: apply(image))

    @functools.cached_property
    def at(self) -> Callable | None:
        """Return the function `at` of an inference.BoundNetwork, always the same object.

        None if the predictor has no `at`.
        """
        at = self.predictor.at
        return at and (lambda variables, image, site: at(image, site))

    def predict(
        self, image: shown.Images, origin: inference.StimulusOrigin
    ) -> Float[np.ndarray, "b k"]:
        """Return the logits of images in [0, 1].

        origin: the set and condition that the images are from. For probabilities, logits are
        their logarithms; for class names, 0 for the named class and -100 for others. ValueError
        if the function takes files and the images are not unchanged images of a set; for other
        errors see `query`.
        """
        where = f"{len(image)} images of {origin.dataset}"
        if origin.condition:
            where += f", {origin.condition}"
        if self.predictor.images != "files":
            images = _to_input(self.predictor, np.array(image))
        elif origin.source is None:
            raise ValueError(
                "needs images that are made, and predict takes files as they are stored; "
                'take images="uint8", or leave the measure out'
            )
        else:
            rows = np.asarray(origin.index)
            images = [sources.read_encoded(origin.source, int(row)) for row in rows]
        _, logits = query(self.predictor, images, self.output_names, where, self.kind)
        return logits


def _to_input(
    predictor: Predictor, image: Float[np.ndarray, "b h w 3"]
) -> Shaped[np.ndarray, "b h w 3"]:
    """Return images, given in [0, 1], in the form that the function takes.

    uint8 for predictor.images == "uint8"; else floats, normalised if there are mean and std.
    """
    if predictor.images == "uint8":
        return np.rint(image * np.float32(255)).astype(np.uint8)
    applied = predictor.resolve().values
    if "mean" not in applied:
        return image
    return (image - np.float32(applied["mean"])) / np.float32(applied["std"])


def _to_float32(logits: Shaped[np.ndarray, "b k"]) -> Float[np.ndarray, "b k"]:
    """Return logits in float32 without new ties.

    A row that would have a new tie in float32, such as 1e9 + logit, is shifted by its largest
    number, which changes neither its order nor its softmax; -inf stays. Numbers too large
    for float32 become infinite. Not for probabilities, which a shift would change.
    """
    with np.errstate(over="ignore"):
        rounded = logits.astype(np.float32)
    if logits.dtype.itemsize <= rounded.dtype.itemsize and logits.dtype.kind == "f":
        return rounded
    has_largest = np.isfinite(
        logits.max(axis=1)
    )  # The maximum of a row with NaN is NaN.
    has_new_tie = _count_distinct(rounded) < _count_distinct(logits)
    for row in np.flatnonzero(has_largest & has_new_tie):
        with np.errstate(over="ignore"):
            # Not the other way round: unsigned numbers cannot be below 0.
            below = logits[row].max() - logits[row]
            rounded[row] = -below.astype(np.float32)
    return rounded


def _are_probabilities(answers: Shaped[np.ndarray, "b k"]) -> bool:
    """Return True if no number is below 0 and each row sums to 1, within 0.01."""
    if not (answers >= 0).all():
        return False
    with np.errstate(over="ignore"):
        sums = answers.sum(axis=1, dtype=np.float64)
    return bool(np.abs(sums - 1).max() < 1e-2)


def _count_distinct(rows: Shaped[np.ndarray, "b k"]) -> Int[np.ndarray, "b"]:
    """Return the number of different values in each row."""
    ordered = np.sort(rows, axis=1)
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)


def query(
    predictor: Predictor,
    images: Any,
    classes: Sequence[str],
    where: str,
    kind: str = "",
) -> tuple[str, Float[np.ndarray, "b k"]]:
    """Call the function on images and return (kind of its outputs, float32 logits).

    The kind is one of KINDS; PredictorNetwork.predict describes the logits of other kinds.
    images: in the form that the function takes. classes: the names of the outputs. where: the
    images in words, for messages. kind: the required kind, one of KINDS; "": any. ValueError
    if the function raises an error or returns something invalid; errors.NotFiniteError for
    NaN or infinite numbers.
    """
    n = len(images)
    remedy = f"{_AGAIN}{_module_remedy(predictor.predict)}"
    code = predictor.code or "predict"
    with (
        messages.user_code(
            code,
            describe_call=lambda: f"asked about {where}; {remedy}",
            catch_all=True,
        ),
        xla.callers_settings(),
    ):
        result = predictor.predict(images)
    answers = _to_array(result)
    if answers.dtype.kind in "UO" and answers.shape == (n,):
        result_kind = "names"
        names = [str(name) for name in answers]
        decided = _class_numbers(names, tuple(classes), where)
        logits = np.where(decided[:, None] == np.arange(len(classes)), 0, _NOT_NAMED)
    else:
        _check_shape(predictor, result, answers, (n, len(classes)), where)
        result_kind, logits = _numbers_to_logits(answers, kind, where)
    if kind and result_kind != kind:
        raise ValueError(
            f"predict: asked about {where}, must give {kind}, got {result_kind}; say "
            "outputs="
        )
    return result_kind, logits.astype(np.float32)


def _check_shape(
    predictor: Predictor,
    result: Any,
    answers: Shaped[np.ndarray, "..."],
    shape: tuple[int, int],
    where: str,
) -> None:
    """Raise ValueError unless a function's result has numbers and the shape (images, classes).

    result: the function's result. answers: the result as an array. shape: the required shape.
    where: the images in words, for the message.
    """
    n, k = shape
    is_numeric = answers.dtype.kind in "fiu"
    if is_numeric and answers.ndim == 2 and len(answers) == n != 0:
        _check_count(predictor.classes, k, answers.shape[1])
    if answers.shape != (n, k) or not is_numeric:
        got = f"{answers.dtype} {answers.shape}"
        if answers.dtype.kind == "O":
            got = f"{_kind_in_words(result)}{_attribute_remedy(result)}"
        raise ValueError(
            f"predict: asked about {where}, must give {n} rows of {k:,} numbers, or "
            f"{n} class names, got {got}; `classes` (--classes, "
            f"imagenet if not given) must name all outputs in order; {_AGAIN}"
        )


def _numbers_to_logits(
    answers: Shaped[np.ndarray, "b k"], kind: str, where: str
) -> tuple[str, Float[np.ndarray, "b k"]]:
    """Return ("logits" or "probabilities", float32 logits) of a function's numbers.

    For probabilities, logits are their logarithms. kind: "logits", "probabilities" or, to
    determine it from the numbers, any other text. where: the images in words, for messages.
    errors.NotFiniteError, a ValueError, for numbers that are not finite (a logit may be -inf);
    ValueError for invalid probabilities.
    """
    are_probabilities = _are_probabilities(answers)
    if kind not in ("logits", "probabilities"):
        kind = "probabilities" if are_probabilities else "logits"
    if kind == "probabilities":
        with np.errstate(over="ignore"):
            logits = answers.astype(np.float32)
    else:
        logits = _to_float32(answers)
    broken = np.flatnonzero(~inference.has_decision(logits, logits, np))
    if len(broken):
        row = logits[broken[0]]
        worst = row[np.isnan(row) | np.isposinf(row)]
        raise errors.NotFiniteError(
            f"predict: asked about {where}, must give finite numbers, got "
            f"{worst[0] if len(worst) else -np.inf} for {len(broken)} of them, first "
            f"number {broken[0]}; {_AGAIN}"
        )
    if kind == "logits":
        return kind, logits
    if not are_probabilities:
        raise ValueError(
            f"predict: asked about {where}, probabilities must be at least 0 and "
            f"sum to 1, got rows that sum to {logits.sum(1).min():.4g} to "
            f"{logits.sum(1).max():.4g}; {_AGAIN}"
        )
    return kind, np.log(np.maximum(logits, np.finfo(np.float32).tiny))


def _check_count(
    classes: str | Sequence[str] | Mapping[str, str], count: int, outputs: int
) -> None:
    """Raise ValueError unless the number of listed classes is the number of outputs.

    classes: the `classes` of a Predictor, for the message. count: the number of listed
    classes. outputs: the number of the function's outputs.
    """
    if count == outputs:
        return
    listed, remedy = f"{count:,} classes are listed", "list all outputs in order"
    if isinstance(classes, str):
        is_known_list = classes == class_maps.IMAGENET
        rows = "classes" if is_known_list else "rows"
        listed = f"{classes} has {count:,} {rows}"
        remedy = class_maps.listing_remedy("" if is_known_list else classes)
    raise ValueError(
        f"--classes: {listed}, the model has {outputs:,} outputs; {remedy} (classes= in "
        "Python)"
    )


def _class_numbers(
    names: Sequence[str], classes: tuple[str, ...], where: str
) -> Int[np.ndarray, "b"]:
    """Return the position of each name in `classes`; ValueError for an unknown name.

    Accented letters may be encoded otherwise than in `classes`. where: the images in words, for
    the message.
    """
    numbers = {name: i for i, name in enumerate(classes)}
    for name in sorted({*names} - {*classes}):
        (known,) = base.match_spelling((name,), classes)
        errors.check_known(f"predict: asked about {where}", known, numbers, "class")
        numbers[name] = numbers[known]
    return np.array([numbers[name] for name in names])


def _check_callable(predict: Any) -> None:
    """Raise ValueError unless `predict` can be called with one argument and returns its result.

    Classes, async functions and generators are refused.
    """
    if inspect.isclass(predict):
        remedy = f"give an object of it, {predict.__name__}(...)"
        errors.refuse("predict", "be a function of images", predict, remedy)
    inner = predict
    while isinstance(inner, functools.partial):
        inner = inner.func
    for function in (inner, type(inner).__call__):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
            function
        ):
            remedy = "write `def` without `async`, with asyncio.run inside"
            errors.refuse("predict", "not be an async function", predict, remedy)
        if inspect.isgeneratorfunction(function):
            errors.refuse("predict", "return its answers, not yield them", predict)
    try:
        signature = inspect.signature(predict)
    except (TypeError, ValueError) as error:
        if isinstance(predict, functools.partial) and "incorrect" in str(error):
            errors.refuse(
                "predict", "be called with one argument, a batch of images", error
            )
        return  # Functions that are not written in Python may have no signature.
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(predict, "__name__", type(predict).__name__)
        must = "be called with one argument, a batch of images"
        raise ValueError(
            f"predict: must {must}, got {name}{signature} ({error}); give further "
            "arguments defaults, or by functools.partial"
        ) from None


def _to_array(result: Any) -> np.ndarray:
    """Return a function's result as an array of numbers or names.

    result: may be a PyTorch tensor on any device, or a list of such tensors. A result that
    cannot be converted, such as rows of different lengths, becomes np.array(None, object).
    """
    if inspect.iscoroutine(result):
        result.close()
    try:
        is_list = isinstance(result, list | tuple) and len(result) > 0
        if is_list and all(hasattr(x, "detach") for x in result):
            result = [np.asarray(x.detach().float().cpu()) for x in result]
        if hasattr(result, "detach"):
            result = result.detach().float().cpu()
        array = np.asarray(result)
        if array.dtype.kind == "V" and array.dtype.names is None:
            array = array.astype(np.float32)  # Such as bfloat16 of JAX.
    except (
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
    ):  # Such as ragged rows.
        return np.array(None, object)
    return array


def _kind_in_words(result: Any) -> str:
    """Return the type and length of a function's result as text, such as "a list of 2 (str)"."""
    kind = "None" if result is None else f"a {type(result).__name__}"
    if isinstance(result, list | tuple | Mapping):
        inner = sorted({type(x).__name__ for x in result})
        kind += f" of {len(result)} ({', '.join(inner[:3])})"
    return kind


def _attribute_remedy(result: Any) -> str:
    """Return the advice to return the result's `logits`; "" if it has no such attribute."""
    names = result if isinstance(result, Mapping) else dir(result)
    return "; return its `logits`" if "logits" in names else ""


def _module_remedy(predict: Any) -> str:
    """Return the advice to wrap a module of PyTorch; "" for anything else."""
    is_module = hasattr(predict, "named_modules") and hasattr(predict, "state_dict")
    return "; give a module of PyTorch as jbias.torch.wrap(module)" if is_module else ""


def trial_images(size: int) -> UInt8[np.ndarray, "16 size size 3"]:
    """Return sixteen fixed images of coarse and fine noise, to test and identify a model.

    size: side of the images, in pixels.
    """
    rng, side = np.random.default_rng(0), -(-size // 4)
    coarse = rng.integers(0, 224, (_NUM_TRIAL_IMAGES, 4, 4, 3))
    coarse = coarse.repeat(side, 1).repeat(side, 2)
    fine = rng.integers(0, 32, (_NUM_TRIAL_IMAGES, size, size, 3))
    return (coarse[:, :size, :size] + fine).astype(np.uint8)


def _bytes_to_input(
    predictor: Predictor, images: UInt8[np.ndarray, "b size size 3"]
) -> Any:
    """Return images in the form that a function takes: an array, or a list of PNG files' bytes."""
    if predictor.images == "files":
        return [sources.to_png(image) for image in images]
    return _to_input(predictor, images.astype(np.float32) / 255)


def open_predictor(
    predictor: Predictor,
    size: int,
    say: console.Say,
    *,
    trained: str = "",
    method: str = "",
    sets: Sequence[str] = (),
) -> PredictorNetwork:
    """Return the network of a function, after a trial with sixteen images.

    size: side of the suite's images in pixels. say: called with lines on the outputs and on the
    preprocessing of images. trained, method: names of the training set and method, for the
    records. sets: preparations of the suite's sets, in words (`describe_sets`). ValueError if
    the function takes images of another size, raises an error, or has invalid outputs.
    """
    if predictor.size not in (0, size):
        raise ValueError(
            f"predict: takes images of {predictor.size} pixels, and the suite has {size}; "
            f"add size={predictor.size} to the suite's arguments, as in "
            f"jbias:suites/biases:size={predictor.size}"
        )
    space = class_maps.of_outputs(predictor.classes)
    output_names = tuple(class_maps.resolve_outputs(predictor.classes))
    function = predictor.predict
    function_name = getattr(function, "__name__", type(function).__name__)
    name = predictor.name or function_name.strip("<>")
    images = _bytes_to_input(predictor, trial_images(size))
    kind, logits = query(
        predictor, images, output_names, "sixteen trial images", predictor.outputs
    )
    decided = [space.classes[i] for i in logits.argmax(1)]
    identity = [predictor.version or decided, kind, space.answers]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    say(f"{name}: gives {kind} of {len(space.classes):,} classes, {space.space}")
    if predictor.images == "float":
        line = described_preprocessing.describe(predictor.resolve(), size, sets)
    else:
        line = f"{predictor.images} as they are; preprocessing is the function's own"
    say(f"{name}: {line}")
    fields = {
        "run": name,
        "algorithm": name,
        "variant": method,
        "model": name,
        "train_data": trained or "unknown",
        "stage": 0,
        "seed": 0,
        "step": 0,
        "epoch": 0.0,
    }
    about = {
        "category": name,
        "answers": dict(space.answers),
        "preprocessing": line,
    }
    if predictor.factors:
        about["factors"] = dict(predictor.factors)
    return PredictorNetwork(
        name=name,
        classes=space.classes,
        space=space.space,
        digest=digest,
        fields=fields,
        about=about,
        predictor=predictor,
        kind=kind,
        output_names=output_names,
    )


Measured = measured.Measured


def measure(
    predict: Callable[[Any], Any] | Predictor,
    suite: str,
    *,
    out: str | os.PathLike = "measured",
    only: Sequence[str] = (),
    changes: Sequence[str] = (),
    trained: str = "",
    method: str = "",
    **options: Any,
) -> Measured:
    """Measure a function on a suite, as `jbias evaluate --predict` does, and return the results.

    predict: images -> logits, probabilities or class names, or a `Predictor`. options: fields
      of Predictor to set: classes, name, images, mean, std, preprocess, size, outputs, version.
    suite: such as "jbias:suites/biases:data=imagenet,root=DIR", or a file of your own.
      only: names of its measures to run; empty: all. changes: overrides of its entries, such
      as "--suite.run.batch=8".
    out: the parent of the model's folder of results; a call that was stopped continues
      there.
    trained, method: the training set and the training method, for reports.

    ValueError for invalid arguments, or if nothing was measured; other measures that fail are
    in the result's `left_out`.
    """
    say = console.logger(None)
    with xla.fixed_settings() as overridden:
        for line in overridden:
            say(line)
        predictor = as_predictor(predict, **options)
        config = jc.load(suite, changes, flag="suite")
        opened = suites.open_suite(config, say, only=only)
        remedy = "size=N among the suite's arguments changes the size"
        for line in model_inputs.describe_enlarged(opened.sources, opened.size, remedy):
            say(line)
        network = open_predictor(
            predictor,
            opened.size,
            say,
            trained=trained,
            method=method,
            sets=describe_sets(opened),
        )
        out_folder = epath.Path(out)
        lacking = runner.run_suite(
            network, opened, out_folder, say, has_all_measures=not only
        )
    folder = pathlib.Path(out_folder / network.name)
    if not any((folder / "evals").glob("*.jsonl")):
        reason = lacking[0] if lacking else "the suite has no measures"
        raise ValueError(f"nothing was measured of {network.name}; {reason}")
    return measured.read(
        folder, left_out=[*opened.missing_lines, *lacking], first=[*config["sets"]]
    )


def describe_sets(suite: suites.Suite) -> list[str]:
    """Return the distinct preparations of a suite's sets, in words (Source.preprocessing)."""
    return list(
        dict.fromkeys(source.preprocessing for source in suite.sources.values())
    )


def load(path_and_name: str, **options: Any) -> Predictor:
    """Return a Predictor for the function, or Predictor, at `path/to/file.py:name`.

    options: fields of Predictor to set or change. ValueError if there is no such object.
    """
    return as_predictor(load_model(path_and_name, "--predict"), **options)


def load_model(path_and_name: str, where: str) -> Any:
    """Return the function, module or Predictor at `path/to/file.py:name`.

    A class is called without arguments. where: start of error messages. ValueError as
    `load_object`, for a class that needs arguments, and for an object that is no function.
    """
    loaded = load_object(path_and_name, where)
    path, _, name = path_and_name.rpartition(":")
    if inspect.isclass(loaded):
        loaded = _make_object(loaded, path, name, where)
    if not (callable(loaded) or isinstance(loaded, Predictor)):
        must = "be a function of images, a module of PyTorch or a Predictor"
        remedy = "name one of these in the file"
        errors.refuse(f"{where}: {path}", must, loaded, remedy, name=name)
    return loaded


def _make_object(cls: type, path: str, name: str, where: str) -> Any:
    """Return cls(); arguments: the file and the name of the class, and the start of messages.

    ValueError for a class that needs arguments, and if the call raises an error.
    """
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # Classes that are not written in Python may have no signature.
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise ValueError(
            f"{where}: {path}: the class {name} needs arguments ({', '.join(needed)}); make an "
            f"object in the file, net = {name}(...), and give {path}:net"
        )
    with messages.user_code(
        os.path.abspath(path),
        describe_call=lambda: f"called {name}()",
        catch_all=True,
    ):
        return cls()


def load_object(path_and_name: str, where: str) -> Any:
    """Return the object at `path/to/file.py:name`, by importing the file.

    The file's folder is added to sys.path. where: start of error messages. ValueError if the
    file or the name does not exist, if the file is not *.py, or if the import fails.
    """
    model_paths.check_code(path_and_name, where)
    path, _, name = path_and_name.rpartition(":")
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # The file may import its neighbours.
    with messages.user_code(path, catch_all=True):
        namespace = vars(jc.import_file("predict", path))
    known = {key: value for key, value in namespace.items() if not key.startswith("__")}
    errors.check_known(f"{where}: {path}", name, known)
    return known[name]


def count_outputs(predictor: Predictor, size: int) -> int:
    """Return the number of a function's outputs per image; 0 if they are not a table of numbers.

    The function is called with two images. size: their side, in pixels. ValueError if the
    function raises an error.
    """
    images = _bytes_to_input(predictor, trial_images(size)[:2])
    remedy = f"{_AGAIN}{_module_remedy(predictor.predict)}"
    context = f"asked about two trial images; {remedy}"
    code = predictor.code or "predict"
    with (
        messages.user_code(code, describe_call=lambda: context, catch_all=True),
        xla.callers_settings(),
    ):
        answers = _to_array(predictor.predict(images))
    is_numbers = answers.ndim == 2 and answers.dtype.kind in "fiu"
    return answers.shape[1] if is_numbers else 0


def as_predictor(
    function: Callable[[Any], Any] | Predictor, **options: Any
) -> Predictor:
    """Return a Predictor of a function, or a Predictor with some options changed.

    options: fields of Predictor to set. ValueError for an invalid value, and if mean, std or
    preprocess would change in a Predictor with `apply`.
    """
    if isinstance(function, Predictor):
        fixed = {"mean", "std", "preprocess"} if function.apply else set()
        for key in sorted(fixed & options.keys()):
            errors.refuse(key, "be said where gradients are, as in jbias.torch.wrap")
        return dataclasses.replace(function, **options)
    return Predictor(function, **options)
