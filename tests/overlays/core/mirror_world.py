"""Mirror peers without nodes: links, disks and overlays are the test's own, and naive.

A link is up or not; what is under way on one that breaks is lost. A disk is a few dictionaries, and
its answers come later. An overlay gets every event to each node that is up and serves a
subscription for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from peersub.filters import Filter
from peersub.overlays.core.causes import (
    Cause,
    MirrorNews,
    PeerConnected,
    PeerLost,
    Persisted,
    PersistFailed,
    Received,
    ReplayWanted,
    Start,
    Subscribe,
    Timer,
    TimerFired,
    Unsubscribe,
)
from peersub.overlays.core.effects import (
    Connect,
    Drop,
    MirrorWork,
    Notice,
    Send,
    SetTimer,
    TellOverlay,
)
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.messages import Message
from peersub.overlays.core.mirror_facts import (
    DroppedRead,
    DurableEnded,
    DurableKept,
    DurableServed,
    DurableTaken,
    EventsRetained,
    Held,
    HeldCopy,
    HeldRead,
    HoldsChecked,
    LookedAfter,
    OverlayServes,
    SecureAsked,
    StoreMarked,
)
from peersub.overlays.core.mirror_messages import MirrorCopy, MirrorHolds, NamedFilter
from peersub.overlays.core.mirror_names import overlay_name
from peersub.overlays.core.mirror_tasks import (
    CheckHeld,
    ForgetDropped,
    LetGo,
    LookAfter,
    MirrorTask,
    NameLoss,
    NoteGap,
    ReadDropped,
    ReadHeld,
    ReadMark,
    RecreateDurables,
    ReleaseRetained,
    RetainEvents,
    SayReady,
)
from peersub.overlays.core.mirrors import MIRROR_SLOT, Mirrored, MirrorPeer, MirrorSettings
from peersub.overlays.core.publication import Publication
from peersub.overlays.core.store_marks import Life
from peersub.overlays.core.versions import (
    BATCH_COPIES_FEATURE,
    BATCHES_FEATURE,
    COPIES_FEATURE,
    MEMORY_FEATURE,
)

SETTINGS = MirrorSettings(
    witnesses=0,
    tick_ms=100,
    lost_ms=1_000,
    push_ms=200,
    copies_wait_ms=20_000,
    grace_ms=500,
    ready_ms=2_000,
    answer_ms=3_000,
    recheck_ms=60_000,
    horizon_ms=1_000_000,
)
CHUNK = 3
STEPS_MAX = 20_000
WANTED = Filter("TRUE")
FEATURES = (BATCHES_FEATURE, COPIES_FEATURE, BATCH_COPIES_FEATURE)


@dataclass
class Disk:
    """What outlives a node."""

    epoch: str
    durables: dict[str, Filter] = field(default_factory=dict)
    log: dict[str, list[str]] = field(default_factory=dict)
    cursor: dict[str, int] = field(default_factory=dict)
    mirrored: dict[tuple[str, str], Mirrored] = field(default_factory=dict)
    retained: dict[str, dict[str, tuple[int, list[str]]]] = field(default_factory=dict)
    dropped: dict[str, list[str]] = field(default_factory=dict)
    """Per home, the subscriptions for which there was no room."""
    number: int = 0
    commits: int = 0
    lives: list[Life] = field(default_factory=list)

    def append(self, name: str, event_id: str) -> None:
        if name in self.durables and event_id not in self.log[name]:
            self.commits += 1
            self.log[name].append(event_id)

    def retain(self, home: str, name: str, event_id: str) -> None:
        if (home, name) in self.mirrored and self.mirrored[home, name].stores:
            self.number += 1
            events = self.retained.setdefault(home, {})
            names = events.setdefault(event_id, (self.number, []))[1]
            if name not in names:
                names.append(name)

    def release(self, home: str, name: str, event_ids: Sequence[str]) -> None:
        events = self.retained.get(home, {})
        for event_id in event_ids:
            if event_id in events and name in events[event_id][1]:
                events[event_id][1].remove(name)
                if not events[event_id][1]:
                    del events[event_id]


class Keeper:
    """The driver's part, with a disk that is asked at once and answers later."""

    def __init__(self, me: str, disk: Disk) -> None:
        self.me = me
        self.disk = disk
        self.ready_names: list[str] = []
        self.answers: deque[Any] = deque()
        self.copies: list[str] = []
        self.gaps: dict[str, int] = {}
        self.losses = 0

    def work(self, task: MirrorTask) -> None:
        match task:
            case SayReady(name):
                self.ready(name)
            case RecreateDurables(subscriptions):
                self.recreate(subscriptions)
            case NoteGap(names, since_ms):
                self.gaps.update(dict.fromkeys(names, since_ms))
            case NameLoss():
                self.losses += 1
                self.disk.epoch += "'"
                self.answers.append(self.mark())
            case ReadMark():
                self.answers.append(self.mark())
            case LookAfter(home, epoch, subscriptions, stores, suspended_ms):
                self.look_after(home, epoch, subscriptions, stores, suspended_ms)
            case LetGo(home, names):
                self.let_go(home, names)
            case ReadDropped(home, since_ms):
                names = tuple(self.disk.dropped.get(home, ()))
                self.answers.append(DroppedRead(home, names, since_ms))
            case ForgetDropped(home):
                self.disk.dropped.pop(home, None)
            case RetainEvents(home, events):
                self.retain(home, events)
            case ReleaseRetained(home, name, event_ids):
                self.disk.release(home, name, event_ids)
            case ReadHeld():
                self.read(task)
            case CheckHeld(partner, holds, copies):
                for copy in copies:
                    self.take(partner, copy)
                self.check(partner, holds)

    def retain(self, home: str, events: Sequence[Held]) -> None:
        for each in (one for held in events for one in held.one_by_one()):
            for name in each.names:
                if home == self.me:
                    self.disk.append(name, each.publication.name)
                else:
                    self.disk.retain(home, name, each.publication.name)
        self.answers.append(EventsRetained(home, tuple(events)))

    def ready(self, name: str) -> None:
        self.ready_names.append(name)

    def recreate(self, subscriptions: Sequence[NamedFilter]) -> None:
        for each in subscriptions:
            self.keep(each.name, each.filter)
            kept, served = DurableKept(each.name, each.filter), DurableServed(each.name)
            self.answers += (self.mark(), kept, served)

    def mark(self) -> StoreMarked:
        return StoreMarked(self.disk.epoch, self.disk.commits)

    def keep(self, name: str, wanted: Filter) -> None:
        self.disk.commits += 1
        self.disk.durables[name] = wanted
        self.disk.log.setdefault(name, [])
        self.disk.cursor.setdefault(name, 0)

    def look_after(
        self,
        home: str,
        epoch: str,
        subscriptions: Sequence[NamedFilter],
        stores: bool,
        suspended_ms: int | None,
    ) -> None:
        for each in subscriptions:
            mirrored = Mirrored(home, epoch, each.name, each.filter, stores, suspended_ms)
            self.disk.mirrored[home, each.name] = mirrored
        self.answers.append(LookedAfter(home, tuple(each.name for each in subscriptions)))

    def let_go(self, home: str, names: Sequence[str]) -> None:
        self.disk.dropped.pop(home, None)
        for name in names:
            self.disk.mirrored.pop((home, name), None)
            self.disk.release(home, name, list(self.disk.retained.get(home, ())))

    def read(self, walk: ReadHeld) -> None:
        after = walk.after
        held: list[tuple[int, str, tuple[str, ...]]] = []
        if walk.name:
            begin = max(after, self.disk.cursor.get(walk.name, 0))
            log = self.disk.log.get(walk.name, [])
            held = [(n, log[n - 1], (walk.name,)) for n in range(begin + 1, len(log) + 1)]
        else:
            events = self.disk.retained.get(walk.home, {})
            rows = sorted((n, event_id, tuple(names)) for event_id, (n, names) in events.items())
            held = [row for row in rows if row[0] > after]
        held = held[:CHUNK]
        copies = tuple(HeldCopy(Publication(event_id, {}), names, 1) for _, event_id, names in held)
        number = held[-1][0] if held else after
        self.answers.append(HeldRead(walk.partner, walk.home, walk.name, after, number, copies))

    def check(self, partner: str, holds: MirrorHolds) -> None:
        missing: dict[str, None] = {}
        taken: dict[str, list[str]] = {}
        for each in holds.held:
            for name in each.names:
                if holds.home != self.me:
                    events = self.disk.retained.get(holds.home, {})
                    if name not in events.get(each.event_id, (0, []))[1]:
                        missing[each.event_id] = None
                elif name in self.disk.durables:
                    log = self.disk.log[name]
                    if each.event_id not in log:
                        missing[each.event_id] = None
                    elif log.index(each.event_id) < self.disk.cursor[name]:
                        taken.setdefault(name, []).append(each.event_id)
        done = tuple((name, tuple(ids)) for name, ids in taken.items())
        self.answers.append(
            HoldsChecked(partner, holds.home, holds.name, holds.number, tuple(missing), done)
        )

    def take(self, partner: str, copy: MirrorCopy) -> None:
        self.copies.append(copy.publication.id)
        for name in copy.names:
            if copy.home == self.me:
                self.disk.append(name, copy.publication.id)
            else:
                self.disk.retain(copy.home, name, copy.publication.id)


class MirrorWorld:
    """Nodes by name."""

    def __init__(
        self,
        names: str,
        settings: MirrorSettings = SETTINGS,
        *,
        features: tuple[str, ...] = FEATURES,
        memory: str = "",
    ) -> None:
        self.memory = memory
        """The nodes whose disks do not outlive them."""
        self.settings = settings
        self.features = features
        self.now_ms = 1_000
        self.disks = {name: Disk(f"{name}1") for name in names}
        self.peers: dict[str, MirrorPeer] = {}
        self.keepers: dict[str, Keeper] = {}
        self.life = dict.fromkeys(names, 0)
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.ticks: dict[tuple[str, Timer], int] = {}
        self.persisted: dict[str, dict[int, str]] = {}
        """Per node, the tokens that the overlay was answered, and the reason of a failure."""
        self.served: dict[str, set[tuple[str, str]]] = {}
        self.blocked: set[frozenset[str]] = set()
        self.drops: list[str] = []
        self.notices: list[str] = []
        self.replays: list[tuple[str, int]] = []
        """Who asked for a replay, and of how long."""
        self.messages: list[tuple[str, str, Message]] = []
        for name in names:
            self.start(name)

    # --- nodes ---------------------------------------------------------------------------------

    def start(self, name: str, *, empty: bool = False) -> None:
        self.life[name] += 1
        if empty:
            self.disks[name] = Disk(f"{name}{self.life[name]}")
        disk = self.disks[name]
        keeper = self.keepers[name] = Keeper(name, disk)
        me = PeerId(name, self.life[name], MIRROR_SLOT)
        known = list(disk.mirrored.values())
        disk.lives.append(Life(self.life[name], disk.commits))
        disk.commits += 1
        self.peers[name] = MirrorPeer(
            me,
            disk.epoch,
            self.settings,
            known,
            tuple(disk.lives),
            in_memory=name in self.memory,
        )
        self.served[name] = set()
        self.persisted[name] = {}
        self.tell(name, Start())
        for durable, wanted in disk.durables.items():
            keeper.answers += (DurableKept(durable, wanted, restored=True), DurableServed(durable))

    def stop(self, name: str) -> None:
        del self.peers[name], self.keepers[name]
        for other in list(self.peers):
            self.unlink(name, other)
        for timer in [each for each in self.ticks if each[0] == name]:
            del self.ticks[timer]

    def tell(self, name: str, cause: Cause) -> None:
        for effect in self.peers[name].handle(cause, self.now_ms):
            match effect:
                case Send(peer, messages):
                    if peer.node in self.peers and self.life[peer.node] == peer.incarnation:
                        self.messages += [(name, peer.node, message) for message in messages]
                        self.links[name, peer.node].extend(messages)
                case Connect(node):
                    self.link(name, node)
                case SetTimer(timer, delay_ms):
                    self.ticks[name, timer] = self.now_ms + delay_ms
                case MirrorWork(task):
                    self.keepers[name].work(task)
                case TellOverlay(Subscribe(here)):
                    self.keepers[name].answers.append(OverlayServes(here))
                case TellOverlay(Unsubscribe(here)):
                    self.served[name] -= {
                        place for place in self.served[name] if overlay_name(*place) == here
                    }
                case TellOverlay(Persisted(token)):
                    self.persisted[name][token] = ""
                case TellOverlay(PersistFailed(token, reason)):
                    self.persisted[name][token] = reason
                case TellOverlay(ReplayWanted(since_ms)):
                    self.replays.append((name, since_ms))
                case Notice(text, about):
                    self.notices.append(f"{text} {about}")
                case Drop(reason):
                    self.drops.append(reason)
                case _:
                    raise AssertionError(effect)

    # --- links ---------------------------------------------------------------------------------

    def link(self, one: str, other: str) -> None:
        if (one, other) in self.links or frozenset((one, other)) in self.blocked:
            return
        if one != other and one in self.peers and other in self.peers:
            self.links[one, other], self.links[other, one] = deque(), deque()
            for here, there in ((one, other), (other, one)):
                peer = PeerId(there, self.life[there])
                memory = (MEMORY_FEATURE,) if there in self.memory else ()
                self.tell(here, PeerConnected(peer, b"", self.features + memory))

    def unlink(self, one: str, other: str) -> None:
        if self.links.pop((one, other), None) is not None:
            del self.links[other, one]
            for here, there in ((one, other), (other, one)):
                if here in self.peers:
                    self.tell(here, PeerLost(PeerId(there, self.life[there])))

    def link_all(self) -> None:
        for one in list(self.peers):
            for other in list(self.peers):
                if one < other:
                    self.link(one, other)

    # --- time ----------------------------------------------------------------------------------

    def step(self) -> bool:
        """Let one message arrive, or one disk answer; whether there was any."""
        for name, keeper in self.keepers.items():
            if keeper.answers:
                fact = keeper.answers.popleft()
                if isinstance(fact, OverlayServes):
                    place = self.peers[name].duties.place(fact.subscription)
                    if place is None:
                        continue
                    self.served[name].add(place)
                self.tell(name, MirrorNews(fact))
                return True
        for (source, target), queue in self.links.items():
            if queue:
                peer = PeerId(source, self.life[source], MIRROR_SLOT)
                self.tell(target, Received(peer, (queue.popleft(),), MIRROR_SLOT))
                return True
        return False

    def settle(self) -> None:
        """Until nothing happens any more without the clock."""
        for _ in range(STEPS_MAX):
            due = [each for each in self.ticks if self.ticks[each] <= self.now_ms]
            if due:
                del self.ticks[due[0]]
                self.tell(due[0][0], TimerFired(due[0][1]))
            elif not self.step():
                return
        raise AssertionError("it does not come to rest")

    def pass_ms(self, duration_ms: int) -> None:
        """Let time go by, and all happen that is due."""
        end_ms = self.now_ms + duration_ms
        self.settle()
        while self.ticks and min(self.ticks.values()) <= end_ms:
            name, timer = min(self.ticks, key=lambda each: (self.ticks[each], each))
            self.now_ms = max(self.now_ms, self.ticks.pop((name, timer)))
            self.tell(name, TimerFired(timer))
            self.settle()
        self.now_ms = end_ms

    # --- subscribers and publishers ------------------------------------------------------------

    def subscribe(self, home: str, name: str, wanted: Filter = WANTED) -> None:
        self.keepers[home].keep(name, wanted)
        self.tell(home, MirrorNews(self.keepers[home].mark()))
        self.tell(home, MirrorNews(DurableKept(name, wanted)))
        self.tell(home, MirrorNews(DurableServed(name)))

    def unsubscribe(self, home: str, name: str) -> None:
        for part in (self.disks[home].durables, self.disks[home].log, self.disks[home].cursor):
            del part[name]
        self.disks[home].commits += 1
        self.tell(home, MirrorNews(DurableEnded(name)))

    def publish(self, home: str, name: str, event_id: str) -> bool:
        """An event reaches the home, and who mirrors; whether anybody stored it."""
        is_stored = False
        for node in self.peers:
            if node == home and name in self.disks[node].durables:
                self.disks[node].append(name, event_id)
                is_stored = True
            elif (home, name) in self.served[node] and (home, name) in self.disks[node].mirrored:
                self.disks[node].retain(home, name, event_id)
                is_stored = True
        return is_stored

    def publish_acknowledged(
        self, home: str, name: str, event_id: str, token: int, only: Sequence[str] = ()
    ) -> list[str]:
        """An event under a promise: who gets it waits for copies. The nodes that got it.

        It reaches all who want it, or `only` some for now.
        """
        got: list[str] = []
        for node in only or list(self.peers):
            here = name
            if node == home and name in self.disks[node].durables:
                self.disks[node].append(name, event_id)
            elif (home, name) in self.served[node]:
                here = overlay_name(home, name)
            else:
                continue
            got.append(node)
            copy = HeldCopy(Publication(event_id, {}), (here,), 1)
            self.tell(node, MirrorNews(SecureAsked(token, (copy,))))
        return got

    def answers(self, token: int) -> dict[str, str]:
        """The nodes that confirm what they were asked under a token, or why they do not."""
        return {node: told[token] for node, told in self.persisted.items() if token in told}

    def on_disks(self, home: str, name: str, event_id: str) -> list[str]:
        """The nodes whose disks have an event for a subscription."""
        return [
            node
            for node, disk in self.disks.items()
            if event_id in disk.log.get(name, ())
            or name in disk.retained.get(home, {}).get(event_id, (0, []))[1]
        ]

    def consume(self, home: str, name: str, count: int | None = None) -> list[str]:
        """The consumer takes so many events, or all."""
        disk = self.disks[home]
        begin = disk.cursor[name]
        end = len(disk.log[name]) if count is None else min(begin + count, len(disk.log[name]))
        disk.cursor[name] = end
        taken = disk.log[name][begin:end]
        self.tell(home, MirrorNews(DurableTaken(name, tuple(taken))))
        return taken

    def retained(self, node: str, home: str) -> list[str]:
        return sorted(self.disks[node].retained.get(home, {}))

    def mirrors_of(self, home: str) -> list[str]:
        """The nodes whose disks say that they look after something of the home."""
        return [
            name
            for name, disk in self.disks.items()
            if any(place[0] == home and disk.mirrored[place].stores for place in disk.mirrored)
        ]
