"""What durable subscriptions take of a node, each from its begin to its end.

They last without a consumer, over restarts of the node too: so they are counted where they are
kept, not where consumers come and go.
"""

from __future__ import annotations

from collections import Counter

from peersub.filters.filter import Filter
from peersub.runtime.client_shares import client_of, owner_of
from peersub.runtime.filter_budget import FilterBudget
from peersub.runtime.limits import DEFAULT_LIMITS
from peersub.runtime.sinks import DurableRules, SubscriptionRefusedError

__all__ = ["DurableShares"]


class DurableShares:
    """How many each owner has, and what their filters cost.

    Args:
        rules: how many an owner may have.
        budget: what filters may cost the node.
        all_max: how many clients may have together; without certificates nobody knows whose
            they are.
    """

    def __init__(
        self, rules: DurableRules, budget: FilterBudget, all_max: int = DEFAULT_LIMITS.durable_max
    ) -> None:
        self._rules = rules
        self._budget = budget
        self._all_max = all_max
        self._all = 0
        self._owned: Counter[str] = Counter()

    def check(self, name: str) -> None:
        """Refuse a subscription that is one too many of its owner, or of the node."""
        owned_max, owner = self._rules.durable_max(name), owner_of(name)
        if owned_max is not None and self._owned[owner] >= owned_max:
            raise SubscriptionRefusedError(
                f"client {owner} may have {owned_max:,} durable subscriptions at a node, those "
                "without a consumer included: let it forget some"
            )
        if client_of(name) is not None and self._all >= self._all_max:
            raise SubscriptionRefusedError(
                f"this node has {self._all_max:,} durable subscriptions already, those without a "
                "consumer included: forget some, or start it with a higher --limit durable_max=N"
            )

    def begin(self, name: str, wanted: Filter) -> None:
        """There is one more."""
        self._owned[owner_of(name)] += 1
        self._all += client_of(name) is not None
        self.change(name, wanted)

    def change(self, name: str, wanted: Filter) -> None:
        """It has another filter from now on."""
        client = client_of(name)  # None has those of the node's own program.
        if client is not None:
            self._budget.hold(client, name, wanted)

    def end(self, name: str) -> None:
        """It is over."""
        owner = owner_of(name)
        self._owned[owner] -= 1
        self._all -= client_of(name) is not None
        if not self._owned[owner]:
            del self._owned[owner]
        self._budget.release(name)
