"""What the orderings of the data-distortion study rest on: levels, places, left-out seeds.

The figures of docs/distortion.md on the level of the tests are of the simulations here.
"""

import itertools
import json

import numpy as np
import pytest

from jbias.evals import interference
from jbias.report import (
    distortion_claims,
    distortion_detail,
    distortion_gaps,
    distortion_places,
    distortion_read,
    distortion_tables,
    distortion_values,
)
from jbias.stats import two_sample
from tests import cases
from tests.report import distorted

STUDIES = 120
CLAIM = distortion_claims.Claim(
    "Table 1",
    "more than less",
    distortion_claims.Cell("accuracy", "CIFAR-10", "basic"),
    distortion_claims.Cell("accuracy", "CIFAR-10", "MixUp"),
)


def parts(random, pull, dominant, seeds=5):
    """Seeds of which a share `pull`, or so, of the errors on distorted images gathers."""
    clean = random.multinomial(500, np.full(10, 0.1), size=seeds)
    share = np.clip(pull * (1 + 0.3 * random.normal(size=seeds)), 0, 1)[:, None]
    of_each = (1 - share) * 0.1 + share * (np.arange(10) == dominant)
    after = np.stack([random.multinomial(3000, p) for p in of_each])
    return interference.index(
        interference.increase(clean, after, 10_000), draws=1
    ).parts


def gaps(random, gap, left, seeds=5, n=1000):
    """Seeds of networks that keep the part `left` of their gap where parts are hidden."""
    shares = (0.6 + gap, 0.6, 0.4 + left * gap, 0.4)
    spread = np.array(shares)[:, None] + 0.01 * random.normal(size=(4, seeds))
    train, test, *hidden = random.binomial(n, np.clip(spread, 0, 1)) / n
    found = distortion_gaps.Gaps(
        seeds=tuple(range(seeds)),
        images=np.full((2, seeds), n),
        clean=np.stack([train, test]),
        curves=distortion_gaps.iocclusion.curves(
            {"": train, "x 0.3": hidden[0]}, {"": test, "x 0.3": hidden[1]}
        ),
    )
    return found.units("x")[1]


def rejected(pairs, statistic):
    """How often each side has p of 0.05 or less, of studies where both can be told."""
    known = [pair for pair in pairs if all(map(len, pair))]
    found = [two_sample.exchange(*pair, statistic) for pair in known]
    return [
        sum(p <= 0.05 for p in each)
        for each in ([x.greater for x in found], [x.less for x in found])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(5, 5), (5, 3)])
def test_the_same_index_in_another_class_is_no_difference(sizes):
    """Level 5 % a side: of 120 studies 14 are the 99.9 % quantile, 25 % would be 30."""
    random = np.random.default_rng(0)
    pairs = [
        [parts(random, 0.4, c, n) for c, n in zip((9, 3), sizes, strict=True)]
        for _ in range(STUDIES)
    ]
    assert max(rejected(pairs, distortion_values._product)) <= 14


def test_another_index_is_seen():
    random = np.random.default_rng(1)
    pairs = [[parts(random, pull, 9) for pull in (0.5, 0.25)] for _ in range(20)]
    more, less = rejected(pairs, distortion_values._product)
    assert more >= 16 and less == 0


@pytest.mark.slow
def test_the_same_iocclusion_of_another_gap_is_no_difference():
    """Gaps of 20 and 6 points, half of each left. Level 3 to 8 % a side, by 300 studies."""
    random = np.random.default_rng(2)
    pairs = [[gaps(random, gap, 0.5) for gap in (0.2, 0.06)] for _ in range(STUDIES)]
    assert max(rejected(pairs, distortion_gaps.ratio)) <= 18
    pairs = [[gaps(random, 0.2, left) for left in (0.9, 0.5)] for _ in range(20)]
    more, less = rejected(pairs, distortion_gaps.ratio)
    assert more >= 16 and less == 0


def test_both_sides_together_have_the_level():
    """Of all 70 ways to label eight values at most 5 % say something."""
    values, said = np.random.default_rng(3).normal(size=8), []
    for chosen in itertools.combinations(range(8), 4):
        groups = values[list(chosen)], np.delete(values, chosen)
        more, less = (distortion_values.plain(range(4), x) for x in groups)
        verdict = distortion_claims._tested(more, less, CLAIM)
        (told,) = distortion_claims._adjusted({CLAIM: verdict}).values()
        said.append(told.words(0.05))
    assert said.count("holds") == said.count("does not hold") == 1  # 1 / 70 each.


@cases.each(
    ("more", "less", "margin", "order"),
    [
        (2, 1, 0, "as claimed"),
        (1, 2, 0, "opposite"),
        (0, 0, 0, "equal"),
        (1, 1.5, 1, "as claimed"),
        (1, 2.0, 1, "as claimed"),
        (1, 2.5, 1, "opposite"),
        (1, np.nan, 0, ""),
    ],
)
def test_order_of_means(more, less, margin, order):
    assert CLAIM._replace(margin=margin).order(more, less) == order


def test_accuracies_end_at_0_and_100():
    found = distortion_values.plain(range(2), [99.0, 99.9], within=(0, 100))
    assert found.high == 100 and 80 < found.low < 99
    assert distortion_values.plain(range(2), [99.0, 99.9]).high > 100


@cases.each(
    ("before", "now", "flips"),
    [
        (-40, 40, "yes"),
        (40, 40, "no"),
        (-40, -40, "no"),
        (-40, 0, "cannot be told"),
        (0, 40, "cannot be told"),
    ],
)
def test_a_flip_is_told_by_intervals(before, now, flips):
    noise = np.array([-2.0, 0, 2])
    leads = [distortion_values.plain(range(3), x + noise) for x in (before, now)]
    assert distortion_detail._flips(*leads) == flips
    single = [distortion_values.plain((0,), [float(x)]) for x in (before, now)]
    assert distortion_detail._flips(*single) == "cannot be told"


def write(folder, found, seeds=2, data="cifar10"):
    """A study of basic networks; found: what is measured of a seed."""
    for seed in range(seeds):
        where = folder / str(seed)
        distorted.write(where, found(seed), method="basic", data=data, seed=seed)
    (group,), _ = distortion_read.read([f"{folder}/*"])
    return distortion_values.Study({group.key: group}), group


def test_a_network_of_one_class_has_no_index(tmp_path):
    def found(seed):
        rng = np.random.default_rng(seed)
        numbers, by = distorted.shuffled(rng, "basic", ("4x4",))
        if seed == 1:  # Whatever it is shown.
            by[""].prediction[:] = 9
        return {("grid_shuffle", "grid_shuffle", "test"): (numbers, by, {})}

    study, group = write(tmp_path / "one", found)
    value = study.value("di_grid", group.key)
    assert value.seeds == (0,) and value.left_out == 1
    (line,) = distortion_tables.caveats(study)
    assert "no DI index of 1 of basic, which decide nearly all plain" in line
    study, group = write(tmp_path / "all", lambda _: found(1))
    value = study.value("di_grid", group.key)
    assert np.isnan(value.mean) and value.left_out == 2 and value.images == distorted.N
    (table,) = distortion_tables.of(study, {})
    assert table.rows[0][2] == "– (n = 0 of 2)"


def test_imagenet_is_shuffled_in_8_by_8(tmp_path):
    def found(seed):
        rng = np.random.default_rng(seed)
        by = distorted.shuffled(rng, "basic", ("2x2", "4x4", "8x8"))
        return {("grid_shuffle", "grid_shuffle", "test"): (*by, {})}

    _, group = write(tmp_path, found, data="imagenet")
    assert distortion_values.interfering(group, "di_grid")[1] == "8x8"


def boxes(*measures, **options):
    """cut_occlusion of each name, with its options, of images of another set."""
    rng = np.random.default_rng(0)
    by = distorted.shuffled(rng, "basic", ("other",))
    return {
        (name, "cut_occlusion", "test"): (*by, distorted.boxes("other") | own)
        for name, own in zip(measures, options.values(), strict=True)
    }


def test_each_table_has_boxes_of_its_own(tmp_path):
    uniform = dict(area="uniform", placement="restricted")
    part = dict(area=0.3, placement="restricted")
    names = "uniform", "any", "part"
    found = boxes(*names, a=uniform, b={}, c=part)
    _, group = write(tmp_path, lambda _: found)
    for quantity, name in (("di_anywhere", "any"), ("di_other", "part")):
        place, _ = distortion_values.interfering(group, quantity)
        assert place == (name, "test")


def test_several_measures_that_fit_are_refused(tmp_path):
    _, group = write(tmp_path / "a", lambda _: boxes("one", "two", a={}, b={}))
    with pytest.raises(ValueError, match="one@test, two@test"):
        distortion_values.interfering(group, "di_anywhere")


@cases.each(
    ("options", "refused"),
    [
        ({"site": "stage2"}, True),
        ({"quantise": True}, True),
        ({"site": "stage3"}, False),
    ],
)
def test_seeds_are_measured_alike(tmp_path, options, refused):
    rng = np.random.default_rng(0)
    numbers = distorted.hidden(rng, "basic", "test")
    key = ("occlusion", "occlusion", "test")
    _, group = write(
        tmp_path, lambda seed: {key: (numbers, None, options if seed else {})}
    )
    if refused:
        with pytest.raises(
            ValueError, match=r"same options for all seeds.*\(2 kinds\)"
        ):
            distortion_places.where(group, "occlusion", fill="black")
    else:
        place = distortion_places.where(group, "occlusion", fill="black")
        assert place == ("occlusion", "test")
    lines = list(distortion_places.caveats({group.key: group}))
    assert len(lines) == refused and all("in 2 ways" in line for line in lines)
    told = json.loads((tmp_path / "1/measures/occlusion@test.json").read_text())
    assert told["measure"]["options"] == options
