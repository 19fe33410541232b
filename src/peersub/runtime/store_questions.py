"""Questions to the store whose answers a loop waits for: asked off the loop, in order.

A disk may take its time, and the store's connection serves one reader at a time. So a thread asks
some questions at a time; those who read the log have their turns in between. A disk that cannot be
read is asked again later (`RETRY_S`), which is logged and counted: nobody hears anything before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from peersub.runtime.counters import Counters
from peersub.runtime.logs import NodeLog
from peersub.runtime.store import StoreError

__all__ = ["RETRY_S", "StoreQuestions"]

RETRY_S: Final = 1.0
"""After which a disk that did not do what was wanted is asked again."""
AT_ONCE: Final = 32
"""Questions that one reader asks before others have their turn."""

_log = NodeLog(__name__)

Answer = TypeVar("Answer")


class StoreQuestions:
    """Asks for one loop.

    Args:
        loop: on which answers are given.
        counters: of what could not be read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters) -> None:
        self._loop = loop
        self._counters = counters
        self._waiting: dict[Hashable, tuple[Callable[[], Any], Callable[[Any], None]]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._is_ended = False

    def ask(
        self, about: Hashable, question: Callable[[], Answer], then: Callable[[Answer], None]
    ) -> None:
        """Let `then` have the answer; a later question about the same takes its place."""
        self._waiting[about] = (question, then)
        if self._asking is None and not self._is_ended:
            self._asking = self._loop.create_task(self._ask_all())

    def failed(self, error: StoreError, again: Callable[..., None], *arguments: Any) -> None:
        """The disk could not be read: go on with `again` later."""
        self._counters.add("the disk could not be read")
        _log.error("the disk cannot be read, and is asked again: %s", str(error))
        if not self._is_ended:
            self._loop.call_later(RETRY_S, again, *arguments)

    def end(self) -> None:
        """Nobody waits for an answer any more."""
        self._is_ended = True
        self._waiting.clear()

    async def _ask_all(self) -> None:
        try:
            while self._waiting:
                abouts = list(self._waiting)[:AT_ONCE]
                asked = [(about, *self._waiting.pop(about)) for about in abouts]
                answers = await asyncio.to_thread(_answers, [question for _, question, _ in asked])
                for (about, question, then), answer in zip(asked, answers, strict=True):
                    if isinstance(answer, StoreError):
                        self.failed(answer, self._ask_again, about, question, then)
                    elif not self._is_ended:
                        self._loop.call_soon(then, answer)
        finally:
            self._asking = None

    def _ask_again(
        self, about: Hashable, question: Callable[[], Any], then: Callable[[Any], None]
    ) -> None:
        if about not in self._waiting:
            self.ask(about, question, then)


def _answers(questions: list[Callable[[], Any]]) -> list[Any]:
    """What the store says to each, or its error."""
    answers: list[Any] = []
    for question in questions:
        try:
            answers.append(question())
        except StoreError as error:
            answers.append(error)
    return answers
