"""Published shape biases are those of their sources, and no number of one's own changes."""

import json
import os
import pathlib

import numpy as np
import pandas as pd
import pytest

from benchmarks import published_shape_biases
from jbias.data import labels
from jbias.evals import cue_conflict, decisions
from jbias.report import measured, network_records, networks
from jbias.report import published_shape_biases as published
from tests import cases
from tests.report import kept

ROOT = pathlib.Path(__file__).parents[2]
DECISIONS = pathlib.Path(os.environ.get("JBIAS_TEST_DATA", "nowhere"))
DECISIONS = DECISIONS.parent / "paper/decisions"
NAMES, N = (*labels.geirhos16(),), 1280


@cases.each(
    ("network", "training", "bias", "kappa"),
    [
        ("ResNet-50", "ImageNet", 0.2207, 0.0674),
        ("DenseNet-121", "ImageNet", 0.2145, None),
        ("ResNet-50", "Stylized-ImageNet", 0.8061, None),
        ("people (10)", "", 0.9587, 0.3311),
    ],
)
def test_counted_rows_are_the_known_ones(network, training, bias, kappa):
    frame = published.read()
    frame = frame[(frame["network"] == network) & frame["either"].notna()]
    (one,) = frame[frame["training"].fillna("") == training].itertuples()
    assert round(one.shape_bias, 4) == bias == round(one.shape / one.either, 4)
    ends = one.shape_bias_lower, one.shape_bias_upper
    if training:
        assert ends == decisions.wilson_interval(int(one.shape), int(one.either))
    else:  # Ten people decided about the same images.
        assert np.isnan(ends).all()
    assert kappa in (None, one.error_consistency)


def test_printed_rows_are_those_of_the_paper():
    printed = pd.read_csv(ROOT / "examples/published/biases_printed.csv")
    frame = published.read()
    found = frame[frame["either"].isna()].set_index("network")["shape_bias"]
    names = "ResNet-50, " + printed["name"]
    assert found.to_dict() == dict(zip(names, printed["shape"], strict=True))
    assert len(found) == 48 and len(frame) == 52
    assert frame["shape_bias"].between(0, 1).all()
    assert frame[["source", "licence", "url"]].notna().all(axis=None)


@pytest.mark.skipif(not DECISIONS.is_dir(), reason="needs published decisions")
def test_the_file_is_what_the_decisions_give():
    written = published.FILE.read_text(encoding="utf-8")
    assert published_shape_biases.format_table(DECISIONS) == written


def test_the_page_is_what_the_command_writes():
    page = (ROOT / "docs" / published_shape_biases.NAME).read_text(encoding="utf-8")
    assert page == published_shape_biases.text()
    words = [line for line in page.splitlines() if line[:1] != "|"]
    assert len(" ".join(words).split()) <= 350
    assert (ROOT / "docs" / published_shape_biases.FIGURE).exists()


def write(folder, dataset, origin, n=N):
    """A workdir with a shape bias of 3 in 8 on a set, and how like people it errs."""
    label, texture = np.arange(n) % 16, (np.arange(n) + 1) % 16
    answer = np.where(np.arange(n) % 8 < 3, label, texture)
    by = {"": decisions.Decisions(answer, {"label": label, "texture": texture})}
    numbers = cue_conflict.numbers(by, classes=NAMES)
    fields = dict(run=folder.name, algorithm="mine", variant="", model="resnet50")
    fields |= dict(train_data="imagenet", stage=0, seed=0, step=0, epoch=0.0)
    told = {"measure": {"probe": "shape_bias", "options": {}}, "images": n}
    told |= {"seconds": 1.0, "precision": "float32", "classes": NAMES}
    kept.write(folder, fields, "shape_bias", dataset, numbers, told, None)
    if dataset == "cue-conflict":  # With which people are compared.
        told |= {"measure": {"probe": "human", "options": {"root": "nowhere"}}}
        numbers = [decisions.Number("error_consistency", 0.125, None, n)]
        kept.write(folder, fields, "human", dataset, numbers, told, None)
    config = {"model": {"name": "resnet50"}, "run": {"digest": folder.name}}
    (folder / "config.json").write_text(json.dumps(config))
    facts = {"data": {dataset: {"name": origin}}}
    (folder / "provenance.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured") / "mine"
    write(folder, "cue-conflict", "geirhos/cue-conflict")
    return network_records.read([str(folder)])


def shown(found, **options):
    blocks = networks.section_blocks(found, [], **options)
    return {one.name: one for _, one in blocks}


def test_ones_own_stand_among_them_in_bold_and_in_no_other_number(mine):
    table = shown(mine)["shape_bias_published"]
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
    others = {k: v for k, v in shown(mine).items() if k != "shape_bias_published"}
    without = shown(mine, published=False)
    assert others.keys() == without.keys()
    for name, block in without.items():
        if hasattr(block, "data"):
            pd.testing.assert_frame_equal(block.data, others[name].data)
    pages = [networks.report(mine, published=one) for one in (True, False)]
    assert pages[0].answer == pages[1].answer and pages[0].facts == pages[1].facts
    pd.testing.assert_frame_equal(*(page.results["numbers"] for page in pages))


def test_other_cue_conflicts_are_not_set_beside(tmp_path):
    folder = write(tmp_path / "mine", "cue_conflict", "shapes/cue_conflict")
    assert "shape_bias_published" not in shown(network_records.read([str(folder)]))


def test_a_part_of_the_set_is_not_set_beside(tmp_path):
    folder = write(tmp_path / "mine", "cue-conflict", "geirhos/cue-conflict", n=64)
    assert "shape_bias_published" not in shown(network_records.read([str(folder)]))


def test_a_flag_leaves_them_out():
    parsed = measured._parser().parse_args
    given = ["--measured=x", "--out=y"]
    assert parsed(given).published and not parsed([*given, "--no-published"]).published
