"""What the data-distortion study lacks, and the commands that would make it."""

import collections
import itertools
from collections.abc import Iterator

import pandas as pd

from jbias.report import (
    distortion_layouts,
    distortion_read,
    distortion_tables,
    distortion_values,
    tables,
)

_NETWORKS = "networks: "
_OTHER, _WITHOUT = distortion_read.OTHER, distortion_read.WITHOUT
_NAMES = {title: name for name, title in distortion_read.DATA.items()}
_NAMES[distortion_read.STACKED] = "stacked"
_METHODS = {title: name for name, title in distortion_read.METHODS.items()}


def train(key: distortion_read.Key) -> str:
    """Gives the command that trains a group's networks."""
    data = _NAMES.get(key.data, key.data)
    method = _METHODS.get(key.method, key.method)
    words, name = [f"method={method}", f"data={data}", *_roots(data)], method
    if key.model != _model(key.data):
        words.append(f"model={key.model}")
        name = f"{key.model}-{name}"
    if key.training.startswith(_OTHER):
        other = key.training.removeprefix(_OTHER)
        other = "same" if other == "itself" else _NAMES.get(other, other)
        words.append(f"partner={other}")
        words += [] if other == "same" else ["partner_root=DIR"]
        name += f"-with-{other}"
    elif key.training.startswith(_WITHOUT):
        words.append("drop=CLASS")
        name += "-without-CLASS"
    return (
        f"python -m jbias.main --config=configs/distortion.py:{','.join(words)} "
        f"--workdir=runs/distortion/{name}-{data}"
    )


def measure(key: distortion_read.Key, quantity: str) -> str:
    """Gives the command that measures a group's networks."""
    data = _NAMES.get(key.data, key.data)
    words = [f"data={data}", *_roots(data)]
    if quantity in ("di_other", "di_anywhere", "cut_occlusion", "iocclusion"):
        other = "cifar10" if data == "cifar100" else "cifar100"
        words += [f"other={other}", "other_root=DIR"]
    if quantity.startswith("gst_"):
        words.append("stimuli=DIR")
    if key.training.startswith(_WITHOUT):
        classes = key.training.removeprefix(_WITHOUT).replace(" and ", "+")
        words.append(f"drop={classes or 'CLASS'}")
    return (
        "python -m jbias.evaluate --runs='runs/distortion/*' "
        f"--suite=configs/suites/distortion.py:{','.join(words)}"
    )


def _roots(data: str) -> list[str]:
    if data == "shapes":
        return []
    return ["root=DIR", *(["digits=DIR"] if data == "stacked" else [])]


def table(study: distortion_values.Study) -> tables.Table | None:
    """Lists what would fill the tables: networks to train, and measures to make."""
    rows = [(tables.join(of), *row) for of, *row in _rows(study)]
    if not rows:
        return None
    return tables.Table(
        name="missing",
        caption="What is missing in the tables of the paper, and what makes it; networks are "
        "measured once they are trained. CLASS: the class that errors of the basic networks "
        "gather in; DIR: where a set lies. What was measured is not measured again.",
        head=("Of", "missing", "command"),
        rows=tuple(rows),
        data=pd.DataFrame(rows, columns=["of", "missing", "command"]),
        texts=3,
    )


def empty(study: distortion_values.Study) -> Iterator[str]:
    """Names the tables that nothing here is of, and a command that begins each."""
    there = {table.name for table in distortion_tables.of(study, {})}
    rows = list(_rows(study))
    for layout in distortion_layouts.of():
        if layout.name not in there:
            mine = [row for row in rows if layout.number in row[0]]
            # What only needs to be measured is made sooner than what must be trained.
            mine.sort(key=lambda row: row[1].startswith(_NETWORKS))
            _, what, command = mine[0]
            more = f" and {len(mine) - 1} more in the last section" if mine[1:] else ""
            yield f"{layout.number}: nothing here. For {what}: {command}{more}"


def _rows(study: distortion_values.Study) -> Iterator[tuple[list[str], str, str]]:
    networks: dict[distortion_read.Key, dict[str, None]] = {}
    measures: dict[tuple[str, str], dict[str, None]] = {}
    for layout in distortion_layouts.of():
        for cell in itertools.chain(
            *(row for _, row in distortion_layouts.cells(layout))
        ):
            for model in _models(study, cell.data):
                key = study.match(cell.key(model))
                if study.value(cell.quantity, key) is not None:
                    continue
                if cell.quantity == "affinity":
                    key = key._replace(method="basic")
                if key in study.groups:
                    what = distortion_values.QUANTITIES[cell.quantity].title
                    told = f"{what} of {key.words}", measure(key, cell.quantity)
                    measures.setdefault(told, {})[layout.number] = None
                else:
                    networks.setdefault(key, {})[layout.number] = None
    for key, of in networks.items():
        ending = f" ({key.model})" if len(study.models) > 1 else ""
        ending = f"CLASS{ending}" if key.training == _WITHOUT else ending
        yield list(of), f"{_NETWORKS}{key.words}{ending}", train(key)
    for (told, command), of in measures.items():
        yield list(of), told, command


def _models(study: distortion_values.Study, data: str) -> list[str]:
    """Gives the models that there are of a data set, or else the paper's."""
    found = dict.fromkeys(key.model for key in study.groups if key.data == data)
    return list(found) or [_model(data)]


def _model(data: str) -> str:
    return "resnet101" if data == "ImageNet" else "preact_resnet18"


def lines(study: distortion_values.Study) -> Iterator[str]:
    """Says in words what is not there as a whole."""
    lost = [line.partition(":")[0] for line in empty(study)]
    if lost:
        yield f"Nothing here is of {tables.join(lost)}; the last section has the commands."
    single = [key.words for key, group in study.groups.items() if len(group.seeds) < 2]
    if single:
        few = tables.join(single[:4]) + (" and others" if len(single) > 4 else "")
        yield (
            f"One seed alone has no deviation and no test: {few}. Train more, such as with "
            "seeds=5 after the colon of --config."
        )
    told = [line for one in study.networks for line in one.lacking]
    for line, count in collections.Counter(told).items():
        whose = "" if count == len(study.networks) else f" ({count} networks)"
        yield f"{line[0].upper()}{line[1:]}{whose}."
