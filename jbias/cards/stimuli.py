"""The entry of a set of images in card.json: its name, its images, and how many are published.

A set has a published name only if its images have the published names, see published.py.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from jbias import data as jbias_data
from jbias.answers import stimulus_names
from jbias.cards import published, tables
from jbias.data.sets import geirhos
from jbias.evals import table_suites

_OWN = "own"  # Start of the name of a set that is not the published one of its name.
_DECISIONS = (
    "decisions/"  # Start of the name of a set of a table that is not published.
)
# Names of sets of suites that are published, without case and signs.
_TAKEN = {
    published.plain(name)
    for name in (*stimulus_names.PUBLISHED_SETS, *table_suites.SUITE_NAMES.values())
}


def name_of(
    source: str,
    card_tables: Sequence[tables.Table],
    *,
    data: str,
    root: str,
    table: str,
) -> str:
    """Return the name of a set of images for a card.

    source: name of the data that were read, such as "geirhos/cue-conflict". card_tables: of the
    set. data, root: the reader of the images and its folder, "" if unknown. table: path of the
    table of decisions, "" for a network.
    """
    if data == "folder":
        return f"folder {source}"
    if data and data not in (*jbias_data.DATASETS, _DECISIONS.rstrip("/")):
        return f"own {source}"
    if source.startswith(_DECISIONS):
        name = source.removeprefix(_DECISIONS)
        is_named = name != stimulus_names.OWN
        return f"set {name}" if is_named else _of_table(table)
    images = {name for x in card_tables for name in x.images}
    is_listed = published.image_names(source) is not None
    is_unknown = published.count(source) is None
    if is_unknown or (not is_listed and not _has_names(card_tables)):
        return source
    if published.is_of(source, sorted(images)):
        return source
    if table:
        return _of_table(table)
    folder = os.path.basename(os.path.abspath(root)) if root else ""
    return f"folder {folder}" if folder else "images of one's own"


def _of_table(path: str) -> str:
    """Return the name of a set that only a table of decisions names."""
    return f"table {os.path.basename(path)}" if path else "images of a table"


def describe(
    name: str, card_tables: Sequence[tables.Table], *, digest: str, preprocessing: str
) -> dict[str, Any]:
    """Return the entry of a set; card_tables: of the set. Other arguments: see the schema."""
    return {
        "name": name,
        "images": len({image for table in card_tables for image in table.images}),
        "published": published.count(name),
        "names": digest_names(card_tables),
        "digest": digest,
        "preprocessing": preprocessing,
    }


def digest_names(card_tables: Sequence[tables.Table]) -> str | None:
    """Return the SHA-256 of the names, labels and textures of a set's images.

    None if the images have numbers in place of names.
    """
    if not _has_names(card_tables):
        return None
    rows: dict[str, list[str]] = {}
    for table in sorted(card_tables, key=lambda table: table.texture is None):
        texture = table.texture or ("",) * len(table.images)
        for cells in zip(table.images, table.label, texture, strict=True):
            rows.setdefault(cells[0], list(cells))
    text = json.dumps(sorted(rows.values()), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _has_names(card_tables: Sequence[tables.Table]) -> bool:
    """Return False if the images of a table have numbers in place of names."""
    return not any(
        image.isdigit() and len(image) == tables.NUMBER_LENGTH
        for table in card_tables
        for image in table.images
    )


def digest_table(name: str, table: tables.Table) -> str | None:
    """Return the digest that `jbias measure` gives a set without images; None if unknown.

    name: of the set; that of published cue conflicts has all their images. None if there are
    classes that no row has.
    """
    images, label, texture = table.images, table.label, table.texture
    if name == published.CUE_CONFLICT:
        images = tuple(sorted(published.image_names(name)))
        label, texture = zip(*map(published.cues, images), strict=True)
    is_16 = {*table.classes} <= {*geirhos.CLASSES}
    classes = geirhos.CLASSES if is_16 else table.classes
    if len(classes) != table.num_classes:
        return None
    ids = {name: number for number, name in enumerate(classes)} | {"": -1}
    content = [
        classes,
        images,
        [ids[name] for name in label],
        None if texture is None else [ids[name] for name in texture],
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def are_readable(
    names: Sequence[str], label: Sequence[str], texture: Sequence[str] | None
) -> bool:
    """Return True if a table with these names of images and columns can be read again.

    Names must be different, and may not say other classes than the columns, as names in the form
    of cue conflicts would.
    """
    if len({*names}) < len(names):
        return False
    stems = [published.image_id(name) for name in names]
    if any(map(stimulus_names.pictures, stems)):
        columns = zip(label, texture or label, strict=True)
        has_cues = all(map(stimulus_names.pictures, stems)) and texture is not None
        return has_cues and all(
            published.cues(stem) == cells
            for stem, cells in zip(stems, columns, strict=True)
        )
    return all(
        stimulus_names.label_in_name(name) in ("", cell)
        for name, cell in zip(names, label, strict=True)
    )


def rename_own(
    card_tables: Sequence[tables.Table], entries: Mapping[str, dict[str, Any]]
) -> tuple[list[tables.Table], dict[str, dict[str, Any]]]:
    """Return tables and entries in which no set that is not published has a published name.

    Such a set, as of one's own drawings in a folder cue-conflict, is named own-cue-conflict; that of
    another data set after its data set, such as shapes-edge.
    """
    new_names = {
        dataset: f"{_data_set(entry['name']) or _OWN}-{dataset}"
        for dataset, entry in entries.items()
        if published.plain(dataset) in _TAKEN and entry["published"] is None
    }
    renamed = [
        dataclasses.replace(x, dataset=new_names.get(x.dataset, x.dataset))
        for x in card_tables
    ]
    return renamed, {new_names.get(key, key): x for key, x in entries.items()}


def _data_set(name: str) -> str:
    """Return the data set of jbias that a name such as "shapes/edge" begins with; "" for none."""
    data_set, slash, _ = name.partition("/")
    return data_set if slash and data_set in jbias_data.DATASETS else ""


def faults(
    dataset: str,
    entry: Mapping[str, Any],
    card_tables: Sequence[tables.Table],
    *,
    kind: str,
) -> list[str]:
    """Return a line for each way in which a set's entry is not that of its decisions.

    card_tables: of the set. kind: of the model, "network" or "decisions".
    """
    where, name = f"stimuli of {dataset}", entry["name"]
    computed = describe(name, card_tables, digest="", preprocessing="")
    lines = [
        f"{where}: {key} is {entry[key]!r} in the card, {computed[key]!r} by its decisions"
        for key in ("images", "names", "published")
        if entry[key] != computed[key]
    ]
    if published.is_imitated(name):
        lines.append(f"{where}: {name!r} is not the name of a published set")
    is_taken = published.plain(dataset) in _TAKEN
    if is_taken and computed["published"] is None:
        lines.append(f"{where}: {name!r} is not the published set {dataset}")
    for table in card_tables:
        lines += _class_faults(where, name, table)
        if table.num_classes < len(table.classes):
            lines.append(
                f"{table.file}: num_classes is {table.num_classes} in the card, "
                f"{len(table.classes)} or more by its decisions"
            )
        if kind == "decisions" and not table.measure:
            digest = digest_table(name, table) if computed["names"] else None
            if digest not in (None, entry["digest"]):
                lines.append(
                    f"{where}: digest is {entry['digest']} in the card, {digest} by its names"
                )
    return lines


def _class_faults(where: str, name: str, table: tables.Table) -> list[str]:
    """Return lines on names that the published set `name` lacks, and on other classes."""
    known = published.image_names(name)
    if known is None:
        return []
    strays = sorted({*table.images} - known)
    lines = [f"{where}: {name} has no image {x!r}" for x in strays[:1]]
    if len(strays) > 1:
        lines.append(f"{where}: {name} lacks {len(strays):,} of the images in all")
    texture = table.texture
    said = [published.cues(image) for image in table.images]
    pairs = list(zip((shape for shape, _ in said), table.label, strict=True))
    if texture is not None:
        pairs += zip((cue for _, cue in said), texture, strict=True)
    wrong = [(cue, cell) for cue, cell in pairs if cell not in ("", cue)]
    if wrong:
        cue, cell = wrong[0]
        lines.append(
            f"{where}: {len(wrong):,} classes are not those of the images' names, such as "
            f"{cell!r} for {cue!r}"
        )
    unknown = {cue for cue, cell in pairs if not cell}
    is_whole = unknown.isdisjoint(cell for _, cell in pairs)
    if not is_whole or len({*geirhos.CLASSES} - unknown) < table.num_classes:
        lines.append(f"{where}: classes are left out in some of the rows")
    return lines
