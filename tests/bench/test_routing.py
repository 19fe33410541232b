"""The comparison of routing strategies: counts against what can be known, and its arithmetic."""

import io
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from peersub.bench import routing, routing_report
from peersub.bench.routing import CONTENDERS, RoutingSettings, run_routing
from peersub.bench.routing_costs import CostLine, cheapest, crossover, crossovers
from peersub.bench.routing_trials import PLACEMENTS, Trial, TrialResult, run_trial
from peersub.bench.routing_workload import WORLDS, WorldSettings, draw_world

BY_NAME = {contender.name: contender for contender in CONTENDERS}
NODES = 32


# --- arithmetic ----------------------------------------------------------------------------------

# Whole numbers: what is equal on paper is equal in floats.
costs = st.integers(0, 50).map(float)
line_lists = st.lists(st.tuples(costs, costs), min_size=1, max_size=8).map(
    lambda pairs: [CostLine(f"c{number}", *pair) for number, pair in enumerate(pairs)]
)


def test_lines_cross_where_their_costs_are_equal():
    merging, covering = CostLine("merging", 40, 30), CostLine("covering", 100, 10)
    found = crossover(merging, covering)
    assert found is not None
    assert (found.ratio, found.below, found.above) == (3.0, "merging", "covering")
    assert merging.at(3) == covering.at(3) == 130
    assert crossover(covering, merging) == found


def test_who_is_never_dearer_is_never_crossed():
    covering = CostLine("covering", 100, 10)
    assert crossover(covering, CostLine("simple", 300, 10)) is None
    assert crossover(covering, CostLine("worse", 100, 11)) is None
    assert crossover(covering, CostLine("much worse", 101, 11)) is None


@given(line_lists)
def test_crossovers_change_who_is_cheaper(lines):
    by_name = {line.name: line for line in lines}
    found = crossovers(lines)
    assert [each.ratio for each in found] == sorted(each.ratio for each in found)
    for each in found:
        below, above = by_name[each.below], by_name[each.above]
        assert below.at(each.ratio) == pytest.approx(above.at(each.ratio))
        assert below.at(each.ratio / 2) < above.at(each.ratio / 2)
        assert below.at(each.ratio * 2) > above.at(each.ratio * 2)


@given(line_lists, st.floats(0, 100))
def test_the_cheapest_is_the_cheapest_at_every_ratio(lines, ratio):
    spans = cheapest(lines)
    assert spans[0].start == 0 and spans[-1].end == float("inf")
    assert all(one.end == other.start for one, other in pairwise(spans))
    by_name = {line.name: line for line in lines}
    (span,) = [span for span in spans if span.start <= ratio < span.end]
    assert by_name[span.name].at(ratio) == pytest.approx(min(line.at(ratio) for line in lines))


def test_a_row_is_cheaper_below_or_above_a_ratio_always_or_never():
    base = CostLine("covering", 100, 10)
    others = [CostLine("other", *pair) for pair in ((40, 30), (160, 4), (90, 10), (100, 10))]
    found = [routing_report.cheaper_at(other, base) for other in others]
    assert found == ["< 3", "> 10", "always", "never"]


def test_nobody_is_cheapest_among_nobody():
    assert cheapest([]) == []
    assert routing_report.in_words([]) == "nobody"
    alone = cheapest([CostLine("covering", 1, 2)])
    assert routing_report.in_words(alone) == "covering at every ratio"


# --- what is subscribed and published ------------------------------------------------------------


@pytest.mark.parametrize("kind", WORLDS)
def test_a_world_is_as_selective_as_it_should_be_and_one_seed_is_one_world(kind):
    settings = WorldSettings(kind=kind, subscriptions=150, events=150, share=0.05)
    world = draw_world(settings)
    matches = sum(w.matches(event) for _, w in world.subscriptions for event in world.events)
    assert 0.03 < matches / (150 * 150) < 0.075
    draw_world.cache_clear()
    again = draw_world(settings)
    assert again.subscriptions == world.subscriptions and again.events == world.events
    assert draw_world(replace(settings, seed=2)).subscriptions != world.subscriptions


def test_skews_of_subscriptions_and_events_are_separate():
    plain = WorldSettings(kind="thresholds", subscriptions=100, events=400, share=0.05)
    skewed_events = draw_world(replace(plain, event_skew="zipf"))
    assert skewed_events.subscriptions == draw_world(plain).subscriptions

    def most_common(settings):
        words = [event.attributes["c0"] for event in draw_world(settings).events]
        return max(map(words.count, words))

    assert most_common(replace(plain, event_skew="zipf")) > 2 * most_common(plain)


def test_worlds_that_do_not_exist_are_named():
    with pytest.raises(ValueError, match="thresholds, wishes, unrelated"):
        draw_world(WorldSettings(kind="moon", subscriptions=1, events=1, share=0.1))


# --- one trial -----------------------------------------------------------------------------------


def trial(name: str, **changes: object) -> TrialResult:
    settings: dict[str, object] = {
        "contender": BY_NAME[name],
        "world": "thresholds",
        "nodes": NODES,
        "subscriptions": 2 * NODES,
        "changes": 4,
        "events": 30,
        "share": 0.05,
        "subscription_skew": "uniform",
        "event_skews": ("uniform",),
        "seed": 1,
    }
    return run_trial(Trial(**(settings | changes)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def chord_trials() -> dict[str, TrialResult]:
    names = ("simple", "covering", "perfect", "imperfect 10 %", "imperfect 1 row")
    return {name: trial(name) for name in names}


def test_every_strategy_delivers_what_brute_force_expects():
    settings = WorldSettings(
        kind="thresholds", subscriptions=2 * NODES, events=30, share=0.05, seed=1
    )
    world = draw_world(settings)
    pairs = [
        (event.id, name, number % NODES)
        for event in world.events
        for number, (name, wanted) in enumerate(world.subscriptions)
        if wanted.matches(event)
    ]
    homes = len({(event, home) for event, _, home in pairs})
    for name in ("simple", "imperfect 10 %", "tree, covering", "flood"):
        result = trial(name, changes=0)
        costs = result.by_skew["uniform"]
        assert result.is_good and result.expected == len(pairs)
        # A publisher that wants its own event is no receiver.
        assert homes - costs.events <= costs.matching_receivers <= homes
        assert costs.matching_receivers <= costs.receivers <= costs.notifications


def test_all_is_checked_and_nothing_but_the_trial_is_counted(chord_trials):
    for result in chord_trials.values():
        assert result.is_good and result.violations == ()
        assert result.expected > 0 and result.invariant_checks > 0
        assert result.other_messages == 0
        assert result.changes == 4 and result.updates == result.confirmations
        costs = result.by_skew["uniform"]
        assert costs.events == 30
        # Nobody gets an event twice on Chord, so each notification has a receiver of its own.
        assert costs.notifications == costs.receivers
        assert costs.relay_share == 1 - costs.matching_receivers / costs.receivers


def test_a_simple_subscription_is_told_to_everybody(chord_trials):
    """Each of N - 1 nodes is told at least once that one went and that one came (digest 5)."""
    per_change = chord_trials["simple"].updates / 4
    assert 2 * (NODES - 1) <= per_change <= 2.4 * NODES


def test_exact_strategies_differ_in_updates_only(chord_trials):
    simple, covering = chord_trials["simple"], chord_trials["covering"]
    assert chord_trials["perfect"].by_skew == covering.by_skew == simple.by_skew
    assert covering.updates < simple.updates
    assert covering.table_bytes_mean < simple.table_bytes_mean


def test_merging_trades_notifications_for_updates(chord_trials):
    covering = chord_trials["covering"]
    merging, one_row = chord_trials["imperfect 10 %"], chord_trials["imperfect 1 row"]
    rows = [each.rows_per_edge for each in (covering, merging, one_row)]
    notifications = [each.by_skew["uniform"].notifications for each in (covering, merging, one_row)]
    assert rows == sorted(rows, reverse=True) and rows[-1] <= 1
    assert notifications == sorted(notifications)
    assert one_row.updates < covering.updates / 4
    reached = {each.by_skew["uniform"].matching_receivers for each in chord_trials.values()}
    assert len(reached) == 1


def test_a_trial_is_a_function_of_its_settings():
    results = [trial("covering", events=10) for _ in range(2)]
    assert replace(results[0], seconds=0) == replace(results[1], seconds=0)
    assert trial("covering", events=10, seed=2).updates != results[0].updates


@pytest.mark.parametrize("placement", PLACEMENTS[1:])
def test_placed_networks_deliver_too(placement):
    drawn = trial("covering", subscriptions=NODES, world="wishes")
    placed = trial("covering", subscriptions=NODES, world="wishes", placement=placement)
    assert placed.is_good and placed.expected == drawn.expected
    assert placed.by_skew != drawn.by_skew


def test_what_goes_wrong_is_part_of_the_result(monkeypatch):
    """An edge that lost its rows misses subscribers, and the trial says so."""
    from peersub.overlays.routing.tables import EdgeTable

    matches = EdgeTable.matches

    def forgetful(table, publication, *others, **named):
        return publication.id[-1] != "7" and matches(table, publication, *others, **named)

    monkeypatch.setattr(EdgeTable, "matches", forgetful)
    result = trial("covering")
    assert not result.is_good and result.missed > 0 and result.violations


# --- all of it -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def comparison() -> routing.RoutingResult:
    return run_routing(
        RoutingSettings(
            nodes=NODES,
            subscriptions=2 * NODES,
            changes=5,
            events=30,
            share=0.05,
            contenders=("covering", "imperfect 10 %", "flood"),
            placement_shares=(0.1,),
        )
    )


def test_the_comparison_covers_the_sweep_and_is_right(comparison):
    assert comparison.is_good and routing_report.exit_code(comparison) == 0
    found = [(each.subscription_skew, each.event_skew, each.name) for each in comparison.standings]
    assert found == [
        (subscriptions, events, name)
        for subscriptions in ("uniform", "zipf")
        for events in ("uniform", "zipf")
        for name in ("covering", "imperfect 10 %", "flood")
    ]
    assert [row.name for row in comparison.beyond] == [name for name, _, _ in routing.BEYOND] * 2


def test_mixed_trials_cost_what_the_arithmetic_says(comparison):
    assert [(mix.name, mix.ratio) for mix in comparison.mixes] == [
        ("covering", 1.0), ("covering", 6.0), ("imperfect 10 %", 1.0), ("imperfect 10 %", 6.0)
    ]  # fmt: skip
    for mix in comparison.mixes:
        assert abs(mix.measured / mix.predicted - 1) <= mix.tolerance == 0.1


def test_exact_reach_and_placement_are_really_in_force(comparison):
    rows = {row.name: row for row in comparison.beyond if row.world == "wishes"}
    paper, exact = rows["paper"].events, rows["exact"].events
    assert exact.matching_receivers == paper.matching_receivers
    assert exact.notifications < paper.notifications
    assert dict(rows["exact"].result.trial.contender.settings)["exact_reach"] is True
    assert len({row.events.notifications for row in rows.values()}) > 3


def test_json_says_the_same_as_the_lines(comparison):
    said = json.loads(json.dumps(routing_report.as_json(comparison)))
    assert said["ok"] and said["checks"]["missed"] == 0 and said["checks"]["wrong"] == []
    standings = {(s["subscriptions"], s["events"], s["name"]): s for s in said["standings"]}
    for each in said["standings"]:
        for total in each["totals"]:
            events = total["ratio"] * each["notifications_per_event"]
            assert total["messages"] == pytest.approx(each["updates_per_change"] + events)
    for field in said["crossovers"]:
        if field["measure"] == "messages" and field["over"] == "all":
            here = [
                s
                for key, s in standings.items()
                if key[:2] == (field["subscriptions"], field["events"])
            ]
            least = min(here, key=lambda s: s["updates_per_change"])
            flattest = min(here, key=lambda s: s["notifications_per_event"])
            assert field["cheapest"][0]["name"] == least["name"] == "flood"
            assert field["cheapest"][-1]["name"] == flattest["name"] == "covering"
            assert field["cheapest"][-1]["to"] is None


def shown(result: routing.RoutingResult) -> str:
    out = io.StringIO()
    routing_report.show(result, Console(file=out, width=130, highlight=False))
    return out.getvalue()


def test_people_see_the_tables_and_the_verdict(comparison):
    text = shown(comparison)
    assert "uniform × zipf" in text and "imperfect 10 %" in text and "1000:1" in text
    assert "0 missed, 0 spurious, 0 duplicate" in text
    assert "cheapest over Chord, in messages:" in text and "WRONG" not in text
    assert "Events per change at which a row is cheaper than covering" in text
    assert "…" not in text, "a column is too narrow"


def test_a_wrong_delivery_or_wrong_arithmetic_fails_the_comparison(comparison):
    first = replace(comparison.trials[0], missed=1, violations=("missed: e1 misses s1",))
    missing = replace(comparison, trials=(first, *comparison.trials[1:]))
    assert routing_report.exit_code(missing) == 1
    assert "WRONG covering" in shown(missing) and "missed: e1 misses s1" in shown(missing)
    mix = replace(comparison.mixes[0], measured=comparison.mixes[0].predicted * 1.11)
    off = replace(comparison, mixes=(mix, *comparison.mixes[1:]))
    assert routing_report.exit_code(off) == 1
    assert "WRONG covering at 1:1 is +11.0% off the arithmetic" in shown(off)


def test_the_chart_shows_who_is_cheapest_on_its_last_line():
    text = routing_report.chart([CostLine("flood", 0, 100), CostLine("covering", 1000, 1)])
    bottom = next(line for line in text.splitlines() if line.startswith(" 1.0x |"))
    columns = bottom.removeprefix(" 1.0x |")
    assert columns.startswith("000") and columns.endswith("111")
    # They cross at 1000 / 99: at a bit more than 10, three fifths of the way from 0.01 to 1000.
    assert 0.55 < columns.rindex("0") / len(columns) < 0.65
    assert "0 flood   1 covering" in text and routing_report.chart([]) == ""


def test_processes_find_the_same_as_one():
    settings = RoutingSettings(
        nodes=8, subscriptions=8, changes=1, events=2, skews=("uniform",), placement_shares=(),
        contenders=("simple", "flood"),
    )  # fmt: skip
    told: list[str] = []
    alone, together = run_routing(settings), run_routing(replace(settings, jobs=2), told.append)
    assert [replace(each, seconds=0) for each in alone.trials] == [
        replace(each, seconds=0) for each in together.trials
    ]
    assert len(told) == 2 and told[0].startswith("1/2 simple")


@pytest.mark.parametrize(
    ("knobs", "complaint"),
    [
        ({"nodes": 0}, "nodes is at least 1"),
        ({"changes": 9, "events": 8}, "as many events as changes, 9"),
        ({"share": 1.5}, "between 0 and 1, not 1.5"),
        ({"placement_shares": (0.0,)}, "between 0 and 1"),
        ({"ratios": ()}, "ratios are above 0"),
        ({"skews": ("normal",)}, "uniform and zipf, not normal"),
        ({"contenders": ("best",)}, "no contender 'best'; there are: simple"),
    ],
)
def test_knobs_out_of_range_are_named(knobs, complaint):
    with pytest.raises(ValueError, match=complaint):
        RoutingSettings(**knobs)
