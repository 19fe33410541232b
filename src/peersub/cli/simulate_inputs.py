"""What `peersub simulate` runs: a scenario from the options, and its subscriptions and events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from peersub.cli.failures import CommandError
from peersub.cli.match_command import chosen_format, event_source

if TYPE_CHECKING:
    from peersub.events.envelope import Event
    from peersub.filters.filter import Filter
    from peersub.simulator.content import Content, ListedContent
    from peersub.simulator.scenario import Scenario, ScenarioPhase

__all__ = ["SimulateOptions", "content_of", "drawn_content", "scenario_of"]

EVENTS_BY_DEFAULT: Final = 100
SMALL_NODES_MAX: Final = 4_096
"""Up to this size the workload is `small` if none is named: in larger networks nearly every node
would want nearly every event on behalf of others."""
CHURN_MS_MIN: Final = 10_000
LEAVE_EVERY_MS: Final = 500
BEST_EFFORT, AT_LEAST_ONCE = "best_effort", "at_least_once"
_OF_SCENARIO: Final = (
    *("durable_share", "copies", "away_max_ms"),
    *("batch_share", "join_every_ms", "moves", "settle_ms", "quiet_limit_ms", "steps_max"),
)
_OF_WORKLOAD: Final = (
    *("values", "xpath_share", "share_matched", "skew"),
    *("root", "tags_mean", "levels_max", "optional_share", "repeats_max", "attribute_share"),
    *("height_min", "height_max"),
    *("wildcard_share", "descendant_share", "branch_share", "zipf_exponent", "condition_share"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The options of the command, as given; None is not given."""

    overlay: str | None = None
    nodes: int | None = None
    seed: int | None = None
    start: str | None = None
    subscriptions: str | None = None
    events: str | None = None
    subscriptions_count: int | None = None
    events_count: int | None = None
    every_ms: int | None = None
    batch_events: int | None = None
    workload: str | None = None
    strategy: str | None = None
    delivery: str | None = None
    loss: float | None = None
    duplicate: float | None = None
    reorder: float | None = None
    crash: float | None = None
    churn: float | None = None
    partition: int | None = None
    leave: int | None = None
    through_wire: bool = False
    scenario: str | None = None
    swarm: int | None = None
    settings: tuple[str, ...] = ()
    chosen_bits: bool = False
    subscriptions_format: str | None = None
    events_format: str | None = None
    records: str | None = None
    schema: str | None = None
    deliveries: str | None = None
    trace: str | None = None
    quiet: bool = False
    as_json: bool = False

    def command(self) -> list[str]:
        """The words of the command that gives the same run again."""
        words = ["peersub", "simulate"]
        for each in fields(self):
            value = getattr(self, each.name)
            option = _OPTION_NAMES.get(each.name, f"--{each.name.replace('_', '-')}")
            if each.name in _OUTPUTS or value is None or value is False:
                continue
            if value is True:
                words.append(option)
            else:
                for item in value if isinstance(value, tuple) else (value,):
                    words += [option, str(item)]
        return words


_OPTION_NAMES: Final = {"every_ms": "--every", "settings": "--set"}
_OUTPUTS: Final = ("deliveries", "trace", "quiet", "as_json")
_SHAPING: Final = frozenset(
    each.name for each in fields(SimulateOptions) if each.name not in _OUTPUTS
)


# --- scenarios -----------------------------------------------------------------------------------


def scenario_of(options: SimulateOptions, content: ListedContent | None) -> Scenario:
    """The scenario that the options ask for.

    Raises:
        CommandError: options that do not go together.
        SettingsError: a value that is not allowed.
    """
    if options.swarm is not None:
        from peersub.simulator.swarm import swarm_scenario

        _refuse_others(options, "swarm", "overlay")
        return swarm_scenario(options.swarm, options.overlay)
    if options.scenario is not None:
        _refuse_others(options, "scenario", "seed", "subscriptions", "events")
        return _scenario_of_file(options)
    return _scenario_of_options(options, content)


def _refuse_others(options: SimulateOptions, kind: str, *allowed: str) -> None:
    """A scenario that is given as a whole leaves no room for options that shape one."""
    for each in fields(options):
        value = getattr(options, each.name)
        if value is None or value is False or value == () or each.name not in _SHAPING:
            continue
        if each.name != kind and each.name not in allowed:
            option = _OPTION_NAMES.get(each.name, f"--{each.name.replace('_', '-')}")
            raise CommandError(f"--{kind} says all about the run. Leave out {option}.")


def _scenario_of_file(options: SimulateOptions) -> Scenario:
    from peersub.files.opening import open_bytes
    from peersub.overlays.settings import SettingsError
    from peersub.simulator.scenario_text import scenario_of_text

    assert options.scenario is not None
    with open_bytes(options.scenario) as stream:
        data = stream.read()
    try:
        scenario = scenario_of_text(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise CommandError(f"{options.scenario}: this is not UTF-8. Save it as UTF-8.") from None
    except SettingsError as error:
        raise CommandError(f"{options.scenario}: {error}.") from None
    return scenario if options.seed is None else replace(scenario, seed=options.seed)


def _scenario_of_options(options: SimulateOptions, content: ListedContent | None) -> Scenario:
    from peersub.overlays.registry import overlay_kind
    from peersub.simulator.content import WorkloadChoice
    from peersub.simulator.scenario import Scenario
    from peersub.simulator.settings import NetworkSettings

    name = options.overlay or "chord"
    kind = overlay_kind(name)
    delivery = options.delivery
    if delivery == AT_LEAST_ONCE and not kind.promises_at_least_once:
        raise CommandError(f"{name} promises best effort only. Use --overlay chord.")
    given = _settings(options, kind.settings_class)
    network = dict(given.network)
    for share in ("loss", "duplicate", "reorder"):
        if getattr(options, share) is not None:
            network[share] = getattr(options, share)
    nodes = 64 if options.nodes is None else options.nodes
    count = options.subscriptions_count
    if count is None:
        count = nodes if content is None else len(content.subscriptions)
    drawn = options.workload or ("small" if nodes <= SMALL_NODES_MAX else "symbols")
    if options.batch_events is not None:
        given.scenario.setdefault("batch_share", 1.0)
    _check_room(kind.settings_class, given.overlay, nodes)
    workload: dict[str, Any] = {"kind": drawn, **given.workload}
    if drawn == "documents" and options.schema is not None:
        workload["schema"] = options.schema
    if content is not None:
        workload = {"kind": "given"}
    return Scenario(
        name="command line",
        seed=1 if options.seed is None else options.seed,
        overlay=name,
        settings=given.overlay,
        links=given.links,
        nodes=nodes,
        start=options.start or "joined",
        subscriptions=count,
        through_wire=options.through_wire,
        network=NetworkSettings(**network),
        workload=WorkloadChoice(**workload),
        phases=tuple(_phases(options, content, promises=kind.promises_at_least_once)),
        **given.scenario,
    )


def _check_room(overlay_settings: type, given: Mapping[str, object], nodes: int) -> None:
    """Some overlays have no room for any number of nodes; they say so by `nodes_max`."""
    from peersub.overlays.settings import settings_from

    room = getattr(settings_from(overlay_settings, given), "nodes_max", nodes)
    if nodes > room:
        raise CommandError(f"with these settings a network has at most {room:,} nodes.")


@dataclass(slots=True)
class _Settings:
    """What `--set` gave, by whom it concerns."""

    overlay: dict[str, object]
    network: dict[str, Any]
    links: dict[str, object]
    scenario: dict[str, Any]
    workload: dict[str, Any]


def _settings(options: SimulateOptions, overlay_settings: type) -> _Settings:
    """Each `name=value` goes to whoever knows the name, the overlay first."""
    from peersub.overlays.core.link import LinkSettings
    from peersub.overlays.settings import settings_from, settings_table
    from peersub.simulator.content import WorkloadChoice
    from peersub.simulator.scenario import Scenario
    from peersub.simulator.settings import NetworkSettings

    given = _Settings({}, {}, {}, {}, {})
    tables = (
        (given.overlay, overlay_settings, settings_table(overlay_settings)),
        (given.network, NetworkSettings, settings_table(NetworkSettings)),
        (given.links, LinkSettings, settings_table(LinkSettings)),
        (given.scenario, Scenario, _chosen(settings_table(Scenario), _OF_SCENARIO)),
        (given.workload, WorkloadChoice, _chosen(settings_table(WorkloadChoice), _OF_WORKLOAD)),
    )
    if options.strategy is not None:
        if "strategy" not in tables[0][2]:
            raise CommandError("this overlay has no routing strategies. Leave out --strategy.")
        given.overlay["strategy"] = options.strategy
    for word in options.settings:
        name, equals, value = word.partition("=")
        if not equals:
            raise CommandError(f"--set {word}: write name=value.")
        for target, kind, table in tables:
            if name in table:
                # Read by the class that knows it: a number is a number from here on.
                target[name] = getattr(settings_from(kind, {name: value}), name, value)
                break
        else:
            known = ", ".join(sorted(name for _, _, table in tables for name in table))
            raise CommandError(f"--set: there is no setting {name!r}; there are: {known}.")
    return given


def _chosen(table: Mapping[str, type], names: Sequence[str]) -> dict[str, type]:
    return {name: table[name] for name in names}


# --- phases --------------------------------------------------------------------------------------


def _phases(
    options: SimulateOptions, content: ListedContent | None, *, promises: bool
) -> Iterable[ScenarioPhase]:
    """Publishing; or before, during and after what the options disturb."""
    from peersub.simulator.activities import CrashActivity, LeaveActivity, PublishActivity
    from peersub.simulator.scenario import ScenarioPhase

    count = options.events_count
    if count is None:
        count = EVENTS_BY_DEFAULT if content is None else len(content.events)
    every_ms = 20 if options.every_ms is None else options.every_ms
    delivery = options.delivery or BEST_EFFORT
    disturbed = [options.crash, options.churn, options.partition]
    shares = _shares(count, 2 + sum(each is not None for each in disturbed))

    def publishing(number: int, delivery: str = delivery) -> PublishActivity:
        return PublishActivity(
            count=number,
            every_ms=every_ms,
            delivery=delivery,
            at_ms=min(every_ms, 100),
            batch_events=1 if options.batch_events is None else options.batch_events,
        )

    if options.leave is not None:
        leaving = LeaveActivity(count=options.leave, every_ms=LEAVE_EVERY_MS)
        yield ScenarioPhase(name="leaving", steps=(leaving,))
    if len(shares) == 2:
        yield ScenarioPhase(name="publishing", steps=(publishing(count),))
        return
    yield ScenarioPhase(name="before", steps=(publishing(shares.pop()),))
    if options.crash is not None:
        crash = CrashActivity(fraction=options.crash)
        # What is published into a crash is what at-least-once is for.
        promised = AT_LEAST_ONCE if promises and options.delivery is None else delivery
        steps = (crash, publishing(shares.pop(), promised))
        yield ScenarioPhase(name="during", steps=steps)
    if options.churn is not None:
        yield _churn_phase(options.churn, publishing(shares.pop()))
    if options.partition is not None:
        yield from _partition_phases(options.partition, publishing(shares.pop()))
    yield ScenarioPhase(name="after", steps=(publishing(shares.pop()),))


def _churn_phase(per_second: float, publishing: Any) -> ScenarioPhase:
    from peersub.simulator.activities import NodeChurnActivity
    from peersub.simulator.scenario import ScenarioPhase

    duration_ms = max(CHURN_MS_MIN, publishing.count * publishing.every_ms)
    churn = NodeChurnActivity(duration_ms=duration_ms, per_second=per_second)
    every_ms = max(publishing.every_ms, duration_ms // max(publishing.count, 1))
    return ScenarioPhase(name="churn", steps=(churn, replace(publishing, every_ms=every_ms)))


def _partition_phases(sides: int, publishing: Any) -> list[ScenarioPhase]:
    from peersub.simulator.activities import HealActivity, PartitionActivity
    from peersub.simulator.scenario import ScenarioPhase

    return [
        ScenarioPhase(name="parted", steps=(PartitionActivity(sides=sides), publishing)),
        ScenarioPhase(name="healed", steps=(HealActivity(),)),
    ]


def _shares(count: int, parts: int) -> list[int]:
    """The count in so many parts that differ by one at most.

    >>> _shares(10, 3)
    [3, 3, 4]
    """
    return [(count + number) // parts for number in range(parts)]


# --- subscriptions and events --------------------------------------------------------------------


def content_of(options: SimulateOptions) -> ListedContent | None:
    """What the files hold, or the market; None if the scenario draws its own.

    Raises:
        CommandError, FileError: a file that cannot be used.
    """
    from peersub.simulator.content import ListedContent

    if options.subscriptions is None and options.events is None:
        return _market(options) if options.workload == "market" else None
    if options.subscriptions is None or options.events is None:
        lacking = "--subscriptions" if options.subscriptions is None else "--events"
        raise CommandError(f"subscriptions and events go together. Add {lacking}.")
    if options.workload is not None:
        raise CommandError("the files are the workload. Leave out --workload.")
    if options.subscriptions == options.events == "-":
        raise CommandError("only one of --subscriptions and --events can be -. Name a file.")
    subscriptions = _subscriptions(options)[: options.subscriptions_count]
    return ListedContent(subscriptions, _events(options))


def drawn_content(scenario: Scenario) -> Content | None:
    """The documents of the schema that a scenario names; None if it names none.

    Raises:
        FileError: the schema cannot be used.
        SettingsError: it cannot be used with these parameters.
    """
    choice = scenario.workload
    if choice.kind != "documents" or not choice.schema:
        return None
    from peersub.files.xml_schemas import read_schema_file
    from peersub.simulator.document_content import DocumentContent

    schema = read_schema_file(choice.schema, choice.root or None)
    return DocumentContent(scenario.seed, choice, schema)


def _market(options: SimulateOptions) -> ListedContent:
    from peersub.demo.market import draw_market
    from peersub.events.envelope import Event
    from peersub.filters.filter import Filter
    from peersub.simulator.content import ListedContent

    nodes = 64 if options.nodes is None else options.nodes
    subscriptions = nodes if options.subscriptions_count is None else options.subscriptions_count
    events = EVENTS_BY_DEFAULT if options.events_count is None else options.events_count
    market = draw_market(subscriptions, events, 1 if options.seed is None else options.seed)
    return ListedContent(
        [(name, Filter(text)) for name, text in market.filters.items()],
        [Event(trade["id"], trade) for trade in market.events],
    )


def _subscriptions(options: SimulateOptions) -> list[tuple[str, Filter]]:
    from peersub.files.errors import refuse_row
    from peersub.files.subscriptions import read_subscriptions
    from peersub.filters.errors import FilterError
    from peersub.filters.filter import Filter

    assert options.subscriptions is not None
    given = chosen_format(options.subscriptions_format, "--subscriptions-format")
    listed = read_subscriptions(options.subscriptions, given)
    made: list[tuple[str, Filter]] = []
    for row, (name, text) in enumerate(zip(listed.ids, listed.texts, strict=True)):
        make = Filter.xpath if listed.languages[row] == "xpath" else Filter
        try:
            made.append((name, make(text)))
        except FilterError as error:
            refuse_row(listed.bad(row, error.one_line()))
    return made


def _events(options: SimulateOptions) -> list[Event]:
    assert options.events is not None
    source = event_source(options.events, options.events_format, options.records, options.schema)
    events = list(islice(_file_events(source), options.events_count))
    if not events:
        raise CommandError(f"{options.events}: there are no events in it.")
    seen: dict[str, None] = {}
    for event in events:
        if event.id in seen:
            raise CommandError(
                f"{options.events}: two events have the id {event.id!r}. An id names one event: "
                "correct it, or leave the column out."
            )
        seen[event.id] = None
    return events


def _file_events(source: Any) -> Iterable[Event]:
    from peersub.events.arrow import rows_of_table
    from peersub.events.envelope import Event
    from peersub.files.errors import FileError
    from peersub.files.event_names import EventNames
    from peersub.files.events import read_events

    names = EventNames()
    for table in read_events(source):
        try:
            identifiers = names.names(table)
        except ValueError as error:
            raise FileError(source.name, str(error), "Shorten the id.") from None
        for identifier, row in zip(identifiers, rows_of_table(table), strict=True):
            attributes = {name: value for name, value in row.items() if value is not None}
            body = attributes.get("body")
            if isinstance(body, str):
                body = body.encode("utf-8", "surrogatepass")
            yield Event(identifier, attributes, body if isinstance(body, bytes) else None)
