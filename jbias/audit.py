r"""Audits models: which attribute of the images hurts, how much, and how.

    jbias audit --checkpoint=runs/x --data=attributed --root=DIR \
        --attributes=hair,background --out=audit/
    jbias audit --checkpoint=net.pth --model=resnet50 --classes=names.txt \
        --data=attributed --root=DIR
    jbias audit --runs='runs/*' --data=shapes --data.factors=True \
        --data.correlation=0.0625 --data.n=4096

Nothing is trained. Every network is shown the images once; of each column of the data set
whose values have names, or of --attributes, test sets of all kinds and levels are made of
its answers: marginal (M0 to M4), conditional (C0 to C6) and joint (J0 to J4) shifts. The
seeds of a run are one model, each file is one.

Writes to --out: index.html (one page that needs no network) with attributes ranked by how
much they hurt, drop curves, images that flip and probabilities in and out of
distribution; tables/*.csv and *.tex, figures/*.svg (--figures adds PDF and PNG), results.json; of
several models these are in models/<name>/. In networks/<name>/ lies what each network
decided, so that the same command goes on where it was stopped.

Every class should have images of every value: what has not is left out, and told.

Exit codes: 0 done; 1 some network was left out; 2 none could be audited, or arguments are
wrong; 130 or 143 stopped. Standard error says why.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import config as jc
from jbias.runtime import cli, console, outputs

_SET, _MEASURE = "audited", "accuracy"
_SIZE = 224  # Of files, which do not say theirs.
_KINDS = ("marginal", "conditional", "joint")  # jbias.data.shifts.KINDS, known early.


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, options = cli.parse(parser(), argv, "data", _check)
    if not args.checkpoint:
        parser().error("--checkpoint is missing, e.g. --checkpoint=runs/x")
    if not args.data:
        parser().error("--data is missing, e.g. --data=attributed --root=DIR")
    return cli.run(lambda: run(args, options), stopped="goes on")


def _check(arguments: Mapping[str, Any]) -> None:
    jc.check(arguments)
    jc.check_all_known("--kinds", arguments["kinds"], _KINDS)


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser("audit", __doc__)
    cli.add_network_flags(made)
    add, count = made.add_argument, functools.partial(cli.add_count, made)
    what = (
        "a data set of jbias.data.DATASETS; --data.KEY=VALUE, as often as wanted, is an "
        "option of it, e.g. --data.label=smile"
    )
    add("--data", metavar="NAME", help=what)
    add("--root", metavar="DIR", help="its folder, as --data.root=DIR")
    add("--split", default="test", help="of the data set (default: %(default)s)")
    what = "of the images' sides (default: that of the runs, for files 224)"
    add("--size", type=cli.at_least(1), metavar="PIXELS", help=what)
    count("--images", 0, 0, "so many images, evenly spaced; 0 is all")
    what = (
        "networks, as for --checkpoint, that do not rely on anything, such as ones trained "
        "on all values alike: drops are then beyond theirs, which leaves out what is harder "
        "for any network"
    )
    add("--reference", action="append", default=[], metavar="PATH", help=what)
    what = "columns of the data set (default: all whose values have names)"
    cli.add_names(made, "--attributes", (), what)
    what = (
        f"of shifts: {', '.join(_KINDS)} (default: all). A marginal drop may be of "
        "images that are harder; conditional asks for shortcuts alone"
    )
    cli.add_names(made, "--kinds", _KINDS, what)
    add("--apart", action="store_true", help="each seed of a run is a model of its own")
    tau = cli.number(float, lambda tau: 0 <= tau < 100, "a number from 0 to below 100")
    what = "a drop that matters (default: %(default)g points)"
    add("--tau", type=tau, default=5.0, metavar="POINTS", help=what)
    what = "level of the tests together, of each model (default: %(default)s)"
    add("--alpha", **cli.ALPHA, metavar="P", help=what)
    count("--draws", 100, 2000, "of the bootstrap")
    count("--seed", 0, 0, "of halves and draws", None)
    count("--pairs", 0, 8, "so many pairs of images that flip are shown of each bug")
    count("--devices", 0, 0, "how many of those here are used; 0 is all")
    add("--out", default="audit", metavar="DIR", help="(default: %(default)s)")
    cli.add_figures(made)
    return made


class Answers(NamedTuple):
    """What one network decided of the set."""

    model: str
    network: str
    decided: "decisions.Decisions"
    classes: tuple[str, ...]


def run(args: argparse.Namespace, options: Sequence[str]) -> int:
    """Audits what the arguments name; returns the exit code."""
    from jbias.evals import command, networks
    from jbias.report import audit

    call = command.Command("audited")
    paths = networks.check_arguments(args, args.out, {})
    outputs.check_report_folder(args.out, ("models",))
    beside = networks.find_checkpoints(args.reference)
    asked = _open(args, options, [*paths, *beside], call.say)
    auditing = Audit(args, asked, *_columns(asked.sources[_SET], args.attributes))
    models: dict[str, list[Answers]] = {}
    for one in auditing.answers(call, paths):
        models.setdefault(one.model, []).append(one)
    strictly = command.Command("audited", strict="--reference")
    reference = [*auditing.answers(strictly, beside)]
    if not models:
        raise ValueError("--checkpoint: no network could be audited; above stands why")
    of = reference, call.say
    found = [auditing.test(name, several, *of) for name, several in models.items()]
    lines = audit.write(
        found,
        pathlib.Path(args.out),
        told=[*call.left_out.values()],
        figures=args.figures,
    )
    for line in lines:
        call.say(line)
    return call.code


def _open(args, options, paths: Sequence[str], say: Callable) -> "suites.Suite":
    """A suite of one set and one measure; ValueError, in the words of the flags."""
    import ml_collections

    from jbias.evals import suites

    given = {"root": args.root} if args.root else {}
    for text in options:
        key, _, value = text.removeprefix("--data.").partition("=")
        if "." in key:
            jc.refuse("--data.KEY", "have a key without dots, such as label", key)
        jc.check_numbers(f"--data.{key}", value)
        given[key] = jc.parse_value(value)
    config = ml_collections.ConfigDict()
    config.size = args.size or _size(paths)
    config.sets = {_SET: {"data": args.data, "split": args.split, **given}}
    measure = dict(probe="plain", sets=(_SET,), images=args.images)
    config.measures = {_MEASURE: measure}
    config.run = dict(devices=args.devices, step=args.step or "best")
    lines: list[str] = []
    try:
        asked = suites.open_suite(config, lines.append)
    except ValueError as error:
        _, absent, why = "".join(lines[-1:]).partition(suites.ABSENT)
        told = why if absent else str(error)
        raise ValueError(told.replace(f"suite.sets.{_SET}", "--data")) from error
    for line in lines:
        say(line)
    return asked


def _size(paths: Sequence[str]) -> int:
    """The pixels that all runs were trained with, and that files are taken to want."""
    from etils import epath

    from jbias.evals import networks
    from jbias.models import trained

    runs = [epath.Path(path) for path in paths if networks.is_trained(path)]
    read = (trained.read_json(run / "config.json", ("size",)) for run in runs)
    sizes = {config["size"] for config in read}
    sizes |= {_SIZE} if len(runs) < len(paths) else set()
    if len(sizes) > 1:
        several = ", ".join(map(str, sorted(sizes)))
        jc.refuse("--size", f"be given for networks of {several} pixels together")
    return sizes.pop()


def _columns(source: "base.Source", wanted: Sequence[str]) -> tuple[dict, dict, list]:
    """The columns asked for, or all whose values have names, their values, and notes.

    Equal columns count once.
    """
    import numpy as np

    from jbias.data import base, set_options

    no_attribute = lambda name: name == "label" or name.startswith("accepted_")
    possible = [name for name in source.columns if not no_attribute(name)]
    for name in wanted:
        if name not in possible:
            known = base.did_you_mean(name, possible) if possible else "it has none"
            jc.refuse("--attributes", f"be columns of {source.name}", name, known)
    names = list(wanted) or [name for name in possible if name in source.values]
    # What is called `attribute` is often a copy of a column with a better name.
    names.sort(key=lambda name: name == "attribute")
    columns, values, notes = {}, {}, []
    for name in names:
        column, told = np.asarray(source.columns[name]), source.values.get(name, ())
        twin = next((n for n, c in columns.items() if np.array_equal(c, column)), None)
        if twin:
            notes.append(f"{name} is the same as {twin} in every image.")
            continue
        if set_options.NO_VALUE in told:
            empty = column == told.index(set_options.NO_VALUE)
            column, lacking = np.where(empty, -1, column), f"{empty.sum():,} images"
            notes.append(f"{lacking} without {name} have no part in its tests.")
        numbers = map(str, range(int(column.max(initial=-1)) + 1))
        values[name] = tuple(told if name in source.values else numbers)
        columns[name] = column
    if not columns:
        raise ValueError(
            f"--data: {source.name} must have a column of attributes, got"
            f" {', '.join(source.columns)}; name columns by --attributes, or give a set"
            " that has some, such as attributed"
        )
    return columns, values, notes


class Audit(NamedTuple):
    """A set whose images networks are shown, and the columns that are audited."""

    args: argparse.Namespace
    asked: "suites.Suite"
    columns: Mapping[str, "np.ndarray"]
    values: Mapping[str, tuple[str, ...]]
    notes: list[str]

    def answers(self, call, paths: Sequence[str]) -> Iterator[Answers]:
        """Shows the set to networks; gives their answers, or says why there are none."""
        from etils import epath

        from jbias.evals import decisions, runner

        folder = epath.Path(self.args.out) / "networks"
        for network in call.load(paths, self.args):
            name, lacking = network.name, None
            with call.leaving_out(name):
                lacking = runner.run_suite(network, self.asked, folder, call.say)
            if lacking:
                call.leave_out(name, "; ".join(lacking))
            if lacking != []:
                continue
            call.done.append(name)
            described = folder / name / "measures" / f"{_MEASURE}@{_SET}.json"
            classes = json.loads(described.read_text("utf-8"))["classes"]
            path = folder / name / "decisions" / _SET / f"{_MEASURE}.parquet"
            decided = decisions.read_conditions(path)[""]
            model = _model(network, self.args.apart)
            yield Answers(model, name, decided, tuple(classes))

    def test(
        self, name: str, several: Sequence[Answers], reference: Sequence[Answers], say
    ) -> "audit.Audited":
        """Tests every candidate on one model, by the images that all networks answer."""
        import numpy as np

        from jbias.data import tables
        from jbias.evals import attribute_audit, attribute_reliance
        from jbias.report import audit

        args, source, notes = self.args, self.asked.sources[_SET], self.notes
        each = [one.decided.columns["index"] for one in (*several, *reference)]
        index = functools.reduce(np.intersect1d, each)
        if len(index) < len(source):
            shown = f"{len(index):,} of {len(source):,} images of the set are shown."
            notes = [*notes, shown]
        label = np.asarray(source.columns["label"])[index]
        columns = {key: column[index] for key, column in self.columns.items()}
        classes = tuple(map(tables.readable, source.classes))
        answers = _stacked(several, index)
        against = _stacked(reference, index)["correct"] if reference else None
        drawn, tested = dict(draws=args.draws, seed=args.seed), {}
        with console.progress_bar(f"{name}: testing", len(columns)) as tell:
            for key, column in columns.items():
                of, names = (answers["correct"], label, column), self.values[key]
                about = dict(names=(classes, names), kinds=args.kinds, **drawn)
                tested[key] = attribute_reliance.measure(*of, against=against, **about)
                tell(len(tested), 0)
        say(f"{name}: {len(columns)} attribute{'s' * (len(columns) != 1)} tested")
        levels = dict(tau=args.tau / 100, alpha=args.alpha)
        ranked = attribute_audit.rank_candidates(
            *(answers["correct"], label, columns, tested), against=against, **levels
        )
        made = audit.Audited(
            model=name,
            networks=tuple(one.network for one in several),
            reference=tuple(one.network for one in reference),
            dataset=source.name,
            classes=classes,
            answers=tuple(map(tables.readable, several[0].classes)),
            index=index,
            label=label,
            columns=columns,
            values=self.values,
            **answers,
            candidates=ranked,
            examples={},
            notes=notes,
            **levels,
            **drawn,
        )
        return dataclasses.replace(made, examples=dict(self.examples(made)))

    def examples(self, made: "audit.Audited") -> Iterator[tuple[str, "audit.Examples"]]:
        """Pairs of images whose decisions flip, of each attribute that the page shows."""
        import numpy as np

        from jbias.evals import attribute_audit, prepared_sets
        from jbias.report import audit

        hurt, label = {one.name for one in made.shown}, made.label
        for one in made.shown if self.args.pairs else ():
            others = {key: c for key, c in made.columns.items() if key != one.name}
            first = [column for key, column in others.items() if key in hurt]
            column = made.columns[one.name]
            side = attribute_audit.agreement(one.result, one.kind, label, column)
            pairs = attribute_audit.flipping_pairs(
                *(made.correct[0], made.likelihood[0], side, label),
                np.array([*others.values()]).reshape(-1, len(label)),
                self.args.pairs,
                first=np.array(first).reshape(-1, len(label)),
            )
            if pairs:
                numbers = [pair.agrees for pair in pairs] + [p.disagrees for p in pairs]
                index = made.index[numbers].astype(np.int32)
                few = prepared_sets.select(self.asked, _SET, index)
                images = prepared_sets.read_images(self.asked, few)
                yield one.name, audit.Examples(pairs, *np.split(images, 2))


def _model(network: "networks.Network", apart: bool) -> str:
    """The name of the model that a network is of: the seeds of one run are one model."""
    if apart or "config" not in network.about:
        return network.name
    where, run = pathlib.PurePath(network.about["path"]).name, network.fields["run"]
    return where if where == run else f"{where} {run}"


def _stacked(several: Sequence[Answers], index: "np.ndarray") -> dict[str, Any]:
    """The answers of several networks to the same images, a row each."""
    import numpy as np

    found = []
    for one in several:
        decided = one.decided
        rows = np.searchsorted(decided.columns["index"], index)
        each = dict(prediction=decided.prediction, correct=decided.right)
        each |= {key: decided.columns[key] for key in ("likelihood", "confidence")}
        found.append({key: column[rows] for key, column in each.items()})
    return {key: np.stack([one[key] for one in found]) for key in found[0]}


if __name__ == "__main__":
    sys.exit(main())
