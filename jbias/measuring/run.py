"""Open a model and the images that are there, measure, and return what was measured."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from jbias import config as jc
from jbias.data import labels
from jbias.evals import command as commands
from jbias.evals import (
    decided,
    measured,
    model_inputs,
    networks,
    predictors,
    preprocessing,
    probe,
    runner,
)
from jbias.evals import suite as suites
from jbias.measuring import models, sets
from jbias.runs import results
from jbias.runtime import messages, xla

# Pixels, where nothing says another size.
_SIZE, _SIZE_OF_SHAPES = 224, 32
# Measures that decisions made elsewhere can give.
_OF_DECISIONS = ("accuracy", "classes", "shape_bias", "human")


def measure(
    model: Any,
    suite: str | None = None,
    *,
    stimuli: str | os.PathLike | None = None,
    imagenet: str | os.PathLike | None = None,
    data: str | os.PathLike | None = None,
    humans: str | os.PathLike | None = None,
    size: int | None = None,
    images: int | str = 0,
    only: Sequence[str] = (),
    changes: Sequence[str] = (),
    out: str | os.PathLike = "measured",
    random_weights: bool = False,
    classes: Any = None,
    trained: str = "",
    method: str = "",
    columns: str | None = None,
    step: str | None = None,
    **options: Any,
) -> measured.Measured | measured.MeasuredNetworks:
    """Measure a model on the images that are there; see jbias.measure."""
    if isinstance(images, str):  # What a function takes: an option of Predictor.
        options["images"], images = images, 0
    if suite is not None:
        if images:
            raise ValueError(
                "images: says nothing with a suite; leave it out, or name the suite "
                f"with :images={images}"
            )
        for key, value in {
            "stimuli": stimuli,
            "imagenet": imagenet,
            "data": data,
        }.items():
            if value is not None:
                raise ValueError(
                    f"{key}: says nothing with a suite; leave one of the two"
                )
        if size is not None:
            options["size"] = size
        if classes is not None:
            options["classes"] = classes
        return _by_suite(
            model,
            suite,
            out=out,
            only=only,
            changes=changes,
            trained=trained,
            method=method,
            **options,
        )
    settings = models.Settings(
        random_weights=random_weights,
        classes=classes,
        columns=columns,
        step=step,
        trained=trained or None,
        method=method or None,
    )
    folders = sets.Folders(stimuli=stimuli, imagenet=imagenet, data=data, humans=humans)
    call = commands.Command("measured")
    with xla.fixed_settings() as overridden:
        for line in overridden:
            call.say(line)
        found = _measure(
            model,
            folders,
            call=call,
            settings=settings,
            size=size,
            images=images,
            only=only,
            changes=changes,
            out=out,
            options=options,
        )
    if not found:
        reasons = "; ".join(call.left_out.values()) or "no network was given"
        raise ValueError(f"nothing was measured: {reasons}")
    return found[0] if len(found) == 1 else measured.MeasuredNetworks(found)


def _by_suite(model: Any, suite: str, **options: Any) -> measured.Measured:
    """Return what a suite measures of a module, a Predictor, a function or a text of one."""
    if isinstance(model, str):
        must = (
            "be a function, a module of PyTorch or a Predictor where a suite is given"
        )
        remedy = "leave the suite out, or run `jbias evaluate`"
        jc.refuse("measure: model", must, model, remedy)
    if hasattr(model, "named_modules") and hasattr(model, "state_dict"):
        from jbias import torch

        of_wrap = ("mean", "std", "preprocess", "size", "name", "sites", "classes")
        of_wrap += ("version",)
        given = {key: options.pop(key) for key in of_wrap if key in options}
        model = torch.wrap(model, **given)
    return predictors.measure(model, suite, **options)


def command(
    model: str,
    folders: sets.Folders,
    *,
    settings: models.Settings,
    size: int | None,
    images: int,
    only: Sequence[str],
    changes: Sequence[str],
    out: str,
    devices: int,
) -> int:
    """Measure what a command line names, print a table; return the exit code."""
    call = commands.Command("measured")
    if devices:
        changes = [*changes, f"--suite.run.devices={devices}"]
    found = _measure(
        model,
        folders,
        call=call,
        settings=settings,
        size=size,
        images=images,
        only=only,
        changes=changes,
        out=out,
        options={},
    )
    if not found and not call.left_out:
        raise ValueError(f"MODEL: no network was found at {model!r}; check the path")
    for network in found:
        messages.print_text(repr(network))
    if found:
        report = f"jbias report measured --measured='{out}/*' --out=report-measured"
        call.say(f"a page of all that is in {out}: {report}")
    return call.code


def _measure(
    model: Any,
    folders: sets.Folders,
    *,
    call: commands.Command,
    settings: models.Settings,
    size: int | None,
    images: int,
    only: Sequence[str],
    changes: Sequence[str],
    out: str | os.PathLike,
    options: Mapping[str, Any],
) -> list[measured.Measured]:
    """Return what was measured of each network; `call` keeps what was left out."""
    folders = sets.check(folders)
    opened = models.read(
        model, settings, options=options, say=call.say, refuse=call.leave_out
    )
    if folders.is_empty and _are_of_shapes(opened):
        call.say("trained on the embedded set shapes, on which it is measured")
        folders = folders._replace(data=sets.SHAPES)
    if folders.is_empty:
        raise ValueError(
            "measure: nothing to measure with; give --stimuli=DIR (shape bias), "
            "--imagenet=DIR or --data=DIR (stimuli=, imagenet= or data= in Python)"
        )
    is_own = folders.data and folders.data != sets.SHAPES
    own = sets.find_images(folders.data) if is_own else None
    default = _SIZE_OF_SHAPES if folders.data == sets.SHAPES else _SIZE
    inputs = _inputs(opened, size, default)
    has_photographs = bool(folders.imagenet or folders.data)
    line = model_inputs.describe(inputs, has_photographs=has_photographs)
    if inputs.origins["size"] == "by default":
        line += "; --size=N changes the size"
    call.say(f"images: {line}")
    if opened.predictor is not None:
        opened = _settle(opened, settings, folders, own, inputs.size, call.say)
    plan = sets.plan(
        folders, own, size=inputs.size, images=images, space=_space(opened)
    )
    predictor = opened.predictor
    if predictor is not None and not only:
        impossible = sets.remove_impossible(
            plan.config,
            has_gradients=predictor.apply is not None,
            has_sites=predictor.net is not None,
        )
        if impossible:
            why = (
                "a function gives no gradients and shows nothing inside; give a module"
            )
            call.say(f"not measured: {impossible}: {why} of PyTorch")
    config = _changed(plan.config, inputs, changes)
    if opened.decisions:
        only = only or [name for name in _OF_DECISIONS if name in config["measures"]]
    asked = suites.open_suite(config, call.say, only=only)
    found = []
    for network in _open(opened, asked, settings, call):
        done = _run(network, asked, epath.Path(out), call, whole=not only)
        if done is not None:
            found.append(dataclasses.replace(done, first=plan.first))
    if plan.missing and not only:
        call.say(plan.missing)
    return found


def _are_of_shapes(opened: models.Model) -> bool:
    """Return whether all networks were trained on the embedded set."""
    trained = [network.fields["train_data"] for network in opened.loaded]
    return bool(trained) and {*trained} == {sets.SHAPES}


def _inputs(
    opened: models.Model, size: int | None, default: int
) -> model_inputs.Inputs:
    """Return how images are prepared: as the caller, a run's config or the model says.

    size, default: in pixels: what the caller says, and what counts where nobody does.
    """
    said = opened.said
    sizes = {
        network.about["config"]["size"]
        for network in opened.loaded
        if "config" in network.about
    }
    if len(sizes) > 1:
        raise ValueError(
            f"MODEL: networks must have images of one size, got {sorted(sizes)} pixels; "
            "measure them one after the other"
        )
    if sizes:
        said = preprocessing.Preprocessing({"size": sizes.pop()}, {"size": "the run"})
    return model_inputs.choose(said, size=size, default=default)


def _settle(
    opened: models.Model,
    settings: models.Settings,
    folders: sets.Folders,
    own: sets.OwnImages | None,
    size: int,
    say: probe.Say,
) -> models.Model:
    """Return a model whose predictor knows its classes, and leaves the crop to the sets."""
    if folders.data == sets.SHAPES:
        from jbias import data

        names = tuple(data.load(sets.SHAPES, "test", n=16).classes)
    else:
        names = own.classes if own else ()
    is_shapes = folders.data == sets.SHAPES
    words = "classes of the embedded set" if is_shapes else models.OF_FOLDERS
    classes, why = models.settle_classes(
        opened.predictor,
        settings,
        size=size,
        folders=names,
        folders_in_words=words,
        has_stimuli=bool(folders.stimuli),
    )
    if why:
        say(f"classes: {why}")
    said = opened.said
    constants = {key: x for key, x in said.values.items() if key in ("mean", "std")}
    kept = preprocessing.Preprocessing(constants, said.origins, said.others)
    predictor = dataclasses.replace(
        opened.predictor,
        classes=classes,
        size=size,
        preprocess=kept if constants else None,
    )
    return opened._replace(predictor=predictor)


def _space(opened: models.Model) -> str:
    """Return the space of a model's classes, as data.labels has it."""
    if opened.decisions:
        return "entry16"
    if opened.predictor is not None:
        space = labels.of_outputs(opened.predictor.classes).space
        return "entry16" if space == "names" else space
    spaces = {network.space for network in opened.loaded}
    return spaces.pop() if len(spaces) == 1 else "names"


def _changed(
    config: Any, inputs: model_inputs.Inputs, changes: Sequence[str]
) -> dict[str, Any]:
    """Return a suite whose sets are prepared for the model, with the user's changes."""
    jc.change(config, changes, flag="suite")
    config = jc.to_dict(config)
    config["sets"] = model_inputs.prepare(config["sets"], inputs)
    return config


def _open(
    opened: models.Model,
    asked: suites.Suite,
    settings: models.Settings,
    call: commands.Command,
) -> Sequence[networks.Network]:
    """Return the networks to measure."""
    if opened.decisions:
        columns = decided.parse_columns(settings.columns or "")
        return [*decided.load(opened.decisions, asked, columns)]
    if opened.predictor is None:
        return opened.loaded
    network = predictors.open_predictor(
        opened.predictor,
        asked.size,
        call.say,
        trained=settings.trained or "",
        method=settings.method or "",
        sets=predictors.prepared_ways(asked),
    )
    return [network]


def _run(
    network: networks.Network,
    asked: suites.Suite,
    out: epath.Path,
    call: commands.Command,
    *,
    whole: bool,
) -> measured.Measured | None:
    """Return what a suite measures of a network; None where that is nothing."""
    try:
        lacking = runner.run_suite(network, asked, out, call.say, whole=whole)
    except networks.NETWORK_ERRORS as error:
        reason = f"{network.name}: {networks.describe_error(error)}"
        call.leave_out(network.name, reason)
        return None
    if lacking:
        call.left_out[network.name] = lacking[0]
    folder = pathlib.Path(out / network.name)
    if not any((folder / "evals").glob("*.jsonl")):
        return None
    call.done.append(network.name)
    return measured.Measured(folder, results.read(folder), tuple(lacking))
