"""Plans of planted networks: unique names, and hidden dials that a seed determines."""

import itertools

import pytest

from jbias.calibrating import rows
from jbias.calibrating import rules as rules_lib
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
    assert not {plan.name for plan in first} & {plan.name for plan in plans.hidden(2)}


@pytest.mark.parametrize("seed", range(50))
def test_a_hidden_set_has_enough_networks_for_a_verdict_on_measures_of_images(seed):
    """A sixth of those that may be ranked and see images may be left out."""
    rules = rules_lib.Rules()
    candidates = [
        plan
        for plan in plans.hidden(seed)
        if plan.family in rules.share_families
        and plan.family != "rule"
        and not plan.shortcut
    ]
    assert len(candidates) >= 1.2 * rules.least_networks


def test_networks_that_share_training_are_one_cluster():
    """Seeds of one setting, and mixtures of one pair of streams, are not independent."""
    planned = plans.visible()
    by_cluster = {}
    for plan in planned:
        by_cluster.setdefault(plan.cluster, []).append(plan)
    for cluster, members in by_cluster.items():
        settings = {(x.dial, x.level, x.shortcut, x.strength) for x in members}
        if cluster.startswith("streams-"):
            assert {plan.family for plan in members} >= {"mixed_images"}
        else:
            assert len(settings) == 1, cluster
    streams = {plan.seed for plan in planned if plan.family == "mixed_images"}
    assert len(streams) == plans.FULL.stream_pairs >= 5
    by_dial = {}
    for plan in planned:
        if plan.family == "mixed_images":
            by_dial.setdefault(plan.dial, set()).add(plan.seed)
    dials = sorted(by_dial)
    assert all(len(seeds) == 2 for seeds in by_dial.values())
    for low, high in itertools.pairwise(dials):
        assert by_dial[low] != by_dial[high]


def test_trained_networks_of_each_level_and_design_are_a_group():
    groups = {plan.group for plan in plans.visible() if plan.family == "trained"}
    assert groups == {
        "trained-high",
        "trained-low",
        "trained-agreement",
        "trained-availability",
    }
    untrained = [plan for plan in plans.visible() if plan.family != "trained"]
    assert all(plan.group == plan.family for plan in untrained)


def test_trained_networks_and_streams_of_each_set_have_seeds_of_their_own():
    """Seeds below 10 were used in trials, from which the rules were made."""
    seeds = {}
    for plan in (*plans.visible(), *plans.hidden(1)):
        kind = "mixed" if plan.family.startswith("mixed") else plan.family
        if kind in ("trained", "mixed"):
            level = plan.level if kind == "trained" and not plan.hidden else ""
            seeds.setdefault((kind, level, plan.hidden), set()).add(plan.seed)
    for first, second in itertools.combinations(seeds.values(), 2):
        assert not first & second or min(first) in (10, 12)  # Levels of one kind.
    levels = {k: v for k, v in seeds.items() if k[0] == "trained" and not k[2]}
    assert not levels["trained", "high", 0] & levels["trained", "low", 0]
    assert min(itertools.chain(*seeds.values())) >= 10


def test_networks_with_a_shortcut_are_enough_for_an_interval():
    rules = rules_lib.Rules()
    for shortcut in ("colour", "size"):
        planted = [
            plan
            for plan in plans.visible()
            if plan.family == "trained" and plan.shortcut == shortcut
        ]
        assert len({plan.dial for plan in planted}) >= rules.least_shortcut_networks
        of_further_plans = {
            strength
            for name, _, strength in plans.FULL.further_shortcuts
            if name == shortcut
        }
        strengths = {plan.strength for plan in planted}
        assert strengths == {*plans.FULL.strengths} | of_further_plans


def test_each_range_of_accuracy_may_have_enough_trained_networks():
    """Decision rules are not enough, as measures of changed images cannot be read from them."""
    for level in plans.TRAINED_LEVELS:
        names = [
            plan.name
            for plan in plans.visible()
            if plan.family == "trained" and plan.level == level and not plan.shortcut
        ]
        assert len(names) >= rules_lib.Rules().bin_networks


def test_the_more_reliable_cue_is_in_fewer_images_of_networks_of_availability():
    planned = [plan for plan in plans.visible() if "hidden" in plan.options]
    assert {plan.dial for plan in planned} == {0.0, 1.0}
    for plan in planned:
        shape, texture, *_ = plan.options["agrees"]
        hidden_shape, hidden_texture = plan.options["hidden"]
        assert (shape > texture) == (hidden_shape > hidden_texture) == bool(plan.dial)


@pytest.mark.parametrize(
    "scale",
    [
        plans.FULL,
        plans.FULL._replace(trained_dials=(0.1, 0.45, 1 / 3), rule_dials=(0.5,)),
    ],
)
def test_each_network_with_a_shortcut_has_one_without_at_its_planned_dial(scale):
    """Whatever the dials of a family are; networks of agreeing cues do not depend on them."""
    planned = plans.visible(scale)
    plans.check(planned)
    plain = {(x.family, x.level, x.dial) for x in planned if not x.shortcut}
    with_shortcut = {(x.family, x.level, x.dial) for x in planned if x.shortcut}
    assert with_shortcut and with_shortcut <= plain
    agreeing = [plan for plan in planned if plan.options]
    assert len(agreeing) == (3 + len(scale.shares_without)) * scale.seeds


def test_repeated_names_and_dials_outside_the_scale_are_refused():
    plan = plans.visible()[0]
    with pytest.raises(ValueError, match="unique names"):
        plans.check([plan, plan])
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        plans.check([plan._replace(dial=1.5)])
