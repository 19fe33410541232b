"""How a node is: told to all who ask meanwhile at once, and in a small share of its time."""

from __future__ import annotations

import asyncio

import pytest

from client.fake_node import FakeNode
from client.test_door import door_of
from client.turns import on_loop, settle, until
from peersub.runtime.client_status import STATUS_REST_SHARE, StatusTurns
from peersub.wire.client_messages import StatusGiven, StatusWanted


class Clocks:
    """The time, and what of it answers cost: a second each."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.spent_s = 0.0
        self.made = 0

    def turns(self) -> StatusTurns:
        return StatusTurns(lambda: self.now_s, lambda: self.spent_s)

    def status(self) -> dict[str, int]:
        self.made += 1
        self.spent_s += 1.0
        return {"made": self.made}

    def other(self) -> dict[str, int]:
        return self.status()


def planned(monkeypatch):
    """What the loop was asked to do later: how long after, and what."""
    later = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda s, do, *what: later.append((s, do, what)))
    return later


@on_loop
async def test_who_asks_while_a_node_rests_is_answered_together_when_it_has_rested():
    clocks, got = Clocks(), []
    turns = clocks.turns()
    with pytest.MonkeyPatch.context() as patch:
        later = planned(patch)
        turns.ask(clocks.status, got.append)
        assert got == [b'{"made": 1}'], "nobody asked for a while: at once"
        for _ in range(1_000):
            turns.ask(clocks.status, got.append)
        assert clocks.made == 1 and len(later) == 1
        wait_s, go_on, what = later.pop()
        assert wait_s == STATUS_REST_SHARE, "of twenty seconds, one"
    clocks.now_s += wait_s
    go_on(*what)
    await until(lambda: len(got) == 1_001)
    assert clocks.made == 2 and set(got[1:]) == {b'{"made": 2}'}


@on_loop
async def test_each_who_asks_something_else_waits_for_its_turn():
    clocks, got = Clocks(), []
    turns = clocks.turns()
    turns.ask(clocks.status, got.append)
    turns.ask(clocks.status, got.append)
    turns.ask(clocks.other, got.append)
    turns.ask(clocks.status, got.append)
    for made in (2, 3):
        clocks.now_s += 1_000
        turns._do_some()
        await settle()
        assert clocks.made == made
    assert got == [b'{"made": %d}' % n for n in (1, 2, 2, 3)]


@on_loop
async def test_connections_of_one_client_are_told_the_same():
    asked = []

    class Node(FakeNode):
        def status(self):
            asked.append(1)
            return super().status()

    node = Node()
    doors = [door_of(node) for _ in range(20)]
    for door, _ in doors:
        door.on_messages([StatusWanted(1)])
    await until(
        lambda: all(
            connection.sent[-1:] and isinstance(connection.sent[-1], StatusGiven)
            for _, connection in doors
        )
    )
    assert len(asked) == 2, "the first, and all who asked while it was told"


@on_loop
async def test_who_is_gone_by_then_is_told_nothing():
    door, connection = door_of(FakeNode())
    StatusTurns.of_running_loop()._rested_s = StatusTurns.of_running_loop()._now_s() + 0.01
    door.on_messages([StatusWanted(1)])
    door.on_lost("gone")
    turns = StatusTurns.of_running_loop()
    await until(lambda: not turns._is_planned)
    assert not connection.taken(StatusGiven)
