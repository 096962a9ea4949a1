"""Functions that measure a model on the user's images and return the results."""

import dataclasses
import os
import pathlib
import shlex
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections
from etils import epath

from jbias import config as jc
from jbias import errors, timm_networks
from jbias.answers import columns as answer_columns
from jbias.answers import letter_options
from jbias.data import class_maps
from jbias.evals import command as commands
from jbias.evals import (
    decision_tables,
    described_preprocessing,
    measured,
    model_inputs,
    networks,
    predictors,
    registry,
    runner,
    suites,
    table_suites,
)
from jbias.measuring import arguments, models, sets
from jbias.runtime import console, messages, signals, timm_names, xla

# Default sizes of images, in pixels.
_SIZE, _SIZE_OF_SHAPES = 224, 32
_DEVICES = "--suite.run.devices="


class Request(NamedTuple):
    """A model, the folders of images for its measurement, and options of the measurement.

    model, options: see models.read. size: image side in pixels; None: the model's side,
    else a default. images: number of images for measures that change images; 0: all. only:
    names of measures; empty: all. changes: overrides of the suite's entries, such as
    "--suite.key=value". out: the parent of the networks' folders of results.
    """

    model: Any
    folders: sets.Folders
    settings: models.Settings
    size: int | None = None
    images: int = 0
    only: Sequence[str] = ()
    changes: Sequence[str] = ()
    out: str | os.PathLike = "measured"
    options: Mapping[str, Any] = types.MappingProxyType({})


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
    dataset: str = "",
    parse: str = "published",
    letters: str = "",
    step: str | None = None,
    **options: Any,
) -> measured.Measured | measured.MeasuredNetworks:
    """Measure a model; return a Measured, or for several networks a MeasuredNetworks.

    Arguments: see jbias.measure. ValueError for invalid arguments, for folders or a number of
    images together with a suite, and if nothing was measured, with the reasons. Networks and
    measures that fail are left out if others succeed.
    """
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
            "humans": humans,
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
        dataset=dataset,
        parse=parse,
        letters=letters,
        step=step,
        trained=trained or None,
        method=method or None,
    )
    request = Request(
        model,
        sets.Folders(stimuli=stimuli, imagenet=imagenet, data=data, humans=humans),
        settings=settings,
        size=size,
        images=images,
        only=only,
        changes=changes,
        out=out,
        options=options,
    )
    call = commands.Command("measured", say=arguments.logger())
    with xla.fixed_settings() as overridden:
        for line in overridden:
            call.say(line)
        measurements = measure_networks(request, call)
    if not measurements:
        reasons = "; ".join(call.left_out.values()) or "no network was given"
        raise ValueError(f"nothing was measured: {reasons}")
    measurements = [
        dataclasses.replace(
            network, left_out=tuple(map(arguments.name_arguments, network.left_out))
        )
        for network in measurements
    ]
    if len(measurements) == 1:
        return measurements[0]
    return measured.MeasuredNetworks(measurements)


def _by_suite(model: Any, suite: str, **options: Any) -> measured.Measured:
    """Return the results of a suite for a module, a Predictor or a function.

    options: keyword arguments of predictors.measure, and of jbias.torch.wrap for a module.
    ValueError for a model that is given as text, other than timm:NAME.
    """
    if timm_names.is_timm(model):
        model, name = timm_networks.make(model, "MODEL")
        options = {"name": name, **options}
    if isinstance(model, str):
        must = (
            "be a function, a module of PyTorch or a Predictor where a suite is given"
        )
        remedy = "leave the suite out, or run `jbias evaluate`"
        errors.refuse("measure: model", must, model, remedy)
    if hasattr(model, "named_modules") and hasattr(model, "state_dict"):
        from jbias import torch

        wrap_names = ("mean", "std", "preprocess", "size", "name", "sites", "classes")
        wrap_names += ("version",)
        wrap_options = {key: options.pop(key) for key in wrap_names if key in options}
        model = torch.wrap(model, **wrap_options)
    return predictors.measure(model, suite, **options)


def command(request: Request) -> int:
    """Measure, print a table for each network, and return the exit code of `jbias measure`.

    After the tables, the command that makes a report of them is printed. ValueError for an
    invalid request, and if there is no network at the path.
    """
    call = commands.Command("measured")
    measurements = measure_networks(request, call)
    if not measurements and not call.left_out:
        raise ValueError(
            f"MODEL: no network was found at {request.model!r}; check the path"
        )
    for network in measurements:
        messages.print_text(repr(network))
    if measurements:
        out = request.out
        report = f"jbias report measured --measured='{out}/*' --out=report-measured"
        call.say(f"a page of all that is in {out}: {report}")
        if models.is_table(request.model):
            call.say(
                "a page that compares these decisions image by image: "
                f"{_page_command(request)} (intervals above are Wilson's, on that page from a "
                "bootstrap over images)"
            )
    return call.code


def _page_command(request: Request) -> str:
    """Return the command that makes a page of the tables of a request, with its flags."""
    settings = request.settings
    flags = {
        "decisions": os.fspath(request.model),
        "columns": settings.columns,
        "set": settings.dataset,
        "parse": "" if settings.parse == "published" else settings.parse,
        "options": settings.letters,
        "out": "report-decisions",
    }
    words = [f"--{flag}={shlex.quote(text)}" for flag, text in flags.items() if text]
    return f"jbias report decisions {' '.join(words)}"


def measure_networks(
    request: Request, call: commands.Command
) -> list[measured.Measured]:
    """Return the results of each network that was measured.

    Networks that fail, or that cannot be read, are left out and added to call.left_out. Networks
    trained on the embedded data set "shapes" are measured on this set if no folder is given.
    ValueError for an invalid request.
    """
    folders = sets.check(request.folders, has_table=models.is_table(request.model))
    settings, only = request.settings, request.only
    opened = models.read(
        request.model,
        settings,
        options=request.options,
        say=call.say,
        refuse=call.leave_out,
    )
    is_read = opened.predictor is not None or opened.decisions or opened.loaded
    if call.left_out and not is_read:
        return []  # `call` has said why, for each network.
    if opened.decisions and folders.is_empty:
        return _measure_tables(opened.decisions, request, folders.humans or "", call)
    for flag, is_given in {
        "set": bool(settings.dataset),
        "parse": settings.parse != "published",
        "options": bool(settings.letters),
    }.items():
        if is_given:
            raise ValueError(
                f"--{flag}: is for a table of decisions without folders of images; remove it"
            )
    if folders.is_empty and _are_of_shapes(opened):
        call.say("trained on the embedded set shapes, on which it is measured")
        folders = folders._replace(data=sets.SHAPES)
    if folders.is_empty:
        raise ValueError(
            "measure: nothing to measure with; give --stimuli=DIR (shape bias), "
            "--imagenet=DIR or --data=DIR (stimuli=, imagenet= or data= in Python)"
        )
    is_shapes = folders.data == sets.SHAPES
    own_images = (
        sets.find_images(folders.data) if folders.data and not is_shapes else None
    )
    default = _SIZE_OF_SHAPES if is_shapes else _SIZE
    inputs = _inputs(opened, request.size, default)
    has_photographs = bool(folders.imagenet or folders.data)
    line = model_inputs.describe(inputs, has_photographs=has_photographs)
    if inputs.origins["size"] == "by default":
        line += "; --size=N changes the size"
    call.say(f"images: {line}")
    if opened.predictor is not None:
        opened = _settle(opened, settings, folders, own_images, inputs.size, call.say)
    plan = sets.plan(
        folders,
        own_images,
        size=inputs.size,
        images=request.images,
        space=_space(opened),
    )
    predictor = opened.predictor
    lacking = [] if only or opened.decisions else [*plan.missing]
    if predictor is not None and not only:
        impossible = sets.remove_impossible(
            plan.config,
            has_gradients=predictor.apply is not None,
            has_sites=predictor.net is not None,
        )
        if impossible:
            lacking.append(
                f"{impossible}: a function gives no gradients and no features; give a "
                "module of PyTorch"
            )
            call.say(f"not measured: {lacking[-1]}")
    config = _changed(plan.config, inputs, request.changes)
    if opened.decisions:
        only = only or _measures_of_classes(config["measures"])
    suite = suites.open_suite(config, call.say, only=only)
    has_own_preprocessing = predictor is not None and predictor.images == "files"
    if not (opened.decisions or has_own_preprocessing):
        remedy = "--size=N changes the size"
        lines = model_inputs.describe_enlarged(suite.sources, suite.size, remedy)
        for line in lines:
            call.say(line)
    lacking += suite.missing_lines
    out = epath.Path(request.out)
    measurements = []
    for network in _open(opened, suite, settings, call):
        own_suite, undecided = _with_decisions(network, suite)
        for line in undecided:
            call.say(f"not measured: {network.name}: {line}")
        result = _run(
            network,
            own_suite,
            out,
            call,
            first=plan.first,
            lacking=[*lacking, *undecided],
            whole=not only,
        )
        if result is not None:
            measurements.append(result)
    if plan.missing and not only:
        call.say(f"not measured: {'; '.join(plan.missing)}")
    return measurements


def _measure_tables(
    path: str, request: Request, humans: str, call: commands.Command
) -> list[measured.Measured]:
    """Return the results of each network of tables of decisions, which are measured without images.

    path: of the tables. humans: folder of people's answers, or "". Networks that fail are left out
    and added to call.left_out. ValueError for a file that is no table of decisions, and for changes
    of a suite, which there is none of.
    """
    settings = request.settings
    changes = [x for x in request.changes if not x.startswith(_DEVICES)]
    if changes:
        raise ValueError(
            f"{changes[0].partition('=')[0]}: a table of decisions without folders of images "
            "has no suite to change; remove it"
        )
    devices = [x.removeprefix(_DEVICES) for x in request.changes]
    loaded = table_suites.load(
        path,
        columns=answer_columns.parse(settings.columns or ""),
        dataset=settings.dataset,
        parse=settings.parse,
        options=letter_options.parse(settings.letters or ""),
        humans=humans,
        only=request.only,
        devices=int(devices[-1]) if devices else 0,
        say=call.say,
        refuse=call.leave_out,
    )
    measurements = []
    for network, suite, say in table_suites.numbered(loaded, call.say):
        result = _run(
            network,
            suite,
            epath.Path(request.out),
            dataclasses.replace(call, say=say),  # With the same lists.
            first=(),
            lacking=suite.missing_lines,
            whole=not request.only,
        )
        if result is not None:
            measurements.append(result)
    return measurements


def _measures_of_classes(measures: Mapping[str, Mapping]) -> list[str]:
    """Return the names of the measures that need decided classes only, as tables of decisions have.

    measures: options by name, as in a suite.
    """
    names = []
    for name, options in measures.items():
        row = registry.PROBES.get(options.get("probe", name))
        if row is not None and row.needs_classes_only:
            names.append(name)
    return names


def _with_decisions(
    network: networks.Network, suite: suites.Suite
) -> tuple[suites.Suite, list[str]]:
    """Return (suite without the sets that a table has no decisions on, messages on these sets).

    Measures without any other set are left out, too. A message names the measures, then the
    sets that they cannot run on. A network that is not a table keeps the whole suite, and
    there are no messages.
    """
    if not isinstance(network, decision_tables.DecidedNetwork):
        return suite, []
    known = {dataset for dataset, _ in network.decided}
    measures, undecided = [], {}
    for measure in suite.measures:
        datasets = tuple(name for name in measure.datasets if name in known)
        if datasets:
            measures.append(measure._replace(datasets=datasets))
    for task in suite.tasks():
        if task.dataset not in known:
            undecided.setdefault(task.dataset, []).append(task.measure.name)
    sets_by_measures: dict[str, list[str]] = {}
    for dataset, names in undecided.items():
        sets_by_measures.setdefault(", ".join(names), []).append(dataset)
    lines = [
        f"{names} on {' and '.join(datasets)}: no decisions on these images; add them to "
        "the table"
        for names, datasets in sets_by_measures.items()
    ]
    return suite._replace(measures=tuple(measures)), lines


def _are_of_shapes(opened: models.Model) -> bool:
    """Return True if there are loaded networks, all trained on the embedded data set "shapes"."""
    trained = [network.fields["train_data"] for network in opened.loaded]
    return bool(trained) and {*trained} == {sets.SHAPES}


def _inputs(
    opened: models.Model, size: int | None, default: int
) -> model_inputs.Inputs:
    """Return the preparation of images for a model.

    The size in pixels is `size`, given by the caller, else the size of the runs, else the size in
    the model's preprocessing, else `default`. Crop and interpolation are from the model's
    preprocessing; runs have none. ValueError if runs have images of different sizes.
    """
    described = opened.described
    configs = [network.about.get("config", network.about) for network in opened.loaded]
    sizes = {config["size"] for config in configs if "size" in config}
    if len(sizes) > 1:
        raise ValueError(
            f"MODEL: networks must have images of one size, got {sorted(sizes)} pixels; "
            "measure them one after the other"
        )
    if sizes:
        described = described_preprocessing.Preprocessing(
            {"size": sizes.pop()}, {"size": "the run"}
        )
    return model_inputs.choose(described, size=size, default=default)


def _settle(
    opened: models.Model,
    settings: models.Settings,
    folders: sets.Folders,
    own_images: sets.OwnImages | None,
    size: int,
    say: console.Say,
) -> models.Model:
    """Return the model after setting the classes, size, mean and std of its predictor.

    Size and crop are removed from the predictor's preprocessing, because the sets apply them;
    if mean and std are unknown, the preprocessing becomes None. own_images: the user's own
    images, if any.
    size: image side in pixels. say: called with a line on the classes, if they were chosen
    here. ValueError as `models.settle_classes` raises.
    """
    names, names_in_words = (), models.OF_FOLDERS
    if own_images:
        names = own_images.classes
    if folders.data == sets.SHAPES:
        from jbias import data

        names = tuple(data.load(sets.SHAPES, "test", n=16).classes)
        names_in_words = "classes of the embedded set"
    classes, why = models.settle_classes(
        opened.predictor,
        settings,
        size=size,
        folder_classes=names,
        folders_in_words=names_in_words,
        has_stimuli=bool(folders.stimuli),
    )
    if why:
        say(f"classes: {why}")
    described = opened.described
    constants = {
        key: value for key, value in described.values.items() if key in ("mean", "std")
    }
    normalisation = described_preprocessing.Preprocessing(
        constants, described.origins, described.notes
    )
    predictor = dataclasses.replace(
        opened.predictor,
        classes=classes,
        size=size,
        preprocess=normalisation if constants else None,
    )
    return opened._replace(predictor=predictor)


def _space(opened: models.Model) -> str:
    """Return the space of a model's classes, one of data.class_maps: "wnid", "entry16" or "names".

    "entry16" for a table of decisions and for a predictor with other names than WordNet ids;
    "names" if loaded networks have different spaces, or none is loaded.
    """
    if opened.decisions:
        return "entry16"
    if opened.predictor is not None:
        space = class_maps.of_outputs(opened.predictor.classes).space
        return "entry16" if space == "names" else space
    spaces = {network.space for network in opened.loaded}
    return spaces.pop() if len(spaces) == 1 else "names"


def _changed(
    config: ml_collections.ConfigDict,
    inputs: model_inputs.Inputs,
    changes: Sequence[str],
) -> dict[str, Any]:
    """Return a suite's config as a dict, with the user's changes and sets prepared for the model.

    config: the suite's config, to which `changes` are applied in place. inputs: the
    preparation of images for the model. changes: texts such as "--suite.key=value".
    """
    jc.change(config, changes, flag="suite")
    config = jc.to_dict(config)
    config["sets"] = model_inputs.prepare(config["sets"], inputs)
    return config


def _open(
    opened: models.Model,
    suite: suites.Suite,
    settings: models.Settings,
    call: commands.Command,
) -> Sequence[networks.Network]:
    """Return the networks to measure, from a table of decisions, loaded networks or a predictor.

    call: its `say` is called with lines for the user. ValueError if they cannot be opened.
    """
    if opened.decisions:
        columns = answer_columns.parse(settings.columns or "")
        return [*decision_tables.load(opened.decisions, suite, columns, call.say)]
    if opened.predictor is None:
        return opened.loaded
    network = predictors.open_predictor(
        opened.predictor,
        suite.size,
        call.say,
        trained=settings.trained or "",
        method=settings.method or "",
        sets=predictors.describe_sets(suite),
    )
    return [network]


def _run(
    network: networks.Network,
    suite: suites.Suite,
    out: epath.Path,
    call: commands.Command,
    *,
    first: Sequence[str],
    lacking: Sequence[str],
    whole: bool,
) -> measured.Measured | None:
    """Run a suite on a network and return the results; None if the network failed.

    None is also returned if the network's folder has no records afterwards. The results include
    records of earlier calls. out: the parent of the network's folder. call: the network's name is
    added to its `done` if there are results, and to its `left_out`, with the reason, if the network
    or a measure failed. first: names of sets, see measured.Measured. lacking: messages on measures
    that are not in the suite. whole: whether the user left the choice of measures to the suite.
    """
    try:
        failed = runner.run_suite(network, suite, out, call.say, has_all_measures=whole)
    except networks.NETWORK_ERRORS as error:
        signals.raise_interrupt(error)
        reason = f"{network.name}: {networks.describe_error(error)}"
        call.leave_out(network.name, reason)
        return None
    if failed:
        call.left_out[network.name] = failed[0]
    folder = pathlib.Path(out / network.name)
    if not any((folder / "evals").glob("*.jsonl")):
        return None
    call.done.append(network.name)
    return measured.read(folder, left_out=[*lacking, *failed], first=first)
