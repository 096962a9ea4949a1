"""The check that methods learn: its configs, and its committed table."""

import json

import pytest

from studies import command, learning_check


def test_the_committed_table_is_that_of_the_stored_rows():
    """Each method reaches twice the accuracy of chance: it learns."""
    path = command.RESULTS / f"{learning_check.NAME}.json"
    rows = json.loads(path.read_text())["results"]
    assert [*rows] == [*learning_check.METHODS]
    page = path.with_suffix(".md").read_text()
    assert page.startswith(learning_check.page(rows))
    for name, row in rows.items():
        assert row["accuracy"] > 2 / learning_check.CLASSES, name


@pytest.mark.parametrize("name", ["mldg", "dann-independent"])
def test_configs_have_the_documented_rates_and_epochs(name):
    method = learning_check.METHODS[name]
    config = learning_check.make_config(method)
    is_adam = config.optim.name == "adam"
    assert is_adam == (name != "mldg")
    assert config.optim.rate == (1e-3 if is_adam else learning_check.SGD_RATE)
    if name == "mldg":
        assert config.algo.inner_rate == learning_check.SGD_RATE
    assert config.epochs == method.epochs * learning_check.EPOCHS
    assert config.train.correlation == method.correlation
    assert config.train.balance == "attribute" and not config.tests
