"""The one-line summary of a measure has its main numbers."""

import inspect

import numpy as np

from jbias.evals import registry
from jbias.evals.activations import inside
from jbias.measures import counting, critical_band, decisions, human_answers
from jbias.measures.decisions import Number
from tests import cases


@cases.each(
    ("probe_name", "numbers", "summary"),
    [
        (
            "decoding",
            [
                Number("shape_decoding", 0.25, 1, 4, "stem"),
                Number("texture_decoding", 1.0, 4, 4, "stem"),
                Number("shape_decoding", 0.5, 2, 4, "last"),
                Number("texture_decoding", 0.75, 3, 4, "last"),
            ],
            "shape 0.5 at last, texture 1 at stem",
        ),
        (
            "classes",
            [
                Number("class_accuracy", 0.5, 1, 2, "class=cat"),
                Number("class_accuracy", 0.25, 1, 4, "class=dog"),
                Number("agreement", 0.0, 0, 2),
            ],
            "lowest of 2: class=dog 0.25",
        ),
        (
            "pgd",
            [
                Number("pgd_accuracy", 0.5, 1, 2, "linf 0.5/255"),
                Number("pgd_accuracy_strict", 0.0, 0, 2, "linf 0.5/255"),
                Number("agreement", 0.0, 0, 2, "linf 0.5/255"),
            ],
            "linf 0.5/255 0.5",
        ),
        (
            "grid_shuffle",
            [
                Number("accuracy", 0.75, 3, 4),
                Number("accuracy", 0.5, 2, 4, "2x2"),
                Number("di_index", 1.5, None, 4, "2x2"),
            ],
            "accuracy 0.75, 2x2 0.5",
        ),
        (
            "shape_bias",
            [
                Number("shape_bias", None, 0, 0),
                Number("fraction_shape", 0.0, 0, 2),
                Number("accuracy_shape", 0.5, 1, 2),
                Number("agreement", 1.0, 2, 2),
            ],
            "shape bias none of 0 decisions, accuracy shape 0.5, agreement 1",
        ),
        (
            "shape_bias",
            [Number("shape_bias", 0.75, 3, 4)],
            "shape bias 0.75 of 4 decisions",
        ),
        ("plain", [Number("accuracy", 0.5, 1, 2)], "accuracy 0.5"),
    ],
)
def test_summaries_have_the_main_numbers(probe_name, numbers, summary):
    assert registry.summarize(probe_name, numbers) == summary


def test_the_makers_of_all_rows_return_the_type_of_the_row():
    for name, row in registry.PROBES.items():
        signature = inspect.signature(row.load())
        if row.kind is inside.Inside:
            names = [*signature.parameters][:4]
            assert names == ["net", "variables", "images", "columns"], name
        else:
            assert signature.return_annotation is row.kind, name


def test_page_entries_are_in_the_order_of_the_table_with_all_their_measures():
    names = {x.name: probes for x, probes in registry.page_entries().items()}
    assert [*names][:2] == ["accuracy", "shape_bias"]
    assert names["attacks"] == ("pgd", "fgsm")
    shown_probes = [probe for probes in names.values() for probe in probes]
    expected = [name for name, row in registry.PROBES.items() if row.page]
    assert sorted(shown_probes) == sorted(expected)
    first_probes = [probes[0] for probes in names.values()]
    assert first_probes == [name for name in expected if name in first_probes]


def test_a_row_says_whether_its_measure_of_decisions_needs_probabilities(monkeypatch):
    """The row is read before the measure is made, for tables of decided classes."""
    monkeypatch.setattr(human_answers, "people", lambda root, dataset: [])
    arguments = {"human": {"root": "people", "files": ("a.png",)}}
    needing = set()
    for name, row in registry.PROBES.items():
        if row.kind is counting.Counting:
            measure = row.load()(**arguments.get(name, {}))
            assert row.needs_probabilities == measure.graded, name
            assert row.needs_classes_only == (not measure.graded), name
            needing |= {name} if measure.graded else set()
        else:
            assert not (row.needs_probabilities or row.needs_classes_only), name
    assert "calibration" in needing


def test_the_summary_of_a_critical_band_has_the_band():
    all_right = decisions.Decisions(np.zeros(4, int), {"label": np.zeros(4, int)})
    names = [
        critical_band.condition_name(s, f) for s in (0, 0.02) for f in (2, 4, 8, 16)
    ]
    names += [
        critical_band.condition_name(s, f)
        for s in (0.04, 0.08, 0.16)
        for f in (2, 4, 8, 16)
    ]
    numbers = critical_band.bvg_numbers(
        dict.fromkeys(names, all_right), side=32, draws=2, seed=0, continuous=False
    )
    summary = registry.summarize("critical_band", numbers)
    assert (
        summary == "bandwidth none, center frequency none, peak noise sensitivity none"
    )
