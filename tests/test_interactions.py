"""Golden interactions: commands to a small network, and what they printed, compared exactly.

The files are in tests/interactions; its README has the commands. To rewrite them on purpose:

    PEERSUB_REWRITE_INTERACTIONS=1 pytest tests/test_interactions.py
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from peersub.events.envelope import Event
from peersub.filters.filter import Filter
from peersub.overlays.core import effects as done
from peersub.overlays.core.causes import Publish, Subscribe, Unsubscribe
from peersub.overlays.core.link_messages import unwrapped
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.registry import OVERLAYS
from peersub.simulator.engine import Simulation
from peersub.simulator.nodes import node_maker
from peersub.simulator.scenario import Scenario
from peersub.simulator.settings import NetworkSettings
from peersub.trace.schema import Disk, Step, plain_form

FOLDER = Path(__file__).parent / "interactions"
REWRITE = "PEERSUB_REWRITE_INTERACTIONS"
RULE = "----"
SETTLE_LIMIT_MS = 600_000
_LINK_MESSAGES = "peersub.overlays.core.link_messages"
_NETWORK = NetworkSettings(
    latency_ms=10, jitter_ms=0, detection_ms=100, detection_jitter_ms=0, connect_failed_ms=50
)


# --- files ---------------------------------------------------------------------------------------


@dataclass
class Command:
    """A command with the comments above it, and what it printed."""

    comments: list[str]
    text: str
    printed: list[str]

    def lines(self):
        return [*self.comments, self.text, RULE, *self.printed]


def parse(text):
    """The commands of a file; a blank line ends each."""
    commands = []
    for block in text.split("\n\n"):
        lines = block.strip("\n").split("\n")
        if lines == [""]:
            continue
        comments = [line for line in lines if line.startswith("#")]
        rest = lines[len(comments) :]
        if not rest:
            commands.append(Command(comments, "", []))
            continue
        printed = rest[2:] if rest[1:2] == [RULE] else []
        commands.append(Command(comments, rest[0], printed))
    return commands


def text_of(commands):
    blocks = ["\n".join(each.lines() if each.text else each.comments) for each in commands]
    return "\n\n".join(blocks) + "\n"


def run_again(commands):
    """The same commands, with what they print now."""
    network = Network()
    return [
        Command(each.comments, each.text, network.obey(each.text) if each.text else [])
        for each in commands
    ]


# --- the network ---------------------------------------------------------------------------------


class Network:
    """Obeys commands, and prints what happens."""

    def __init__(self):
        self.simulation = None
        self.messages = "overlay"
        self.printed = []

    def obey(self, text):
        self.printed = []
        word, _, rest = text.partition(" ")
        getattr(self, f"do_{word}")(rest)
        return self.printed

    def observe(self, record):
        if isinstance(record, Step):
            for effect in record.effects:
                self._show_effect(record.now_ms, record.node, effect)

    def _show_effect(self, now_ms, node, effect):
        match effect:
            case done.Send(peer, messages):
                for message in messages:
                    self._show_message(now_ms, f"{node} -> {peer}", message)
            case (
                done.Deliver()
                | done.SubscriptionReady()
                | done.SubscriptionPending()
                | done.PublishCompleted()
                | done.PublishFailed()
                | done.Drop()
            ):
                self.printed.append(f"{now_ms} {node} {words(plain_form(effect))}")
            case _:
                pass

    def _show_message(self, now_ms, way, message):
        inner = unwrapped(message)
        is_of_links = type(inner).__module__ == _LINK_MESSAGES
        if self.messages == "none" or (is_of_links and self.messages != "all"):
            return
        self.printed.append(f"{now_ms} {way} {words(plain_form(inner))}")

    # --- commands --------------------------------------------------------------------------------

    def do_network(self, rest):
        settings = dict(word.split("=", 1) for word in rest.split())
        overlay, seed = settings.pop("overlay"), int(settings.pop("seed", 1))
        scenario = Scenario(overlay=overlay, seed=seed, settings=settings, network=_NETWORK)
        self.simulation = Simulation(seed, node_maker(scenario), _NETWORK, [self])

    def do_messages(self, rest):
        assert rest in ("all", "overlay", "none")
        self.messages = rest

    def do_start(self, rest):
        self.simulation.start(rest)

    def do_join(self, rest):
        node, *contacts = rest.split()
        self.simulation.join(node, contacts)

    def do_leave(self, rest):
        self.simulation.leave(rest)

    def do_crash(self, rest):
        self.simulation.crash(rest.split())

    def do_restart(self, rest):
        node, disk, *contacts = rest.split()
        self.simulation.restart(node, contacts, Disk(disk))

    def do_partition(self, rest):
        self.simulation.partition([group.split(",") for group in rest.split()])

    def do_heal(self, rest):
        self.simulation.heal()

    def do_break(self, rest):
        self.simulation.break_edges([tuple(pair.split("-")) for pair in rest.split()])

    def do_mend(self, rest):
        self.simulation.mend_edges()

    def do_subscribe(self, rest):
        node, name, text = rest.split(maxsplit=2)
        wanted = Filter.xpath(text) if text.startswith("/") else Filter(text)
        self.simulation.cause(node, Subscribe(name, wanted))

    def do_unsubscribe(self, rest):
        node, name = rest.split()
        self.simulation.cause(node, Unsubscribe(name))

    def do_publish(self, rest):
        node, event_id, content = rest.split(maxsplit=2)
        attributes, end = json.JSONDecoder().raw_decode(content)
        promise = content[end:].strip() or "best_effort"
        publication = Publication.of(Event(event_id, attributes), Delivery[promise.upper()])
        self.simulation.cause(node, Publish((publication,)))

    def do_run(self, rest):
        self.simulation.run_for(int(rest))

    def do_settle(self, rest):
        is_quiet = self.simulation.run_until_quiet(SETTLE_LIMIT_MS)
        self.printed.append(f"{self.simulation.now_ms} {'quiet' if is_quiet else 'NOT QUIET'}")

    def do_show(self, rest):
        chosen = rest.split()
        for host in self.simulation.living():
            if not chosen or host.name in chosen:
                self.printed += [f"{host.peer} {line}" for line in described(host.overlay)]


def words(form):
    """A plain form in one line: its kind, and its fields that are worth a word."""
    fields = [f"{name}={word(value)}" for name, value in form.items() if name != "kind"]
    return " ".join([form["kind"], *fields])


def word(value):
    if isinstance(value, str):
        is_one_word = value.isprintable() and not any(mark in value for mark in ' "=')
        value = value if value and is_one_word else json.dumps(value, ensure_ascii=False)
    else:
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # The first eight digits tell one digest from another.
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{24}\b", r"\1", value)


def described(overlay):
    """What a peer says of itself: a line for each part of its state that holds no other part."""

    def lines(form, place):
        inner = {name: value for name, value in form.items() if isinstance(value, dict) and value}
        rest = [f"{name}={word(value)}" for name, value in form.items() if name not in inner]
        if rest:
            yield " ".join([*place, *rest])
        for name, value in inner.items():
            yield from lines(value, [*place, name])

    return lines(plain_form(dict(overlay.describe())), [])


# --- tests ---------------------------------------------------------------------------------------

FILES = sorted(FOLDER.glob("*/*.txt"))


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.stem}" for file in FILES])
def test_interaction(file):
    commands = parse(file.read_text())
    now = text_of(run_again(commands))
    if os.environ.get(REWRITE):
        file.write_text(now)
    assert now == file.read_text()


def test_every_file_is_about_an_overlay():
    assert FILES
    assert {file.parent.name for file in FILES} <= set(OVERLAYS)


SMALL = """# Two nodes.
network overlay=flood seed=1
----

start n0
----

subscribe n0 s1 a = 1
----

run 2
----
2 n0 subscription-ready subscription=s1

publish n0 e1 {"a": 1}
----
2 n0 publish-completed event_id=e1
"""


def test_what_is_printed_is_compared():
    commands = parse(SMALL)
    assert text_of(commands) == SMALL
    now = run_again(commands)
    assert now[3].printed == commands[3].printed
    # The file lacks the delivery, and that would be noticed.
    assert any("deliver event_id=e1" in line for line in now[4].printed)
    assert text_of(now) != SMALL
    assert parse(text_of(now)) == now
