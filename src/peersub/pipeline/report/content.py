"""A report as plain values: everything that is shown, and nothing that grows with the data.

`as_json` gives values that `json.dumps` takes; derived figures (ratios) are in it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from peersub.pipeline.metrics import Measures

__all__ = [
    "CAUSES_SHOWN_MAX",
    "FINDINGS_SHOWN_MAX",
    "REASONS_SHOWN_MAX",
    "CauseCount",
    "FilterFigures",
    "FindingShown",
    "InputCount",
    "MatchFigures",
    "ReasonCount",
    "Report",
    "StepTaken",
]

FINDINGS_SHOWN_MAX: Final = 200
CAUSES_SHOWN_MAX: Final = 30
REASONS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class InputCount:
    """Rows of an input: how many were read, could be used, and are in quarantine."""

    name: str
    place: str
    rows: int
    usable: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Why rows are in quarantine, and how many."""

    dataset: str
    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class MatchFigures:
    """Who wants what: deliveries, and how they spread over events and over subscriptions.

    The spreads are rows (at least, members): so many members have from `at_least` to less than
    twice as many deliveries. Members without deliveries are counted apart.
    """

    events: int
    subscriptions: int
    deliveries: int
    by_event: tuple[tuple[int, int], ...] = ()
    by_subscription: tuple[tuple[int, int], ...] = ()

    @property
    def share_matched(self) -> float:
        """Deliveries / (events × subscriptions)."""
        pairs = self.events * self.subscriptions
        return self.deliveries / pairs if pairs else 0.0

    @property
    def events_unwanted(self) -> int:
        """Events that nobody wants."""
        return max(0, self.events - sum(members for _, members in self.by_event))

    @property
    def subscriptions_idle(self) -> int:
        """Subscriptions that want none of the events."""
        return max(0, self.subscriptions - sum(members for _, members in self.by_subscription))


@dataclass(frozen=True, slots=True)
class FilterFigures:
    """How the filters relate: distinct ones, those that others cover, and what is similar."""

    classes: int
    covered: int
    coverings: int
    neighbours: int
    unmeasured: int
    recall: float
    cut_off: int = 0
    """Filters whose coverers were not looked for any further: there may be more."""
    is_complete: bool = False
    """Whether the filters are so few that nothing was cut off."""

    @property
    def uncovered(self) -> int:
        """Distinct filters that no other one covers: a network need know no more."""
        return self.classes - self.covered


@dataclass(frozen=True, slots=True)
class CauseCount:
    """How often an overlay's audit found something for this cause."""

    overlay: str
    finding: str
    cause: str
    findings: int
    copies: int


@dataclass(frozen=True, slots=True)
class FindingShown:
    """A finding of the audit."""

    overlay: str
    finding: str
    event_id: str
    subscription_id: str
    node: str | None
    copies: int | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class StepTaken:
    """A step of the pipeline: rows that it wrote, and how long it took, if that is known."""

    name: str
    rows: int | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole report; what there was nothing to say about is empty."""

    title: str = "peersub report"
    settings: tuple[tuple[str, str], ...] = ()
    reproduce: tuple[str, ...] = ()
    steps: tuple[StepTaken, ...] = ()
    inputs: tuple[InputCount, ...] = ()
    reasons: tuple[ReasonCount, ...] = ()
    match: MatchFigures | None = None
    filters: FilterFigures | None = None
    overlays: tuple[Measures, ...] = ()
    causes: tuple[CauseCount, ...] = ()
    findings: tuple[FindingShown, ...] = ()
    findings_count: int = 0

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        form = _plain(self)
        assert isinstance(form, dict)
        return form


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        kind = type(value)
        derived = [name for name in dir(kind) if isinstance(getattr(kind, name), property)]
        names = [each.name for each in fields(value)] + derived
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
