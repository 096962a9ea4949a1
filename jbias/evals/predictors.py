"""Anybody's model as a network to measure: a function that answers images.

    def predict(images):  # uint8 (b, 224, 224, 3)
        return session.run(None, {"x": images})[0]  # (b, 1000)

    model = Predictor(predict, classes="imagenet", images="uint8", size=224)

What is behind the function is its own affair: NumPy, PyTorch, JAX, ONNX Runtime, a server.
It needs no JAX; what makes stimuli does. Measures that need gradients, or sites inside, are
made where `apply`, `at` and `net` are given, as jbias.torch.wrap does.
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
from jaxtyping import Array, Float, UInt8

from jbias import config as jc
from jbias.data import base, labels, sources
from jbias.evals import (
    inference,
    measured,
    model_inputs,
    networks,
    preprocessing,
    probe,
    runner,
    suites,
)
from jbias.models import taps
from jbias.runtime import console, messages, xla

FORMS = ("float", "uint8", "files")
KINDS = ("logits", "probabilities", "names")
_AGAIN = "correct it, and the same command goes on"
_SAMPLES = 16
_NOT_NAMED = -100  # Next to the logit 0 of a class that is named: no probability.


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """A function that answers images, and what must be known of it.

    predict: images -> (b, k) logits or probabilities, or b class names. Batches are all
      of one size, the last of a set filled up by its last image.
    classes: what its outputs are, in their order; see data.labels.of_outputs.
    name: of its folder and in reports; by itself that of the function.
    images: what it takes. "float" is float32 (b, h, w, 3) in [0, 1], less `mean` and
      divided by `std`, each three numbers or one; "uint8" likewise from 0 to 255, to which
      stimuli are rounded; "files" a list of the bytes of files as they are stored (PNG
      where a set is in memory), to which a model does its own preprocessing: then only
      measures that show images as they are can be made.
    preprocess: where mean and std are from if they are not given: anything that
      preprocessing.parse reads, such as timm's `pretrained_cfg` or the transforms of
      torchvision's weights. None: nothing is taken off.
    size: of the images that it takes, in pixels; 0 takes any.
    outputs: one of KINDS; "" is found out by asking. Names alone make decisions, no
      probabilities.
    version: tells other weights apart. "" does so by what is decided about sixteen fixed
      images, which a model that does not always decide alike needs to replace.
    apply: float images in [0, 1] -> logits, a function that JAX differentiates, for
      attacks. at: (images, site) -> what passes there and the gradient of each image's
      largest logit. net: what is read at all its sites.
    """

    predict: Callable[[Any], Any]
    classes: str | Sequence[str] | Mapping[str, str] = labels.IMAGENET
    name: str = ""
    images: str = "float"
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    size: int = 0
    outputs: str = ""
    version: str = ""
    apply: Callable[[probe.Images], Array] | None = None
    at: Callable[[probe.Images, str], tuple[Array, Array]] | None = None
    net: taps.Readable | None = None
    preprocess: Any = None

    def __post_init__(self):
        if not callable(self.predict):
            jc.refuse("predict", "be a function of images", self.predict)
        jc.check_known("images", self.images, FORMS)
        if self.outputs:
            jc.check_known("outputs", self.outputs, KINDS)
        constants = [x for x in (self.mean, self.std) if x is not None]
        if constants and self.images != "float":
            jc.refuse("mean and std", "be left out", remedy='or say images="float"')
        if self.preprocess is not None and self.images != "float":
            jc.refuse("preprocess", "be left out", remedy='or say images="float"')
        _check_callable(self.predict)
        self.resolve()

    def resolve(self) -> preprocessing.Preprocessing:
        """Return what is done to its images, and who says so; ValueError if it cannot be."""
        said = preprocessing.Preprocessing()
        if self.preprocess is not None:
            said = preprocessing.parse(self.preprocess)
        explicit = {"mean": self.mean, "std": self.std}
        # One of the two alone is taken with the other's neutral value.
        given = any(x is not None for x in explicit.values()) or said.values
        neutral = {"mean": 0.0, "std": 1.0} if given else {}
        return preprocessing.resolve(said, explicit, neutral)

    @property
    def code(self) -> str:
        """The file that the function is written in, whose lines errors name."""
        told = inspect.unwrap(self.predict)
        while isinstance(told, functools.partial):
            told = told.func
        for one in (told, type(told)):
            try:
                return inspect.getsourcefile(one) or ""
            except TypeError:
                continue
        return ""


@dataclasses.dataclass(frozen=True, eq=False)
class PredictorNetwork(networks.Network):
    """A `Predictor` that answered once, and a inference.BoundNetwork."""

    predictor: Predictor
    kind: str  # One of KINDS.
    said: tuple[str, ...]  # The classes as the function calls them.
    variables: Any = ()

    @property
    def preprocessing(self) -> dict[str, Any]:
        one = self.predictor
        told = {"images": one.images, "size": one.size}
        applied, given = one.resolve().values, {"mean": one.mean, "std": one.std}
        for key, value in given.items():
            if value is not None or one.preprocess is not None:
                told[key] = list(applied[key])
        return told

    @property
    def graded(self) -> bool:
        return self.kind != "names"

    @property
    def net(self) -> taps.Readable | None:
        return self.predictor.net

    @functools.cached_property
    def apply(self) -> Callable | None:
        """One object, so that programs of it are compiled once."""
        given = self.predictor.apply
        return given and (lambda variables, image: given(image))

    @functools.cached_property
    def at(self) -> Callable | None:
        given = self.predictor.at
        return given and (lambda variables, image, site: given(image, site))

    def predict(
        self, image: probe.Images, shown: inference.StimulusOrigin
    ) -> np.ndarray:
        """Its logits; of probabilities their logarithms, of names 0 and -100."""
        of = f"{len(image)} images of {shown.dataset}"
        where = f"{of}, {shown.condition}" if shown.condition else of
        if self.predictor.images != "files":
            images = _form(self.predictor, np.array(image))
        elif shown.source is None:
            raise ValueError(
                "needs images that are made, and predict takes files as they are stored; "
                'take images="uint8", or leave the measure out'
            )
        else:
            rows = np.asarray(shown.index)
            images = [sources.read_encoded(shown.source, int(row)) for row in rows]
        _, logits = ask(self.predictor, images, self.said, where, self.kind)
        return logits


def _form(one: Predictor, image: Float[np.ndarray, "b h w 3"]) -> np.ndarray:
    if one.images == "uint8":
        return np.rint(image * np.float32(255)).astype(np.uint8)
    applied = one.resolve().values
    if "mean" not in applied:
        return image
    return (image - np.float32(applied["mean"])) / np.float32(applied["std"])


def _to_float32(logits: np.ndarray) -> Float[np.ndarray, "b k"]:
    """Return logits in float32, without a tie that they did not have.

    A row with a new tie in float32, as of 1e9 + logit, is shifted by its largest number:
    its order and its softmax do not change, and -inf stays. Numbers that float32 cannot
    hold become infinite. Not for probabilities, which a shift would change.
    """
    with np.errstate(over="ignore"):
        rounded = logits.astype(np.float32)
    if logits.dtype.itemsize <= rounded.dtype.itemsize and logits.dtype.kind == "f":
        return rounded
    has_largest = np.isfinite(logits.max(axis=1))  # Of a row with NaN this is NaN.
    has_new_tie = _count_distinct(rounded) < _count_distinct(logits)
    for row in np.flatnonzero(has_largest & has_new_tie):
        with np.errstate(over="ignore"):
            # Not the other way round: unsigned numbers cannot be below 0.
            below = logits[row].max() - logits[row]
            rounded[row] = -below.astype(np.float32)
    return rounded


def _are_probabilities(answers: np.ndarray) -> bool:
    """Return whether no number is below 0 and each row sums to 1, up to rounding."""
    if not (answers >= 0).all():
        return False
    with np.errstate(over="ignore"):
        sums = answers.sum(axis=1, dtype=np.float64)
    return bool(np.abs(sums - 1).max() < 1e-2)


def _count_distinct(rows: np.ndarray) -> np.ndarray:
    """Return how many different numbers each row has."""
    ordered = np.sort(rows, axis=1)
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)


def ask(
    one: Predictor, images: Any, classes: Sequence[str], where: str, kind: str = ""
) -> tuple[str, Float[np.ndarray, "b k"]]:
    """Asks for answers; returns of which kind they are, and them as logits.

    kind: what they must be; "" is any. ValueError, one line, where the function raises,
    or answers otherwise than it must.
    """
    n, k = len(images), len(classes)
    told = lambda: f"asked about {where}; {_AGAIN}{_module_remedy(one.predict)}"
    code = one.code or "predict"
    with (
        messages.user_code(code, describe_call=told, catch_all=True),
        xla.callers_settings(),
    ):
        given = one.predict(images)
    answers = _to_array(given)
    if answers.dtype.kind in "UO" and answers.shape == (n,):
        found = "names"
        names = [str(name) for name in answers]
        decided = _class_numbers(names, tuple(classes), where)
        logits = np.where(decided[:, None] == np.arange(k), 0, _NOT_NAMED)
    else:
        is_numeric = answers.dtype.kind in "fiu"
        if is_numeric and answers.ndim == 2 and len(answers) == n != 0:
            _check_count(one.classes, k, answers.shape[1])
        if answers.shape != (n, k) or not is_numeric:
            got = f"{answers.dtype} {answers.shape}"
            if answers.dtype.kind == "O":
                got = f"{_kind_in_words(given)}{_attribute_remedy(given)}"
            raise ValueError(
                f"predict: asked about {where}, must give {n} rows of {k:,} numbers, or "
                f"{n} class names, got {got}; `classes` (--classes, "
                f"imagenet if not given) must name all outputs in order; {_AGAIN}"
            )
        sums = _are_probabilities(answers)
        found = kind if kind in KINDS[:2] else KINDS[int(sums)]
        if found == "probabilities":
            with np.errstate(over="ignore"):
                logits = answers.astype(np.float32)
        else:
            logits = _to_float32(answers)
        broken = np.flatnonzero(~inference.has_decision(logits, logits, np))
        if len(broken):
            row = logits[broken[0]]
            worst = row[np.isnan(row) | np.isposinf(row)]
            raise probe.NotFiniteError(
                f"predict: asked about {where}, must give finite numbers, got "
                f"{worst[0] if len(worst) else -np.inf} for {len(broken)} of them, first "
                f"number {broken[0]}; {_AGAIN}"
            )
        if found == "probabilities":
            if not sums:
                raise ValueError(
                    f"predict: asked about {where}, probabilities must be at least 0 and "
                    f"sum to 1, got rows that sum to {logits.sum(1).min():.4g} to "
                    f"{logits.sum(1).max():.4g}; {_AGAIN}"
                )
            logits = np.log(np.maximum(logits, np.finfo(np.float32).tiny))
    if kind and found != kind:
        raise ValueError(
            f"predict: asked about {where}, must give {kind}, got {found}; say outputs="
        )
    return found, logits.astype(np.float32)


def _check_count(classes: Any, count: int, outputs: int) -> None:
    """Raise ValueError unless as many classes are listed as a function gives numbers.

    classes: as of Predictor, for the message. count: of the listed classes.
    """
    if count == outputs:
        return
    listed, remedy = f"{count:,} classes are listed", "list all outputs in order"
    if isinstance(classes, str):
        is_word = classes == labels.IMAGENET
        rows = "classes" if is_word else "rows"
        listed = f"{classes} has {count:,} {rows}"
        remedy = labels.listing_remedy("" if is_word else classes)
    raise ValueError(
        f"--classes: {listed}, the model has {outputs:,} outputs; {remedy} (classes= in "
        "Python)"
    )


def _class_numbers(
    names: Sequence[str], classes: tuple[str, ...], where: str
) -> np.ndarray:
    """Return the number of each class name; ValueError for an unknown name."""
    numbers = {name: i for i, name in enumerate(classes)}
    for name in sorted({*names} - {*classes}):
        (known,) = base.match_spelling((name,), classes)
        jc.check_known(f"predict: asked about {where}", known, numbers, "class")
        numbers[name] = numbers[known]
    return np.array([numbers[name] for name in names])


def _check_callable(predict: Any) -> None:
    """Raise ValueError unless a function can be called with images alone, and returns."""
    if inspect.isclass(predict):
        remedy = f"give an object of it, {predict.__name__}(...)"
        jc.refuse("predict", "be a function of images", predict, remedy)
    inner = predict
    while isinstance(inner, functools.partial):
        inner = inner.func
    for function in (inner, type(inner).__call__):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
            function
        ):
            remedy = "write `def` without `async`, with asyncio.run inside"
            jc.refuse("predict", "not be an async function", predict, remedy)
        if inspect.isgeneratorfunction(function):
            jc.refuse("predict", "return its answers, not yield them", predict)
    try:
        signature = inspect.signature(predict)
    except (TypeError, ValueError) as error:
        if isinstance(predict, functools.partial) and "incorrect" in str(error):
            jc.refuse(
                "predict", "be called with one argument, a batch of images", error
            )
        return  # Of a function that is not written in Python none is known.
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(predict, "__name__", type(predict).__name__)
        must = "be called with one argument, a batch of images"
        raise ValueError(
            f"predict: must {must}, got {name}{signature} ({error}); give further "
            "arguments defaults, or by functools.partial"
        ) from None


def _to_array(given: Any) -> np.ndarray:
    """Return answers as an array; of dtype object where they are no numbers or names.

    PyTorch's may be on any device and have gradients; a list may hold such.
    """
    if inspect.iscoroutine(given):
        given.close()
    try:
        is_list = isinstance(given, list | tuple) and len(given) > 0
        if is_list and all(hasattr(x, "detach") for x in given):
            given = [np.asarray(x.detach().float().cpu()) for x in given]
        if hasattr(given, "detach"):
            given = given.detach().float().cpu()
        array = np.asarray(given)
        if array.dtype.kind == "V" and array.dtype.names is None:
            array = array.astype(np.float32)  # Such as bfloat16 of jax.
    except (
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
    ):  # Such as ragged rows.
        return np.array(None, object)
    return array


def _kind_in_words(given: Any) -> str:
    """Return of what type answers are, and how many, in words."""
    kind = "None" if given is None else f"a {type(given).__name__}"
    if isinstance(given, list | tuple | Mapping):
        inner = sorted({type(x).__name__ for x in given})
        kind += f" of {len(given)} ({', '.join(inner[:3])})"
    return kind


def _attribute_remedy(given: Any) -> str:
    """Return what to return instead, where answers hold the logits under that name."""
    names = given if isinstance(given, Mapping) else dir(given)
    return "; return its `logits`" if "logits" in names else ""


def _module_remedy(predict: Any) -> str:
    """Return how a module of PyTorch is to be given; "" for a function."""
    is_module = hasattr(predict, "named_modules") and hasattr(predict, "state_dict")
    return "; give a module of PyTorch as jbias.torch.wrap(module)" if is_module else ""


def samples(size: int) -> UInt8[np.ndarray, "16 size size 3"]:
    """Fixed images, of coarse and of fine noise, by whose answers a model is known."""
    rng, side = np.random.default_rng(0), -(-size // 4)
    coarse = rng.integers(0, 224, (_SAMPLES, 4, 4, 3)).repeat(side, 1).repeat(side, 2)
    fine = rng.integers(0, 32, (_SAMPLES, size, size, 3))
    return (coarse[:, :size, :size] + fine).astype(np.uint8)


def _as_taken(one: Predictor, images: UInt8[np.ndarray, "b size size 3"]) -> Any:
    """Return images in the form that a function takes: arrays, or files' bytes."""
    if one.images == "files":
        return [sources.to_png(image) for image in images]
    return _form(one, images.astype(np.float32) / 255)


def open_predictor(
    one: Predictor,
    size: int,
    say: probe.Say,
    *,
    trained: str = "",
    method: str = "",
    sets: Sequence[str] = (),
) -> PredictorNetwork:
    """Return the network of a function that answers sixteen images of that size as it must.

    Says in one line what is done to its images. trained, method: what it was trained on
    and with, for its records. sets: how the suite's sets are prepared, in words. ValueError
    in one line where the function does not answer as it must.
    """
    if one.size not in (0, size):
        raise ValueError(
            f"predict: takes images of {one.size} pixels, and the suite has {size}; add "
            f"size={one.size} to the suite's arguments, as in jbias:suites/biases:size="
            f"{one.size}"
        )
    own, said = (
        labels.of_outputs(one.classes),
        tuple(labels.resolve_outputs(one.classes)),
    )
    bare = getattr(one.predict, "__name__", type(one.predict).__name__)
    name = one.name or bare.strip("<>")
    images = _as_taken(one, samples(size))
    kind, logits = ask(one, images, said, "sixteen trial images", one.outputs)
    decided = [own.classes[i] for i in logits.argmax(1)]
    identity = [one.version or decided, kind, own.answers]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    say(f"{name}: gives {kind} of {len(own.classes):,} classes, {own.space}")
    if one.images == "float":
        line = preprocessing.describe(one.resolve(), size, sets)
    else:
        line = f"{one.images} as they are; preprocessing is the function's own"
    say(f"{name}: {line}")
    fields = dict(run=name, algorithm=name, variant=method, model=name)
    fields |= dict(train_data=trained or "unknown", stage=0, seed=0, step=0, epoch=0.0)
    about = {"category": name, "answers": dict(own.answers), "preprocessing": line}
    of = name, own.classes, own.space, digest, fields, about
    return PredictorNetwork(*of, one, kind, said)


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
    """Measures anybody's model by a suite, as `jbias evaluate --predict` does.

    predict: images -> logits, probabilities or class names, or a `Predictor`; `options`
      are those of the latter: classes, name, images, mean, std, preprocess, size, outputs,
      version.
    suite: "jbias:suites/biases:data=imagenet,root=DIR", or a file of your own. only:
      names of its measures. changes: of its entries, such as "--suite.run.batch=8".
    out: where the model's folder is; called again, it goes on where it was stopped.
    trained, method: the data set that it was trained on, and how, for reports.

    ValueError in one line for what is wrong; a measure that fails is left out by name.
    """
    say = console.logger(None)
    with xla.fixed_settings() as overridden:
        for line in overridden:
            say(line)
        one = as_predictor(predict, **options)
        config = jc.load(suite, changes, flag="suite")
        asked = suites.open_suite(config, say, only=only)
        remedy = "size=N among the suite's arguments changes the size"
        for line in model_inputs.describe_enlarged(asked.sources, asked.size, remedy):
            say(line)
        network = open_predictor(
            one,
            asked.size,
            say,
            trained=trained,
            method=method,
            sets=prepared_ways(asked),
        )
        folder = epath.Path(out)
        lacking = runner.run_suite(
            network, asked, folder, say, has_all_measures=not only
        )
    folder = pathlib.Path(folder / network.name)
    if not any((folder / "evals").glob("*.jsonl")):
        raise ValueError(f"nothing was measured of {network.name}; {lacking[0]}")
    return measured.read(
        folder, left_out=[*asked.missing_lines, *lacking], first=[*config["sets"]]
    )


def prepared_ways(asked: suites.Suite) -> list[str]:
    """Return how a suite's sets are prepared, in words, each once."""
    return list(dict.fromkeys(one.preprocessing for one in asked.sources.values()))


def load(named: str, **options: Any) -> Predictor:
    """The function or Predictor of `path/to/file.py:name`; options go before its own."""
    return as_predictor(load_object(named, "--predict"), **options)


def load_object(named: str, where: str) -> Any:
    """Return the object of `path/to/file.py:name`; ValueError, which begins with `where`."""
    path, _, name = named.rpartition(":")
    if not os.path.isfile(path):
        remedy = "no such file"
        if os.path.isfile(named):
            remedy = f"add the function's name, as in {named}:predict"
        jc.refuse(where, "be path/to/file.py:name", named, remedy)
    if not path.endswith(".py"):
        jc.refuse(where, "be a Python file, *.py", path)
    path = os.path.abspath(path)
    if (folder := os.path.dirname(path)) not in sys.path:
        sys.path.insert(0, folder)  # What lies beside it may be imported.
    with messages.user_code(path, catch_all=True):
        every = vars(jc.import_file("predict", path))
    known = {key: one for key, one in every.items() if not key.startswith("__")}
    jc.check_known(f"{where}: {path}", name, known)
    return known[name]


def count_outputs(predictor: Predictor, size: int) -> int:
    """Return the number of outputs per image of a function; 0 if they are no numbers.

    The function is called with two images of that size, in pixels.
    """
    images = _as_taken(predictor, samples(size)[:2])
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


def as_predictor(given: Any, **options: Any) -> Predictor:
    """A function with options, or a Predictor with some of them changed."""
    if isinstance(given, Predictor):
        fixed = {"mean", "std", "preprocess"} if given.apply else set()
        for key in sorted(fixed & options.keys()):
            jc.refuse(key, "be said where gradients are, as in jbias.torch.wrap")
        return dataclasses.replace(given, **options)
    return Predictor(given, **options)
