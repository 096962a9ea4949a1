"""Answers of a measure under way: what a stop, or an error, leaves of them."""

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from jbias.evals import inference, journals, probe

CONDITIONS = {name: np.float32(i) for i, name in enumerate(("", "dark", "light"))}
RULES = {"": inference.DecisionRule(7), "own": inference.DecisionRule(7)}


def batches():
    """Seven images in three batches, the last filled up."""
    image = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 3), np.uint8)
    for first, count in ((0, 3), (3, 3), (6, 1)):
        rows = np.arange(first, first + 3, dtype=np.int32)
        yield inference.Batch(image[rows], rows, rows % 2, rows % 3, count)


class Network:
    """Answers so many times, and then breaks off."""

    apply = variables = at = net = None
    graded = True

    def __init__(self, often):
        self.left, self.asked = often, []

    def predict(self, image, shown):
        if not self.left:
            raise ValueError("the server is gone")
        self.left -= 1
        self.asked.append((shown.condition, int(shown.index[0])))
        means = jnp.asarray(image).mean((1, 2))
        return means * jnp.float32(1 + len(shown.condition))


def run(network, journal=None, tell=lambda count, **_: None):
    made = probe.Probe(CONDITIONS, lambda rows, params: rows.image, lambda found: [])
    return inference.run_probe(
        network, made, batches(), RULES, journal=journal, tell=tell
    )


@pytest.mark.parametrize("often", [0, 1, 4, 8])
def test_what_was_answered_before_an_error_is_never_asked_again(tmp_path, often):
    whole, path, told = Network(9), epath.Path(tmp_path / "a/b.npy"), []
    expected = run(whole)
    with pytest.raises(ValueError, match="the server is gone"):
        run(Network(often), journals.Journal(path, "x"))
    rest, journal = Network(9), journals.Journal(path, "x")
    assert len(journal.entries) == often and (journal.seconds > 0) == (often > 0)
    found = run(rest, journal, lambda n, counted=True: told.append((n, counted)))
    assert rest.asked == whole.asked[often:]
    assert told == [(n, i >= often) for i, n in enumerate([3] * 6 + [1] * 3)]
    for name, columns in expected.items():
        for field, column in columns.items():
            np.testing.assert_array_equal(found[name][field], column)
            assert found[name][field].dtype == np.asarray(column).dtype
    (path.parent / "another.npy").touch()
    journals.remove(path)
    assert not path.exists() and path.parent.exists()
    journals.remove(path.parent / "another.npy")
    journals.remove(path.parent / "another.npy")
    assert not path.parent.exists()


def test_a_torn_end_and_answers_to_something_else_are_dropped(tmp_path):
    path = epath.Path(tmp_path / "b.npy")
    run(Network(9), journals.Journal(path, "x"))
    whole = path.read_bytes()
    for cut in (1, 40, 200, len(whole) - 5):
        path.write_bytes(whole[:-cut])
        journal, rest = journals.Journal(path, "x"), Network(9)
        assert len(journal.entries) < 9
        run(rest, journal)
        assert len(rest.asked) == 9 - len(journal.entries)
        assert len(journals.Journal(path, "x").entries) == 9
    assert not journals.Journal(path, "y").entries
    run(Network(9), journals.Journal(path, "y"))
    assert len(journals.Journal(path, "y").entries) == 9
