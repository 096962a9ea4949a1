"""Wilson's interval equals scipy's."""

import pytest
import scipy.stats

from jbias.measures import decisions
from tests import cases


@cases.each(("count", "n"), [(0, 7), (7, 7), (3, 7), (1, 50_000)])
@cases.each("confidence", [0.9, 0.95])
def test_wilson_is_scipys(count, n, confidence):
    test = scipy.stats.binomtest(count, n)
    expected = test.proportion_ci(confidence, method="wilson")
    interval = decisions.wilson_interval(count, n, confidence=confidence)
    assert interval == pytest.approx([*expected], abs=1e-12)
    assert 0 <= interval[0] <= count / n <= interval[1] <= 1


def test_the_interval_of_no_images_is_0_to_1_and_larger_counts_are_refused():
    assert decisions.wilson_interval(0, 0) == (0, 1)
    with pytest.raises(ValueError, match="count must be in 0 ... 3, got 4"):
        decisions.wilson_interval(4, 3)
