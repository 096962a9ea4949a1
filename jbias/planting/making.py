"""Makes the networks of a plan and writes networks.csv; what is made is not made again.

A study's folder:

    study.json                       the settings of the study, which all calls must have
    networks.csv, readings.csv       the tables, see calibrating.rows
    runs/<run>/                      workdirs of trained networks
    networks/<name>/                 weights of networks that are written as a run of one seed
    measured/<name>/                 records and decisions of each network (evals.runner)
"""

import contextlib
import dataclasses
import functools
import json
import pathlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn
from jaxtyping import PyTree

from jbias import config as jc
from jbias import data, errors, models
from jbias.calibrating import rows
from jbias.data.embedded import cues
from jbias.evals import decision_files, networks, runner, suites
from jbias.models import class_names, trained
from jbias.planting import plans, rules, streams, training, verifying
from jbias.runtime import console, files

SUITE = "jbias:suites/calibration"
MEASURED = "measured"
SETTINGS = "study.json"
CHANCE = 1 / plans.NUM_CLASSES
SIDE = 32  # Of images, in pixels.
_VERIFY = ("accuracy",)  # The suite's measure that verifies reliance.


class Study:
    """A study's folder, the size of its networks, and where it says what it does.

    folder: created if it does not exist. scale: size of the networks. say: called with lines.
    is_due: () -> True if no further network should be started, as when time is over.
    arguments: arguments of the suite, such as "images=60". failures: lines on networks with a dial
    that could not be made or measured.
    """

    def __init__(
        self,
        folder: str | pathlib.Path,
        *,
        scale: plans.Scale = plans.FULL,
        say: console.Say = lambda line: None,
        is_due: Callable[[], bool] = lambda: False,
        arguments: str = "",
    ):
        self.folder = pathlib.Path(folder)
        self.scale, self.say, self.is_due = scale, say, is_due
        self.arguments = arguments
        self.failures: list[str] = []

    def report_failure(self, plan: plans.Plan, reason: str) -> None:
        """Say why a network failed; remember the line if it has a dial, and should not fail."""
        line = f"{plan.name}: {reason}"
        self.say(line)
        if plan.dial is not None:
            self.failures.append(line)

    def claim(self) -> None:
        """Write the settings into a new folder; ValueError if the folder has other settings.

        Otherwise the results of a small study would count as those of a large one.
        """
        path = self.folder / SETTINGS
        settings = {"scale": self.scale._asdict(), "suite": self.arguments}
        text = json.dumps(settings, indent=1) + "\n"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            files.write(path, text)
        errors.check(
            path.read_text("utf-8") == text,
            str(path),
            "have the settings of this call",
            errors.Words("those of another study, such as one with --smoke"),
            "name another --out, or repeat the earlier call",
        )

    @property
    def measured(self) -> pathlib.Path:
        """Return the parent of the networks' folders of results."""
        return self.folder / MEASURED

    @functools.cached_property
    def space(self) -> str:
        """Return the label space of the set "cues"."""
        return data.load("cues", "test", n=plans.NUM_CLASSES).space

    def suite(
        self, *more: str, only: Sequence[str] = (), changes: Sequence[str] = ()
    ) -> suites.Suite:
        """Return the suite of calibration.

        more: further arguments. only: names of measures. changes: of entries, see config.load.
        """
        text = ",".join(filter(None, (self.arguments, *more)))
        return _open_suite(text, tuple(only), tuple(changes))

    @functools.cached_property
    def verification(self) -> suites.Suite:
        """Return the suite with the measure that verifies reliance only."""
        return self.suite(only=_VERIFY)

    @functools.cached_property
    def whole_suite(self) -> suites.Suite:
        """Return the suite with all measures; slow stimuli are kept for all networks."""
        return self.suite()


@functools.lru_cache(maxsize=4)
def _open_suite(
    text: str, only: tuple[str, ...], changes: tuple[str, ...]
) -> suites.Suite:
    """Return the suite of calibration; arguments: see `Study.suite`."""
    config = jc.load(f"{SUITE}:{text}", changes, flag="suite")
    return suites.open_suite(config, _silent, only=only)


def _silent(line: str, **_) -> None:
    """Print nothing."""


def make(study: Study, planned: Sequence[plans.Plan]) -> list[rows.PlantedNetwork]:
    """Make and verify networks, write networks.csv, and return the rows of those made so far.

    Rows of networks.csv that are not in `planned` stay. Ends early when study.is_due().
    ValueError for an invalid plan, and for a folder of another study.
    """
    plans.check([*planned])
    study.claim()
    train_runs(study, planned)
    table: list[rows.PlantedNetwork] = []
    for plan in planned:
        if study.is_due():
            break
        with _reporting(study, plan):
            table.append(make_row(study, plan))
            write_rows(study.folder / "networks.csv", table, rows.PlantedNetwork)
    return table


def write_rows(
    path: pathlib.Path, new: Sequence[rows.Row], kind: type[rows.Row]
) -> None:
    """Write rows into a table, in place of earlier rows of the same networks and measures."""
    stored = rows.read(path, kind) if path.exists() else []
    replaced = {_row_key(row) for row in new}
    stored = [row for row in stored if _row_key(row) not in replaced]
    rows.write(path, [*stored, *new], kind)


def _row_key(row: rows.Row) -> tuple[str, str]:
    """Return the network of a row, and its measure; "" for a row of networks.csv."""
    return row.network, row.measure if isinstance(row, rows.Reading) else ""


@contextlib.contextmanager
def _reporting(study: Study, plan: plans.Plan) -> Iterator[None]:
    """Return a context that reports errors of one network and continues with the next."""
    try:
        yield
    except networks.NETWORK_ERRORS as error:
        study.report_failure(plan, networks.describe_error(error))


def train_runs(study: Study, planned: Sequence[plans.Plan]) -> None:
    """Train the runs of trained networks and streams, until study.is_due()."""
    runs = training.runs_of(planned)
    for number, run in enumerate(runs, start=1):
        if study.is_due():
            return
        seeds = f"{len(run.seeds)} seed" + "s" * (len(run.seeds) > 1)
        study.say(f"run {number} of {len(runs)}: dial {run.dial:g}, {seeds}")
        training.train_run(run, study.folder, study.scale)


def make_row(study: Study, plan: plans.Plan) -> rows.PlantedNetwork:
    """Return the row of a network: its plan, its dial, its accuracy and its verified reliance.

    Accuracy and reliance are None for a failing network that gives no decisions, such as one whose
    weights are not finite; ValueError for such a network with a dial.
    """
    row = rows.PlantedNetwork(
        network=plan.name,
        family=plan.family,
        dial=plan.dial,
        planned_dial=plan.dial,
        level=plan.level,
        group=plan.group,
        cluster=plan.cluster,
        shortcut=plan.shortcut,
        strength=plan.strength,
        seed=plan.seed,
        hidden=plan.hidden,
        classes=plans.NUM_CLASSES,
        images=len(study.verification.sources["test"]),
        accuracy=None,
        chance=CHANCE,
    )
    folder = study.measured / plan.name
    if not (folder / "evals" / "accuracy@factorial.jsonl").exists():
        network = open_network(study, plan)
        try:
            failures = runner.run_suite(
                network,
                study.verification,
                epath.Path(study.measured),
                _silent,
                has_all_measures=False,
            )
        except ValueError as error:
            if plan.dial is not None:
                raise
            study.report_failure(plan, networks.describe_error(error))
            return row
        if failures:
            raise ValueError(failures[0])
    shown = {
        name: decision_files.read_conditions(
            folder / "decisions" / name / "accuracy.parquet"
        )[""]
        for name in ("test", "factorial")
    }
    verified = verifying.of_decisions(shown["factorial"])
    row = row._replace(
        accuracy=float(shown["test"].right.mean()),
        verified_images=verified.images,
        verified_shape=verified.shape,
        verified_texture=verified.texture,
        verified_colour=verified.colour,
        verified_size=verified.size,
        verified_neither=verified.neither,
    )
    if plan.family in rows.VERIFIED_FAMILIES:
        row = row._replace(dial=row.verified_reliance)
    return row


def open_network(study: Study, plan: plans.Plan) -> networks.Network:
    """Return the network of a plan, called plan.name; its run must be trained."""
    if rules.is_rule(plan):
        return rules.open_network(plan, study.space)
    run = training.run_of(plan)
    if run is not None:
        network = training.open_seed(study.folder, run, plan.seed)
    elif plan.family == "mixed_images":
        first, second = _streams(study, plan.seed)
        net, variables = streams.side_by_side(first, second)
        variables[streams.SELECTION] = streams.selection(
            plan.dial,
            salt=zlib.crc32(plan.name.encode()),
            numbers=3 * SIDE**2,
        )
        network = _flax_network(study, plan, net, variables)
        decide = streams.decide_by_image(net)
        network = dataclasses.replace(network, decide=decide)
    else:
        network = networks.from_file(str(_written(study, plan)), name=plan.name)
    fields = {**network.fields, "run": plan.name, "algorithm": plan.family}
    return dataclasses.replace(network, name=plan.name, fields=fields)


def _written(study: Study, plan: plans.Plan) -> pathlib.Path:
    """Return the folder with the weights of a network that needs no training, written if new."""
    folder = study.folder / "networks" / plan.name
    if not (folder / "config.json").exists():
        if plan.family == "mixed_logits":
            first, second = _streams(study, plan.seed)
            net, variables = streams.mix_logits(first, second, plan.dial)
        else:
            net, variables = _failing(study, plan)
        names = class_names.Classes(cues.CLASSES, study.space)
        models.save_run(folder, net, variables, names, size=SIDE)
    return folder


def _failing(study: Study, plan: plans.Plan) -> tuple[nn.Module, Mapping[str, PyTree]]:
    """Return the module and variables of a network with random weights, or with a NaN.

    The latter is for the level "diverged".
    """
    config = training.config_of(training.stream_runs()[0], study.scale)
    net = models.MODELS[config.model.name](
        plans.NUM_CLASSES, width=config.model.width, stem=config.model.stem
    )
    image = jnp.zeros((1, SIDE, SIDE, 3))
    variables = jax.device_get(net.init(jax.random.key(plan.seed), image))
    if plan.level == "diverged":
        bias = np.asarray(variables["params"][streams.HEAD]["bias"])
        variables["params"][streams.HEAD]["bias"] = np.full_like(bias, np.nan)
    return net, variables


def _streams(study: Study, seed: int) -> tuple[streams.Stream, streams.Stream]:
    """Return the streams of shape and of texture, with the deviation of their logits on "test".

    seed: of both streams.
    """
    images = jnp.asarray(study.verification.images["test"], jnp.float32) / 255
    opened = []
    for run in training.stream_runs(seed):
        network = training.open_seed(study.folder, run, run.seeds[0])
        deviation = streams.logit_deviation(network, images)
        opened.append(streams.Stream(network.net, network.variables, deviation))
    return opened[0], opened[1]


def _flax_network(
    study: Study, plan: plans.Plan, net: nn.Module, variables: Mapping[str, PyTree]
) -> networks.FlaxNetwork:
    """Return a module and its variables as a network of the classes of the set "cues"."""
    fields = {
        "run": plan.name,
        "algorithm": plan.family,
        "variant": "",
        "model": "two streams",
        "train_data": "cues/train",
        "stage": 0,
        "seed": plan.seed,
        "step": 0,
        "epoch": 0.0,
    }
    return networks.FlaxNetwork(
        name=plan.name,
        classes=cues.CLASSES,
        space=study.space,
        digest=f"{trained.weights_digest([dict(variables)])}-{plan.dial}-{plan.name}",
        fields=fields,
        about={"category": plan.family},
        net=net,
        variables=jax.tree.map(jnp.asarray, dict(variables)),
    )
