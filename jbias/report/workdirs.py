"""Class for a run in a workdir, and functions that read runs and give them labels."""

import dataclasses
import functools
import json
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias import config as jc
from jbias.runs import results

# Settings that may differ between runs whose seeds are pooled.
_NO_IDENTITY = ("run", "seeds", "workdir", "label")
# Names in papers of an algorithm, or of an algorithm with a part of its variant.
NAMES: Mapping[str, str] = types.MappingProxyType(
    {
        "erm": "ERM",
        "erm (stylize)": "Stylized ERM",
        "erm (asam)": "ASAM",
        "erm (eoa)": "EoA",
        "erm (sam)": "SAM",
        "erm (swad)": "SWAD",
        "linear_probe+erm (erm_plusplus)": "ERM++",
        "erm (cae+edsr)": "DeepAugment (CAE+EDSR)",
        "erm (cae)": "DeepAugment (CAE)",
        "erm (edsr)": "DeepAugment (EDSR)",
        "erm (augmix)": "AugMix",
        "erm (cutmix)": "CutMix",
        "erm (fmix)": "FMix",
        "erm (mixup)": "Mixup",
        "erm (pixmix)": "PixMix",
        "erm (rand_conv)": "RandConv",
        "sagnet": "SagNet",
        "padain": "pAdaIN",
        "infodrop": "InfoDrop",
        "infodrop+erm": "InfoDrop",  # Its second stage.
        "debiased": "Debiased",
        "mixstyle": "MixStyle",
        "dsu": "DSU",
        "efdmix": "EFDMix",
        "pgd": "PGD",
        "group_dro": "Group DRO",
        "irm": "IRM",
        "vrex": "V-REx",
        "coral": "CORAL",
        "mldg": "MLDG",
        "rsc": "RSC",
        "fishr": "Fishr",
        "eqrm": "EQRM",
        "dann": "DANN",
        "cdann": "CDANN",
        "mmd": "MMD",
        "erm+dfr": "DFR",
        "simclr": "SimCLR",
        "simclr+linear_probe": "SimCLR",
    }
)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run in a workdir; the settings are empty if there is no config.json.

    seeds: seeds with records. costs: content of costs.json. finished: True if the run has ended.
    """

    workdir: str
    name: str
    algorithm: str
    variant: str
    seeds: tuple[int, ...]  # Those with records.
    provenance: Mapping[str, Any]
    finished: bool
    settings: Mapping[str, Any]
    costs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # costs.json.
    label: str = ""

    @functools.cached_property
    def config(self) -> Mapping[str, str] | None:
        """The settings as text by dotted key; None if there is no config.json."""
        known = self.settings or (pathlib.Path(self.workdir) / "config.json").exists()
        return flatten(self.settings) if known else None

    @property
    def data(self) -> Mapping[str, Any]:
        """The recorded provenance of each data set, by name."""
        return self.provenance.get("data") or {}

    @property
    def identity(self) -> Mapping[str, str] | None:
        """The settings, and the user's own code, that must be equal for seeds to be pooled.

        Text by dotted key, without run, seeds, workdir, label and the folders of data; `own_code`
        is the key of the user's own code, if any. None if there is no config.json.
        """
        if self.config is None:
            return None
        identifying = {
            key: value
            for key, value in self.settings.items()
            if key not in _NO_IDENTITY
        }
        settings = flatten(jc.without_places(identifying))
        if self.own_code:
            settings["own_code"] = self.own_code
        return settings

    @property
    def own_code(self) -> str:
        """The user's own files as "name digest, name digest", sorted by path; "" if none."""
        digests: dict[str, Any] = {}
        for key in ("own_code", "own_imports"):
            recorded = self.provenance.get(key)
            digests |= recorded if isinstance(recorded, Mapping) else {}
        files = (
            f"{pathlib.Path(path).name} {digests[path]}" for path in sorted(digests)
        )
        return ", ".join(files)

    @property
    def lost_seeds(self) -> list[str]:
        """Seeds in the settings that have no records, as text."""
        listed = self.settings.get("seeds")
        listed = listed if isinstance(listed, list) else []
        return [str(seed) for seed in listed if seed not in self.seeds]

    @property
    def base_label(self) -> str:
        """The label in the settings, else the result of `paper_name`.

        The field `label` is this name, with a suffix for the settings in which runs differ.
        """
        label = self.settings.get("label")
        label = label.strip() if isinstance(label, str) else ""
        return label or paper_name(self)

    @property
    def alias(self) -> str:
        """The name "algorithm (variant)", with the suffix of the field label."""
        plain = f"{self.algorithm} ({self.variant})" if self.variant else self.algorithm
        return plain + self.label.removeprefix(self.base_label)


def paper_name(run: Run) -> str:
    """Return the name of a run's method in papers, such as "Mixup (wide)"; see `method_name`."""
    return method_name(run.algorithm, run.variant, run.settings)


def method_name(
    algorithm: str,
    variant: str,
    settings: Mapping[str, Any] = types.MappingProxyType({}),
) -> str:
    """Return the name in papers of an algorithm with a variant such as "cae+edsr".

    The entry of `NAMES` with the most parts of the variant gives the name; other parts follow in
    brackets, with those that the settings contradict (`confirmed`). Algorithms without an entry
    keep their name. Without a variant the settings give the parts: ERM with the transform mixup is
    Mixup, and ERM with the average swad is SWAD. variant: "" for none. settings: the config; may
    be empty.
    """
    variant_parts = variant.split("+") if variant else _methods(algorithm, settings)
    confirmed_parts = set(confirmed(variant_parts, settings))
    paper_name = NAMES.get(algorithm, algorithm)
    named_parts = set()
    # Use the name that covers the most parts of the variant.
    for key, name in NAMES.items():
        key_algorithm, _, key_variant = key.removesuffix(")").partition(" (")
        key_parts = set(key_variant.split("+")) if key_variant else set()
        is_better = named_parts < key_parts <= confirmed_parts
        if key_algorithm == algorithm and is_better:
            paper_name = name
            named_parts = key_parts
    unnamed = [part for part in variant_parts if part not in named_parts]
    return f"{paper_name} ({'+'.join(unnamed)})" if unnamed else paper_name


def confirmed(variant_parts: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Return the parts of a variant that the settings do not contradict.

    The parts sam, asam, swad, eoa and erm_plusplus name what presets set in config.optim; a flag
    may have changed the setting, as --config.optim.sharpness.radius=0 does. Settings without an
    optimiser contradict nothing.
    """
    optim = (stages(settings) or [{}])[-1].get("optim")
    if not isinstance(optim, Mapping):
        return list(variant_parts)
    average, sharpness = average_name(optim), sharpness_name(optim)
    holds = {
        "asam": sharpness == "asam",
        "sam": sharpness == "sam",
        "swad": average == "swad",
        "eoa": average == "uniform",
        "erm_plusplus": average == "uniform",
    }
    return [part for part in variant_parts if holds.get(part, True)]


def stages(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the settings of each stage of a recorded config; [] if there are no settings."""
    changes = settings.get("stages")
    changes = changes if isinstance(changes, list | tuple) and changes else [{}]
    changes = [stage if isinstance(stage, Mapping) else {} for stage in changes]
    return [{**settings, **stage} for stage in changes] if settings else []


def average_name(optim: Mapping[str, Any]) -> str:
    """Return the name of config.optim.average: "exponential", "uniform", "swad", or "" if off."""
    average = optim.get("average")
    if isinstance(average, Mapping):
        return str(average.get("name", ""))
    return "exponential" if average else ""


def sharpness_name(optim: Mapping[str, Any]) -> str:
    """Return "sam" or "asam" if config.optim.sharpness is on, else ""."""
    sharpness = optim.get("sharpness")
    if not isinstance(sharpness, Mapping) or not sharpness.get("radius"):
        return ""
    return "asam" if sharpness.get("adaptive") else "sam"


def _methods(algorithm: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the settings that are methods in papers: transforms of inputs, averages and SAM.

    Only those that have a name of their own with the algorithm. The average uniform is left out:
    several methods use it.
    """
    inputs = settings.get("inputs")
    inputs = inputs if isinstance(inputs, list | tuple) else []
    names = [part.get("name") for part in inputs if isinstance(part, Mapping)]
    optim = (stages(settings) or [{}])[-1].get("optim")
    optim = optim if isinstance(optim, Mapping) else {}
    names += [average_name(optim), sharpness_name(optim)]
    return [name for name in names if f"{algorithm} ({name})" in NAMES]


@dataclasses.dataclass(eq=False)
class RunRecords:
    """The records of runs, the runs with their settings, and workdirs without records (`empty`)."""

    frame: pd.DataFrame | None
    runs: tuple[Run, ...]
    empty: list[pathlib.Path]

    def pop_frame(self) -> pd.DataFrame:
        """Return the frame and set the field to None, so that the caller can free its memory.

        May be called once.
        """
        frame, self.frame = self.frame, None
        assert frame is not None
        return frame


def read(patterns: Sequence[str]) -> RunRecords:
    """Return the records and runs of all workdirs that match the patterns.

    patterns: workdirs (paths or globs). Raises ValueError if no workdir has an evaluation, and as
    `results.find_workdirs`, `results.read` and `load` do.
    """
    full, empty = results.find_workdirs(patterns)
    if not full:
        names = " ".join(patterns)
        raise ValueError(
            f"--runs: no run in {names} has an evaluation; check the paths, or wait for the "
            "first evaluation"
        )
    frame = results.read(full, compacts=True)
    return RunRecords(frame, load(frame), empty)


def load(frame: pd.DataFrame) -> tuple[Run, ...]:
    """Return the labelled runs of all workdirs in the records, with config and provenance.

    frame: records with the columns workdir, stage, run, algorithm, variant and seed. Raises
    ValueError for a workdir with several runs in its last stage, and for an invalid config.json,
    provenance.json or costs.json. Also raises ValueError if two runs of one label have the same
    seed, or if a label is the name of another run.
    """
    runs = []
    words = ["workdir", "stage", "run", "algorithm", "variant", "seed"]
    frame = frame[words].take(results.first_rows(frame, words))
    for workdir, rows in frame.groupby("workdir", sort=False):
        path = pathlib.Path(workdir)
        last = rows[rows["stage"] == rows["stage"].max()]
        names = last[["run", "algorithm", "variant"]].drop_duplicates().to_numpy()
        if len(names) > 1:
            raise ValueError(
                f"{path}: a workdir must hold one run of one algorithm in its last stage, "
                f"got {names.tolist()}; separate them"
            )
        # The costs of a branch are recorded in the workdir of its run.
        root = path.parents[1] if path.parent.name == "vary" else path
        run = Run(
            workdir=workdir,
            name=names[0][0],
            algorithm=names[0][1],
            variant=names[0][2],
            seeds=tuple(sorted(set(rows["seed"]))),
            settings=read_json(path / "config.json"),
            provenance=_provenance(path / "provenance.json"),
            finished=(path / "done").exists(),
            costs=_costs(root / "costs.json"),
        )
        runs.append(run)
    return _labelled(runs)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the leaves of nested mappings as text, by dotted keys.

    Text is unchanged, other values are JSON; a list or an empty mapping is a leaf. tree: nested
    mappings. prefix: start of the keys.
    """
    flat: dict[str, str] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            flat[f"{prefix}{key}"] = text
    return flat


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys whose values are not the same in all settings, in order.

    A key that only some settings have is included. settings: value by dotted key, one mapping per
    run.
    """
    keys = dict.fromkeys(key for config in settings for key in config)
    return [key for key in keys if len({config.get(key) for config in settings}) > 1]


def _labelled(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs with the field label; equal names get the differing settings as a suffix.

    Raises ValueError if two runs of one label have the same seed, or if a label in the settings is
    the name of another run.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.base_label, []).append(run)
    labels = {}
    owners = {}
    bases = {}
    for base, group in groups.items():
        suffixes = _suffixes(group) if len(group) > 1 else [""]
        for run, suffix in zip(group, suffixes, strict=True):
            labels[run.workdir] = label = f"{base} [{suffix}]" if suffix else base
            if bases.setdefault(label, base) != base:
                raise ValueError(
                    f"{run.workdir}: config.label must not be the name of another run, got "
                    f"{label!r}; choose another label"
                )
            for seed in run.seeds:
                first = owners.setdefault((label, seed), run)
                if first is not run:
                    raise ValueError(
                        f"{run.workdir}: seeds of the same settings must differ to be "
                        f"pooled, got seed {seed} of {label} again (first in "
                        f"{first.workdir}); leave one of the two workdirs out"
                    )
    return tuple(dataclasses.replace(run, label=labels[run.workdir]) for run in runs)


def _suffixes(group: Sequence[Run]) -> list[str]:
    """Return the differing settings of each run, such as "rate=0.1, size=64", or "".

    A setting that a run lacks is "default". If more than 3 settings differ, the text is the name of
    the first run with the same settings. If a run has no config.json, the texts are the names of
    the runs. group: runs of one name.
    """
    settings = [run.identity for run in group]
    if None in settings:
        return [run.name for run in group]
    # List a setting of several data sets only once if the values are the same.
    key_by_values: dict[tuple[str, tuple[str, ...]], str] = {}
    for key in differing(settings):
        values = tuple(config.get(key, "default") for config in settings)
        key_by_values[key.rsplit(".", 1)[-1], values] = key
    if len(key_by_values) > 3:
        # Runs that differ only in seeds share the name of the first run.
        names: dict[tuple, str] = {}
        identities = [tuple(sorted(config.items())) for config in settings]
        return [
            names.setdefault(identity, run.name)
            for identity, run in zip(identities, group, strict=True)
        ]
    last_words = [word for word, _ in key_by_values]
    values_by_name = {
        word if last_words.count(word) == 1 else key: values
        for (word, values), key in key_by_values.items()
    }
    return [
        ", ".join(f"{name}={values[i]}" for name, values in values_by_name.items())
        for i in range(len(group))
    ]


def assumed(start: Mapping[str, Any]) -> str:
    """Return the assumptions of an energy estimate in words.

    Example: "8 × TPU v3, 220 W each (data sheet), 60 % of it in use, PUE 1.1". start: an item of
    "starts" in costs.json: source, devices, device, watts, share, pue and intensity.
    """
    watts = start["watts"]
    emitted = start.get("intensity")
    power = f"{watts:g} W each ({start['source']})" if watts else "power not known"
    factor = f"{100 * start['share']:g} % of it in use, PUE {start['pue']:g}"
    text = f"{start['devices']} × {start['device']}, {power}, {factor}"
    return text + (f", {emitted:g} kg CO2e per kWh" if emitted else "")


def _costs(path: pathlib.Path) -> dict[str, Any]:
    """Return the content of the file costs.json at `path`; {} without the file.

    Keys: "total" (as `costs.total` returns it) and "starts" (a list of results of
    `costs.of_start`). Raises ValueError if a number or text in it is of another type, or if an
    entry is missing.
    """
    costs = read_json(path)
    try:
        total = costs.get("total", {})
        starts = costs.get("starts", [])
        numbers = [value for key, value in total.items() if key != "hours"]
        numbers += total.get("hours", {}).values()
        for start in starts:
            numbers += [start["watts"], start.get("intensity")]
        numbers = [number for number in numbers if number is not None]
        words = []
        for start in starts:
            numbers += [start["share"], start["pue"]]
            words += [start["source"], start["devices"], start["device"]]
        is_valid = all(
            type(number) in (int, float) and abs(number) < 1e300 for number in numbers
        ) and all(isinstance(word, str | int) for word in words)
    except (AttributeError, KeyError, TypeError):
        is_valid = False
    if not is_valid:
        raise ValueError(
            f"{path}: must be the recorded costs of a run; restore or remove the file"
        )
    return costs


def _provenance(path: pathlib.Path) -> dict[str, Any]:
    """Return the content of the file provenance.json; {} without the file.

    Raises ValueError if "data" is no object.
    """
    provenance = read_json(path)
    if not isinstance(provenance.get("data") or {}, dict):
        raise ValueError(  # noqa: TRY004
            f"{path}: data must be a JSON object of sets, got "
            f"{str(provenance['data'])[:60]!r}; restore the file"
        )
    return provenance


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} if there is no file. Raise ValueError if invalid."""
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{path}: must be a JSON object, got {error}; restore it"
        raise ValueError(message) from None
