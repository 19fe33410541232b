"""A live node doubts connections that fall silent, and says when they are heard again."""

from peersub.runtime.counters import Counters
from peersub.runtime.liveness import Liveness, LivenessSettings
from peersub.runtime.transport import Transport, TransportSettings, _Link


class Scripted:
    """A connection of which the test says when something comes."""

    def __init__(self, settings: LivenessSettings) -> None:
        self.liveness = Liveness(settings, 0)

    def is_in_doubt(self, now_ms: int) -> bool:
        return self.liveness.is_in_doubt(now_ms)


class Listener:
    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def on_link_doubt(self, node: str, *, in_doubt: bool) -> None:
        self.told.append((node, in_doubt))


def test_each_doubt_is_told_once_and_taken_back():
    settings = LivenessSettings()
    transport = Transport("a:1", 0, TransportSettings(), Counters(), lambda: 0)
    transport.listener = listener = Listener()
    loud, quiet = Scripted(settings), Scripted(settings)
    transport.links = {"b:1": _Link(loud, 0, 1), "c:1": _Link(quiet, 0, 2)}
    for now_ms in range(0, 1_000, 50):
        loud.liveness.heard(now_ms)
        if not 300 <= now_ms < 800:
            quiet.liveness.heard(now_ms)
        transport._doubt_silent(now_ms)
    assert listener.told == [("c:1", True), ("c:1", False)]


def test_nobody_is_doubted_where_most_are_silent():
    settings = LivenessSettings()
    transport = Transport("a:1", 0, TransportSettings(), Counters(), lambda: 0)
    transport.listener = listener = Listener()
    loud = Scripted(settings)
    transport.links = {"b:1": _Link(loud, 0, 1)} | {
        f"c:{number}": _Link(Scripted(settings), 0, number) for number in range(3)
    }
    for now_ms in range(0, 2_000, 50):
        loud.liveness.heard(now_ms)
        transport._doubt_silent(now_ms)
    assert listener.told == []
    del transport.links["c:0"], transport.links["c:1"]
    transport._doubt_silent(2_000)
    assert listener.told == [("c:2", True)]


def test_a_doubt_comes_long_before_a_suspicion_also_on_an_irregular_link():
    settings = LivenessSettings()
    liveness = Liveness(settings, 0)
    now_ms = 0
    for turn in range(50):
        now_ms += 30 if turn % 2 else 400
        liveness.heard(now_ms)
    assert settings.doubt_ms_min <= liveness.doubt_ms <= settings.doubt_ms_max
    assert liveness.doubt_ms < liveness.silence_ms
    assert not liveness.is_in_doubt(now_ms + settings.doubt_ms_min - 1)
    assert liveness.is_in_doubt(now_ms + settings.doubt_ms_max)
