"""Plans of planted networks: unique names, and hidden dials that a seed determines."""

import pytest

from jbias.calibrating import rows
from jbias.planting import plans


def test_the_networks_of_a_study_have_unique_names_and_known_families():
    planned = plans.visible()
    plans.check(planned)
    assert {plan.family for plan in planned} == {*rows.FAMILIES}
    assert {plan.level for plan in planned if plan.family == "none"} == {
        *plans.FAILURES
    }
    for plan in planned:
        assert (plan.dial is None) == (plan.family == "none") and not plan.hidden
        assert bool(plan.shortcut) == (plan.strength > 0)
        assert plan.shortcut in rows.SHORTCUTS


def test_hidden_networks_depend_on_their_seed_and_do_not_name_their_dials():
    first = plans.hidden(1)
    assert first == plans.hidden(1)
    assert [plan.dial for plan in first] != [plan.dial for plan in plans.hidden(2)]
    assert all(plan.hidden == 1 for plan in first)
    assert {plan.family for plan in first} == {*rows.FAMILIES}
    for plan in first:
        assert plan.dial is None or f"{plan.dial:g}" not in plan.name
    assert first[:8] == plans.hidden(1, count=8)


def test_repeated_names_and_dials_outside_the_scale_are_refused():
    plan = plans.visible()[0]
    with pytest.raises(ValueError, match="unique names"):
        plans.check([plan, plan])
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        plans.check([plan._replace(dial=1.5)])
