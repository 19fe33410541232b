"""Hostile filters: drawn near every bound, the same from one seed, and cheap to turn away."""

from peersub.bench.hostile_filters import hostile_filters
from peersub.filters import Filter
from peersub.filters.price import FILTER_PRICE_MAX, PART_PRICE_MAX, TooDearError
from peersub.filters.widened import parts_of


def test_hostile_filters_are_refused_or_within_their_price():
    drawn = list(hostile_filters(3, 78))
    assert drawn == list(hostile_filters(3, 78)), "the same from one seed"
    outcomes = {"language": 0, "dear": 0, "none": 0, "legal": 0}
    for each in drawn:
        if each.data is None:
            outcomes["language"] += 1
            continue
        try:
            read = Filter.from_bytes(each.data, FILTER_PRICE_MAX)
        except TooDearError:
            outcomes["dear"] += 1
        except ValueError:
            outcomes["none"] += 1
        else:
            outcomes["legal"] += 1
            assert read.price.units <= FILTER_PRICE_MAX
            assert all(part.price.units <= PART_PRICE_MAX for part in parts_of(read))
    assert min(outcomes.values()) > 0, "some of each"
