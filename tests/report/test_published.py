"""Published shape biases match their sources; measured numbers stay the same."""

import json
import os
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias.data import class_maps
from jbias.measures import cue_conflict, decisions
from jbias.report import measured, network_records
from jbias.report.pages.networks import networks_page
from jbias.report.pages.networks import published_shape_biases as published
from studies import published_shape_biases
from tests import cases
from tests.report import measure_files

ROOT = pathlib.Path(__file__).parents[2]
DECISIONS = pathlib.Path(os.environ.get("JBIAS_TEST_DATA", "nowhere"))
DECISIONS = DECISIONS.parent / "paper/decisions"
NAMES, N = (*class_maps.geirhos16(),), 1280


@cases.each(
    ("network", "training", "bias", "kappa"),
    [
        ("ResNet-50", "ImageNet", 0.2207, 0.0674),
        ("DenseNet-121", "ImageNet", 0.2145, None),
        ("ResNet-50", "Stylized-ImageNet", 0.8061, None),
        ("people (10)", "", 0.9587, 0.3311),
    ],
)
def test_counted_rows_have_the_published_numbers(network, training, bias, kappa):
    frame = published.read()
    frame = frame[(frame["network"] == network) & frame["either"].notna()]
    (row,) = frame[frame["training"].fillna("") == training].itertuples()
    assert round(row.shape_bias, 4) == bias == round(row.shape / row.either, 4)
    ends = row.shape_bias_lower, row.shape_bias_upper
    if training:
        assert ends == decisions.wilson_interval(int(row.shape), int(row.either))
    else:  # Ten people decided about the same images.
        assert np.isnan(ends).all()
    assert kappa in (None, row.error_consistency)


def test_printed_rows_are_those_of_the_paper():
    printed = pd.read_csv(ROOT / "examples/published/biases_printed.csv")
    frame = published.read()
    printed_biases = frame[frame["either"].isna()].set_index("network")["shape_bias"]
    names = "ResNet-50, " + printed["name"]
    assert printed_biases.to_dict() == dict(zip(names, printed["shape"], strict=True))
    assert len(printed_biases) == 48 and len(frame) == 52
    assert frame["shape_bias"].between(0, 1).all()
    assert frame[["source", "licence", "url"]].notna().all(axis=None)


@pytest.mark.skipif(not DECISIONS.is_dir(), reason="needs published decisions")
def test_the_stored_table_matches_the_published_decisions():
    written = published.FILE.read_text(encoding="utf-8")
    assert published_shape_biases.format_table(DECISIONS) == written


def test_the_docs_page_matches_the_command():
    page = (ROOT / "docs" / published_shape_biases.NAME).read_text(encoding="utf-8")
    assert page == published_shape_biases.text()
    words = [line for line in page.splitlines() if line[:1] != "|"]
    assert len(" ".join(words).split()) <= 350
    assert (ROOT / "docs" / published_shape_biases.FIGURE).exists()


def write(folder, dataset, origin, n=N):
    """Write a workdir with a shape bias of 3/8, and with error consistency on cue-conflict."""
    label, texture = np.arange(n) % 16, (np.arange(n) + 1) % 16
    answer = np.where(np.arange(n) % 8 < 3, label, texture)
    decisions_by_condition = {
        "": decisions.Decisions(answer, {"label": label, "texture": texture})
    }
    numbers = cue_conflict.numbers(decisions_by_condition, classes=NAMES)
    fields = dict(run=folder.name, algorithm="mine", variant="", model="resnet50")
    fields |= dict(train_data="imagenet", stage=0, seed=0, step=0, epoch=0.0)
    description = {"measure": {"probe": "shape_bias", "options": {}}, "images": n}
    description |= {"seconds": 1.0, "precision": "float32", "classes": NAMES}
    measure_files.write(
        folder, fields, "shape_bias", dataset, numbers, description, None
    )
    if dataset == "cue-conflict":  # The set that people were tested on.
        description |= {"measure": {"probe": "human", "options": {"root": "nowhere"}}}
        numbers = [decisions.Number("error_consistency", 0.125, None, n)]
        measure_files.write(
            folder, fields, "human", dataset, numbers, description, None
        )
    config = {"model": {"name": "resnet50"}, "run": {"digest": folder.name}}
    (folder / "config.json").write_text(json.dumps(config))
    provenance = {"data": {dataset: {"name": origin}}}
    (folder / "provenance.json").write_text(json.dumps(provenance))
    return folder


@pytest.fixture(scope="module")
def measured_networks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "mine"
    write(folder, "cue-conflict", "geirhos/cue-conflict")
    return network_records.read([str(folder)])


def blocks_by_name(measured_networks, **options):
    blocks = measure_files.section_blocks(measured_networks, [], **options)
    return {block.name: block for _, block in blocks}


def test_measured_networks_are_in_bold_and_other_numbers_stay(measured_networks):
    table = blocks_by_name(measured_networks)["shape_bias_published"]
    (i, _), *more = table.bold
    assert not more and table.rows[i][0] == "mine"
    biases = table.data["shape_bias"].tolist()
    assert biases == sorted(biases) and biases[i] == 3 / 8 and len(biases) == 53
    assert table.data["source"][i] == published.HERE
    places = {head: j for j, head in enumerate(table.head)}
    cells = {row[0]: row[places["shape bias"]] for row in table.rows}
    assert cells["mine"].split(" [")[0] == "0.375"
    assert cells["people (10)"].split(" [")[0] == "0.959"
    assert cells["ResNet-50, timm (A3)"] == "0.13"  # As printed.
    assert table.rows[i][places["like people"]] == "0.125"
    other_blocks = {
        k: v
        for k, v in blocks_by_name(measured_networks).items()
        if k != "shape_bias_published"
    }
    without = blocks_by_name(measured_networks, published=False)
    assert other_blocks.keys() == without.keys()
    for name, block in without.items():
        if hasattr(block, "data"):
            pd.testing.assert_frame_equal(block.data, other_blocks[name].data)
    pages = [
        networks_page.report(measured_networks, published=is_published)
        for is_published in (True, False)
    ]
    assert pages[0].answer == pages[1].answer and pages[0].facts == pages[1].facts
    pd.testing.assert_frame_equal(*(page.results["numbers"] for page in pages))


def test_other_cue_conflict_sets_are_not_compared(tmp_path):
    folder = write(tmp_path / "mine", "cue_conflict", "shapes/cue_conflict")
    assert "shape_bias_published" not in blocks_by_name(
        network_records.read([str(folder)])
    )


def test_a_part_of_the_set_is_not_compared(tmp_path):
    folder = write(tmp_path / "mine", "cue-conflict", "geirhos/cue-conflict", n=64)
    assert "shape_bias_published" not in blocks_by_name(
        network_records.read([str(folder)])
    )


def test_a_flag_omits_published_networks():
    parsed = measured._parser().parse_args
    args = ["--measured=x", "--out=y"]
    assert parsed(args).published and not parsed([*args, "--no-published"]).published
