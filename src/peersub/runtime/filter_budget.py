"""What the filters of clients may cost a node: each filter, all of a client, all of the node.

Prices are those of `filters.price`. Plain filters take nothing of a budget: their number is
bounded. A subscription keeps its share until it ends, a durable one also while its consumer is
away, and when the node starts again (`DurableShares`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from peersub.filters.filter import Filter
from peersub.filters.price import FILTER_PRICE_MAX, PLAIN_PRICE, refusal_of
from peersub.filters.widened import UnreadFilter, parts_of
from peersub.runtime.limits import DEFAULT_LIMITS
from peersub.runtime.turns import Turns

if TYPE_CHECKING:
    from peersub.runtime.client_ports import ClientRules

__all__ = [
    "FilterBudget",
    "FilterTurns",
    "check_filter",
    "is_worked_out_off_loop",
    "permit_filter",
    "work_out",
]

RENEWED_UNITS_AT_ONCE: Final = 512
"""Units of the filters that are narrowed anew in one turn of the loop, when permissions change."""
OFF_LOOP_UNITS: Final = 64
"""From here on a filter is narrowed, and divided for others, off the loop: that may take some ten
milliseconds, and here a third of one."""


def check_filter(wanted: Filter, price_max: int = FILTER_PRICE_MAX) -> None:
    """Raise a ValueError if the filter costs more than one filter may."""
    if isinstance(wanted, UnreadFilter):
        raise ValueError(wanted.refusal)
    refusal = refusal_of(wanted.price, price_max)
    if refusal is not None:
        raise ValueError(refusal)


def permit_filter(rules: ClientRules, identity: str, wanted: Filter) -> Filter:
    """The filter, narrowed to what the client may see; a ValueError if it is nothing, or too dear.

    The price comes first: what is too dear is not worked with, not even to ask for permission.
    """
    price_max = rules.limits(identity).filter_price_max
    check_filter(wanted, price_max)
    permitted = rules.permit_subscribe(identity, wanted)
    if permitted is not wanted:
        check_filter(permitted, price_max)
    return permitted


def is_worked_out_off_loop(wanted: Filter) -> bool:
    """Whether `work_out` is to be done before the filter is permitted."""
    return wanted.is_read and wanted.price.units > OFF_LOOP_UNITS


def work_out(rules: ClientRules, identity: str, wanted: Filter) -> None:
    """Do what takes long of permitting and telling a filter, which keeps the answers.

    Rules may be others when it is permitted: whatever is decided is decided then.
    """
    with suppress(ValueError):
        permitted = permit_filter(rules, identity, wanted)
        parts_of(permitted)
        _ = permitted.digest


class FilterTurns:
    """Work with many filters: some cheap ones in each turn of the loop, and dear ones off it."""

    def __init__(self) -> None:
        self._units = 0

    async def before(self, wanted: Filter, work: Callable[[], object]) -> None:
        """Wait until it is the filter's turn. Of a dear one `work` was done off the loop then."""
        if is_worked_out_off_loop(wanted):
            await Turns.of_running_loop().finish_off_loop(work)
            return
        if self._units > RENEWED_UNITS_AT_ONCE:
            self._units = 0
            await asyncio.sleep(0)
        self._units += PLAIN_PRICE + wanted.price.units


class FilterBudget:
    """Who has spent how much.

    Args:
        node_max: units of all clients together.

    Attributes:
        spent: units of all clients together.
        refused: how often a filter was too dear for a budget.
    """

    def __init__(self, node_max: int = DEFAULT_LIMITS.filter_units_max) -> None:
        self.spent = 0
        self.refused = 0
        self._node_max = node_max
        self._shares: dict[str, tuple[str, int]] = {}
        """Per subscription, its client and its units; none for a plain filter."""
        self._clients: dict[str, int] = {}

    def take(
        self, client: str, name: str, wanted: Filter, client_max: int
    ) -> tuple[str, int] | None:
        """The client has a subscription of this name from now on; what it took until now, if so.

        Raises:
            ValueError: the filter does not fit: which bound, and what to do.
        """
        units = wanted.price.surplus
        share = self._shares.get(name)
        owner, former = share or (client, 0)
        spent = self._clients.get(client, 0) - (former if owner == client else 0)
        spent_by_all = self.spent - former
        if spent + units > client_max:
            self._refuse(f"this client's filters cost {spent:,}", units, client_max)
        if spent_by_all + units > self._node_max:
            self._refuse(f"all filters at this node cost {spent_by_all:,}", units, self._node_max)
        self.hold(client, name, wanted)
        return share

    def hold(self, client: str, name: str, wanted: Filter) -> None:
        """The client has this subscription, whether it fits or not: it was taken in before."""
        self.restore(name, (client, wanted.price.surplus))

    def restore(self, name: str, share: tuple[str, int] | None) -> None:
        """The subscription takes what it took before (`take`) again; None for nothing."""
        self.release(name)
        client, units = share or ("", 0)
        if units:
            self._shares[name] = (client, units)
            self._clients[client] = self._clients.get(client, 0) + units
            self.spent += units

    def _refuse(self, who: str, units: int, units_max: int) -> None:
        self.refused += 1
        raise ValueError(
            f"the filter costs {units:,} units, {who}, and the bound is {units_max:,}. End other "
            "subscriptions, use simpler filters, or subscribe at another node."
        )

    def release(self, name: str) -> None:
        """The subscription has ended."""
        client, units = self._shares.pop(name, ("", 0))
        if not units:
            return
        self.spent -= units
        self._clients[client] -= units
        if not self._clients[client]:
            del self._clients[client]

    def status(self) -> dict[str, Any]:
        """Plain values."""
        return {"price": self.spent, "price_max": self._node_max, "refused": self.refused}
