"""Keyed draws: functions of what they are about, spread evenly, the same in every process."""

from hypothesis import given
from hypothesis import strategies as st

from peersub.overlays.core.draws import draw, draw_below, draw_share


def test_a_draw_is_a_fixed_function():
    # Written down once: a change of these numbers changes the place of every node of a network.
    assert draw(1, "key", "n1") == 201_378_455_810_114_946
    assert draw(1, "key", 1) != draw(1, "key", "1")
    assert draw(1, "a", "bc") != draw(1, "ab", "c")


@given(st.integers(1, 1000), st.integers())
def test_below_a_bound(bound, seed):
    assert 0 <= draw_below(bound, seed, "x") < bound
    assert 0 <= draw_share(seed, "x") < 1


def test_draws_are_spread_evenly():
    counts = [0] * 10
    for number in range(10_000):
        counts[draw_below(10, 7, "spread", number)] += 1
    # Six standard deviations of a binomial with n = 10,000 and p = 0.1.
    assert all(abs(count - 1_000) < 180 for count in counts)
