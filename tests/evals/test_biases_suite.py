"""The suite of biases has the measures whose rows say so, with default options."""

import types

from jbias.configs.suites import biases
from jbias.evals import registry
from jbias.evals.activations import inside
from jbias.measures import counting
from jbias.stimuli import shown
from tests import cases


@cases.each(
    ("kind", "images", "images_of_trial"),
    [
        (counting.Counting, None, biases.SMOKE),
        (shown.Stimuli, 9, 16),
        (inside.Inside, 9, 16),
    ],
)
def test_a_row_adds_its_measure_to_the_suite(
    kind, images, images_of_trial, monkeypatch
):
    """The sets are those of labelled images; images=9 limits all but measures of decisions."""
    row = registry.Row(kind, "nowhere:make", in_default_suite=True)
    rows = {"new": row, "other": row._replace(in_default_suite=False)}
    table = types.MappingProxyType({**registry.PROBES, **rows})
    config = biases.get_config("images=9").to_dict()
    monkeypatch.setattr(registry, "PROBES", table)
    extended_config = biases.get_config("images=9").to_dict()
    options = {"probe": "new", "sets": ("test",)}
    limits = {} if images is None else {"images": images}
    assert extended_config["measures"].pop("new") == options | limits
    assert extended_config == config
    trial = biases.get_config("smoke").measures.new.to_dict()
    assert trial == options | {"images": images_of_trial}


@cases.each(
    ("text", "labelled"),
    [
        ("", "test"),
        ("data=imagenet,root=a,stimuli=b", "imagenet"),
        ("data=pacs,root=a,style=sketch", "sketch"),
        ("data=folder,root=a,split=near+far", "near"),
    ],
)
def test_measures_of_rows_have_no_options(text, labelled):
    measures = biases.get_config(text).measures
    for name, row in registry.PROBES.items():
        if row.in_default_suite:
            options = {"probe": name, "sets": (labelled,), "images": 0}
            if row.kind is counting.Counting:
                del options["images"]
            assert measures[name].to_dict() == options


def test_only_a_suite_with_labelled_images_has_the_measures_of_rows():
    measures = biases.get_config("data=stimuli,stimuli=a").measures
    names = {name for name, row in registry.PROBES.items() if row.in_default_suite}
    assert names and not names & {*measures}


def test_sets_by_name_are_in_the_suite_if_their_folders_are_given():
    text = "data=imagenet,root=a,stimuli=b,objectnet=c,refined=d,frequency=e"
    config = biases.get_config(text)
    sets = config.sets.to_dict()
    assert sets["objectnet"] == dict(data="objectnet", split="test", root="c")
    assert sets["refined_bias"] == dict(data="refined_bias", split="both", root="d")
    frequency = dict(data="frequency_cue_conflict", split="test", root="e")
    assert sets["frequency_cue_conflict"] == frequency
    measures = config.measures
    assert {"objectnet", "refined_bias"} <= {*measures.accuracy.sets}
    assert measures.shape_bias.sets == ("cue-conflict", "frequency_cue_conflict")
    stimuli = biases.get_config("data=stimuli,stimuli=b,frequency=e").measures
    assert stimuli.shape_bias.sets == measures.shape_bias.sets
    without = biases.get_config("data=imagenet,root=a,frequency=e").measures
    assert without.shape_bias.sets == ("frequency_cue_conflict",)
