"""The stored comparison of the parser with published readings is what its command computes."""

import json

from jbias.answers import parsing
from studies import command, parsed_answers
from tests.answers import published

STORED = json.loads((command.RESULTS / "parsed_answers.json").read_text("utf-8"))


def test_the_stored_comparison_is_of_this_parser_and_agrees_by_99_9_percent():
    """Parsing the stored responses again gives the stored classes."""
    assert STORED["parser"] == parsing.VERSION
    assert STORED["responses"] == 14 * 1280
    assert STORED["agreeing"] + len(STORED["disagreements"]) == STORED["responses"]
    assert STORED["agreement"] >= 0.999
    for entry in STORED["disagreements"]:
        parsed = parsing.parse(entry["response"])
        assert (parsed.decision, parsed.reason) == (entry["ours"], entry["why_not"])


def test_every_disagreement_is_judged():
    for entry in STORED["disagreements"]:
        assert entry["published"] != entry["ours"]
        assert entry["right"] in ("ours", "published", "neither")
        assert len(entry["judgement"]) > 30
    assert len(STORED["disagreements"]) == len(parsed_answers.JUDGEMENTS)


@published.needed
def test_the_comparison_is_computed_again_to_the_byte():
    result = parsed_answers.compare([*parsed_answers.read(published.VLM)])
    assert json.loads(json.dumps(result)) == STORED
