"""Ranks of an image's only cue: REFINED-BIAS's numbers, with the authors' own loop as oracle."""

import numpy as np
import pytest
from PIL import Image

import jbias
from jbias import evals
from jbias.data import class_maps, tables
from jbias.measures import cue_ranks, decisions

SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict(dict(size=8, run=dict(batch=20)))
    c.sets = dict(cues=dict(data="refined_bias", split="both", root=text))
    c.measures = dict(accuracy=dict(probe="plain", sets=("cues",)))
    return c
"""
MEMBERS = class_maps.members("refined_bias")
TABLE = tables.read("refined_bias")


def published_score(logits, names):
    """Return the mean reciprocal rank as the authors compute it.

    All classes are sorted by score, members are renamed to their class, and the place of the
    first class with the image's name counts.
    """
    name_of = {wnid: name for name, wnids in MEMBERS.items() for wnid in wnids}
    reciprocal = []
    for scores, name in zip(logits, names):
        order = np.flip(np.argsort(scores))
        sorted_names = np.array([name_of.get(x, x) for x in tables.wnids()])[order]
        reciprocal.append(1 / (np.where(sorted_names == name)[0][0] + 1))
    return np.mean(reciprocal)


@pytest.fixture(scope="module")
def stimuli(tmp_path_factory):
    """Two images of each class, whose red is the image's number."""
    root, number = tmp_path_factory.mktemp("refined"), 0
    for cue, classes in TABLE.items():
        for name in classes if cue != "about" else ():
            folder = root / f"refined_bias_{cue}" / name
            folder.mkdir(parents=True)
            for i in range(2):
                Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{i}.png")
                number += 1
    return root


def test_a_network_gets_the_authors_numbers(stimuli, tmp_path):
    logits = np.random.default_rng(0).normal(size=(40, 1000))
    logits[::3, 285:295] += 2  # Among them are cheetah and tiger.
    suite = tmp_path / "suite.py"
    suite.write_text(SUITE)
    text = f"{suite}:{stimuli}"

    def model(images):
        number = np.rint(images[:, 0, 0, 0] * 255).astype(int)
        return logits[np.minimum(number, 39)]

    measured = jbias.measure(model, text, out=tmp_path, classes="imagenet", name="m")
    assert not measured.left_out
    rows = measured.numbers.set_index(["metric", "condition"])["value"]
    names = [name for name in MEMBERS for _ in range(2)]
    shape = published_score(logits[:20], names[:20])
    texture = published_score(logits[20:], names[20:])
    assert rows["mrr_shape", ""] == pytest.approx(shape, rel=1e-12)
    assert rows["mrr_texture", ""] == pytest.approx(texture, rel=1e-12)
    relative = shape / (shape + texture)
    assert rows["mrr_relative", ""] == pytest.approx(relative, rel=1e-12)
    clock = [*MEMBERS].index("clock")
    expected = published_score(logits[2 * clock : 2 * clock + 2], ["clock"] * 2)
    assert rows["mrr_shape", f"class={clock}"] == pytest.approx(expected, rel=1e-12)
    assert ("mrr_texture", f"class={clock}") not in rows.index


def test_other_rules_than_the_authors_are_refused(stimuli, tmp_path):
    """Otherwise the authors' rule would give all results, under the names of others."""
    suite = tmp_path / "suite.py"
    rules = 'probe="plain", aggregates=("mean_prob", "sum_prob"),'
    suite.write_text(SUITE.replace('probe="plain",', rules))
    with pytest.raises(ValueError, match="follow the rule of the set's authors, max_p"):
        jbias.measure(
            lambda images: np.zeros((len(images), 1000)),
            f"{suite}:{stimuli}",
            out=tmp_path,
            classes="imagenet",
            name="m",
        )


def decided(ranks, cue):
    n = len(cue)
    columns = {"label": np.arange(n, dtype=np.int32), "cue": np.array(cue)}
    if ranks is not None:
        columns["rank_label"] = np.array(ranks, np.int32)
    return decisions.Decisions(np.zeros(n, int), columns)


def test_numbers_are_means_of_reciprocal_ranks_by_cue():
    numbers = cue_ranks.measure(decided([1, 2, 0, 4], [0, 0, 1, 1]))
    values = {x.metric: x.value for x in numbers if not x.condition}
    assert values == {
        "mrr_shape": 0.75,
        "mrr_texture": 0.125,
        "mrr_relative": pytest.approx(6 / 7),
    }
    assert {x.metric: x.n for x in numbers if not x.condition} == {
        "mrr_shape": 2,
        "mrr_texture": 2,
        "mrr_relative": 4,
    }


def test_one_cue_has_no_balance():
    numbers = cue_ranks.measure(decided([1, 2], [1, 1]))
    assert [x.metric for x in numbers if not x.condition] == ["mrr_texture"]
    assert cue_ranks.measure(decided([0, 0, 0], [0, 1, 1]))[2].value is None


def test_names_of_classes_have_no_ranks():
    assert cue_ranks.measure(decided(None, [0, 1])) == []
    without = decisions.Decisions(np.zeros(1), {"label": np.zeros(1, np.int32)})
    with pytest.raises(ValueError, match="must have a column cue.*set refined_bias"):
        cue_ranks.measure(without)


def test_ranks_are_computed_for_the_measures_that_need_them():
    assert evals.find_measure("cue_rank") is cue_ranks.measure
    assert cue_ranks.ranked_columns(["accuracy"]) == {}
    both = cue_ranks.ranked_columns(["shape_bias", "cue_rank"])
    assert both == {
        "rank_shape": "label",
        "rank_texture": "texture",
        "rank_label": "label",
    }
