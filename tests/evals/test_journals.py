"""Journals of a measure's answers: an evaluation resumes after a stop or an error."""

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from jbias.evals import inference, journals
from jbias.stimuli import shown

CONDITIONS = {name: np.float32(i) for i, name in enumerate(("", "dark", "light"))}
RULES = {"": inference.DecisionRule(7), "own": inference.DecisionRule(7)}


def make_batches():
    """Yield seven images in three batches; the last is padded."""
    image = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 3), np.uint8)
    for first, count in ((0, 3), (3, 3), (6, 1)):
        rows = np.arange(first, first + 3, dtype=np.int32)
        yield inference.Batch(image[rows], rows, rows % 2, rows % 3, count)


class Network:
    """A network that answers a given number of batches and then raises an error."""

    apply = variables = at = net = None
    graded = True

    def __init__(self, num_answers):
        self.answers_left, self.questions = num_answers, []

    def predict(self, image, shown):
        if not self.answers_left:
            raise ValueError("the server is gone")
        self.answers_left -= 1
        self.questions.append((shown.condition, int(shown.index[0])))
        means = jnp.asarray(image).mean((1, 2))
        return means * jnp.float32(1 + len(shown.condition))


def run(network, journal=None, tell=lambda count, **_: None):
    plain_probe = shown.Stimuli(
        CONDITIONS, lambda rows, params: rows.image, lambda decided: []
    )
    return inference.run_probe(
        network, plain_probe, make_batches(), RULES, journal=journal, tell=tell
    )


@pytest.mark.parametrize("num_answers", [0, 1, 4, 8])
def test_answers_before_an_error_are_not_computed_again(tmp_path, num_answers):
    uninterrupted, path, progress = Network(9), epath.Path(tmp_path / "a/b.npy"), []
    expected = run(uninterrupted)
    with pytest.raises(ValueError, match="the server is gone"):
        run(Network(num_answers), journals.Journal(path, "x"))
    resumed, journal = Network(9), journals.Journal(path, "x")
    assert len(journal.entries) == num_answers and (journal.seconds > 0) == (
        num_answers > 0
    )
    columns_by_rule = run(
        resumed, journal, lambda n, counted=True: progress.append((n, counted))
    )
    assert resumed.questions == uninterrupted.questions[num_answers:]
    assert progress == [(n, i >= num_answers) for i, n in enumerate([3] * 6 + [1] * 3)]
    for name, columns in expected.items():
        for field, column in columns.items():
            np.testing.assert_array_equal(columns_by_rule[name][field], column)
            assert columns_by_rule[name][field].dtype == np.asarray(column).dtype
    (path.parent / "another.npy").touch()
    journals.remove(path)
    assert not path.exists() and path.parent.exists()
    journals.remove(path.parent / "another.npy")
    journals.remove(path.parent / "another.npy")
    assert not path.parent.exists()


def test_truncated_entries_and_journals_of_other_measures_are_dropped(tmp_path):
    path = epath.Path(tmp_path / "b.npy")
    run(Network(9), journals.Journal(path, "x"))
    content = path.read_bytes()
    for cut in (1, 40, 200, len(content) - 5):
        path.write_bytes(content[:-cut])
        journal, resumed = journals.Journal(path, "x"), Network(9)
        assert len(journal.entries) < 9
        run(resumed, journal)
        assert len(resumed.questions) == 9 - len(journal.entries)
        assert len(journals.Journal(path, "x").entries) == 9
    assert not journals.Journal(path, "y").entries
    run(Network(9), journals.Journal(path, "y"))
    assert len(journals.Journal(path, "y").entries) == 9
