"""The choice of a split from measured slowdowns. 0 stands for the whole GPU."""

import pytest

from sluice.serve.profile import choose_split, figure, rising


@pytest.mark.parametrize(("slowdowns", "chosen"), [
    ({}, None),
    ({16: 1.2, 0: 1.3}, None),
    ({16: 1.02, 32: 1.08, 64: 1.12, 0: 1.2}, 32),
    ({0: 1.05, 16: 1.02}, 0),
    # 64 alone would be within the bound, but 48 is not: their mean decides.
    ({32: 1.05, 48: 1.16, 64: 1.09, 0: 1.2}, 32),
    ({32: 1.05, 48: 1.101, 64: 1.09, 0: 1.2}, 64),
])
def test_largest_split_within_the_bound_of_ten_percent(slowdowns, chosen):
    assert choose_split(slowdowns, 0.1) == chosen


@pytest.mark.parametrize(("values", "fitted"), [([], []), ([1, 2, 3], [1, 2, 3]), ([3, 2, 1], [2, 2, 2]), ([1, 4, 2, 5], [1, 3, 3, 5])])
def test_fit_never_falls(values, fitted):
    assert rising(values) == fitted


def test_figure_is_the_90th_percentile_without_the_longest_requests_and_without_a_disturbed_block():
    block = [1.0] * 85 + [1.1] * 10 + [5.0] * 5
    assert figure([block, block, [9.0] * 100]) == 1.1
    # A block of one request has no other figure.
    assert figure([[2.0]]) == 2.0
