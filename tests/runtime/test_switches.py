"""Environment switches: 0 and similar values are off."""

import pytest

from jbias import run_spec
from jbias.configs import erm
from jbias.runtime import switches
from tests import cases


@cases.each("value", ["", "0", "false", "No", " off "])
def test_negative_values_are_off(monkeypatch, value):
    monkeypatch.setenv("JBIAS_OWN_CODE", value)
    assert not switches.is_on("JBIAS_OWN_CODE")
    config = run_spec.RunSpec.from_config(erm.get_config("smoke")).config
    config["algo"] = {"name": "mine.py:make"}
    with pytest.raises(ValueError, match="set JBIAS_OWN_CODE=1"):
        run_spec.check_trusted(config, "runs/of-others")


@cases.each("value", ["1", "true", "yes"])
def test_positive_values_are_on(monkeypatch, value):
    monkeypatch.setenv("JBIAS_OWN_CODE", value)
    assert switches.is_on("JBIAS_OWN_CODE")
    monkeypatch.delenv("JBIAS_OWN_CODE")
    assert not switches.is_on("JBIAS_OWN_CODE")
