"""Results for the Hugging Face Hub have its published form, and survive a round trip."""

import pytest

from jbias.cards import card, eval_results
from tests.cards import planted

yaml = pytest.importorskip("yaml", reason="needs the package pyyaml")
# Of the form's page: keys of an entry, of its data set and of its source.
KEYS = {
    "dataset",
    "value",
    "verifyToken",
    "date",
    "source",
    "evaluation_framework",
    "notes",
}
DATASET_KEYS, SOURCE_KEYS = (
    {"id", "task_id", "revision"},
    {"url", "name", "user", "org"},
)


@pytest.fixture(params=["owner/set", "owner/set@0123456789abcdef"])
def content(request, tmp_path):
    """Return a card with results on a benchmark, of a model whose name YAML could misread."""
    cues = planted.conflict_table(planted.decide(50, 60, 20, 5))
    source = "https://example.org/'card'" if "@" in request.param else ""
    hub = eval_results.parse(request.param, source)
    results = planted.results(cues, name='net: - "x" # é \U0001f600')
    return card.make(results, str(tmp_path / "card"), hub=hub)


def test_entries_have_the_published_form(content):
    entries = yaml.safe_load(eval_results.write(content))
    assert len(entries) == len(content["numbers"])
    for entry, number in zip(entries, content["numbers"], strict=True):
        assert {"dataset", "value"} <= entry.keys() <= KEYS
        assert {"id", "task_id"} <= entry["dataset"].keys() <= DATASET_KEYS
        assert entry["value"] == pytest.approx(number["value"], abs=5e-7)
        assert isinstance(entry["date"], str) and entry["date"] == content["date"]
        assert entry["dataset"]["id"] == "owner/set"
        assert entry["dataset"].get("revision", "") == content["hub"]["revision"]
        if "source" in entry:
            assert "url" in entry["source"] and entry["source"].keys() <= SOURCE_KEYS
            assert entry["source"]["url"] == content["hub"]["source"]
        assert f"n = {number['n']} {number['unit']}" in entry["notes"]
    tasks = [entry["dataset"]["task_id"] for entry in entries]
    assert tasks == ["shape_bias", "accuracy_shape", "accuracy_texture"]


def test_the_hubs_own_reader_returns_the_same_entries(content):
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    if not hasattr(hub, "parse_eval_result_entries"):
        pytest.skip("huggingface_hub has no reader of results")
    entries = yaml.safe_load(eval_results.write(content))
    parsed = hub.parse_eval_result_entries(entries)
    assert hub.eval_result_entries_to_yaml(parsed) == entries
    assert [x.dataset_id for x in parsed] == ["owner/set"] * len(entries)


def test_small_values_are_numbers(content):
    content["numbers"][0]["value"] = 1e-5
    (first, *_) = yaml.safe_load(eval_results.write(content))
    assert first["value"] == 1e-5


@pytest.mark.parametrize(
    "text", ["", "set", "a/b/c", "a/b@main", "-a/b", "a b/c", "a/b@"]
)
def test_other_names_of_benchmarks_are_refused(text):
    with pytest.raises(ValueError, match="--benchmark: must be OWNER/NAME"):
        eval_results.parse(text)
