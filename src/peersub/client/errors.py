"""What can go wrong for those who use a node; each error says what to do."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "ClientError",
    "ConnectError",
    "NotReadyError",
    "PublishFailedError",
    "PublishTimedOutError",
    "SubscriptionEndedError",
]


class ClientError(RuntimeError):
    """The root of all errors of the Python API, apart from `FilterError` and `ValueError`."""


class ConnectError(ClientError):
    """The node cannot be reached, or does not take the client."""


class PublishFailedError(ClientError):
    """Events whose promise was not kept, or cannot be given.

    Attributes:
        failures: the ids of the events, and why, of the first ones that failed.
        failed: how many failed.
        published: how many did not.
        already_seen: of these, how many the node had published before.
    """

    def __init__(
        self,
        message: str,
        failures: Sequence[tuple[str, str]] = (),
        *,
        failed: int = 1,
        published: int = 0,
        already_seen: int = 0,
    ) -> None:
        super().__init__(message)
        self.failures = tuple(failures)
        self.failed = failed
        self.published = published
        self.already_seen = already_seen


class PublishTimedOutError(PublishFailedError, TimeoutError):
    """The promise was not kept in time. The event may still arrive."""


class NotReadyError(ClientError, TimeoutError):
    """A subscription was not ready in time.

    Attributes:
        waiting_on: the nodes that have not answered.
    """

    def __init__(self, message: str, waiting_on: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.waiting_on = tuple(waiting_on)


class SubscriptionEndedError(ClientError):
    """A subscription was refused, or has ended, and not because its owner closed it.

    Attributes:
        reason: why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the subscription has ended: {reason}")
        self.reason = reason
