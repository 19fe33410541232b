"""A week of operations, compressed: seven days, each with all that operators do and suffer.

Every day a node is restarted (all of them in a week; some are killed), a reader's permission is
tightened while it is away or reads, and another one's widened, somebody's certificate is revoked,
somebody's expires and is renewed, a reader is slow, and a disk is full. Once a node's certificate
expires: it is out of the network until it starts with another one. Strangers try their luck.
What the seed draws is who, where and when within the day; at most one node is down at a time.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from peersub.bench.harness import Say
from peersub.bench.operations.checking import Facts, Verdict
from peersub.bench.operations.people import AGAIN_S, LEVELS, SYMBOLS, Publisher, Reader
from peersub.bench.resilience.cluster import Cluster, WorkerProcess
from peersub.bench.resilience.worker import now_ms
from peersub.client import ClientError, ConnectError, NodeClient, connect
from peersub.runtime.security.authority import Authority
from peersub.runtime.security.identity import Role
from peersub.runtime.security.settings import TlsSettings

__all__ = ["WeekSettings", "run_week"]

DAYS: Final = 7
READERS: Final = 8
SPREAD_S: Final = 10.0
"""By when every node has heard of a revocation."""
EXPIRY_S: Final = 3.0
"""By when connections with an expired certificate have ended."""
START_S: Final = 45.0
"""By when a node has started, also on a busy machine."""
CATCH_UP_S: Final = 180.0
PATIENCE_S: Final = 60.0
OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class WeekSettings:
    """How long, how many, how fast."""

    minutes: float = 10.0
    nodes: int = 8
    rate: int = 40
    seed: int = 1

    @property
    def day_s(self) -> float:
        """The length of a day."""
        return self.minutes * 60 / DAYS


class _Week:
    def __init__(self, settings: WeekSettings, folder: Path, say: Say) -> None:
        self.settings = settings
        self.say = say
        self.facts = Facts()
        self.random = random.Random(settings.seed)
        self._folder = folder
        self._authority = Authority.create(folder, "week", _now() - timedelta(days=3))
        self._permissions = folder / "permissions.toml"
        self._see: dict[str, int] = {}
        self._publish: dict[str, int] = {}
        self._cluster = Cluster(self._on_line, {"permissions": str(self._permissions)})
        self._nodes: list[WorkerProcess] = []
        self._reloaded: set[str] = set()
        self._changing = asyncio.Lock()
        """One change of permissions, or restart, at a time: a node that is down reloads nothing."""
        self._readers: list[Reader] = []
        self._is_over = False

    # --- the network -----------------------------------------------------------------------------

    def _on_line(self, worker: WorkerProcess, line: dict[str, Any]) -> None:
        if "reloaded" in line:
            self._reloaded.add(line["reloaded"])
        if "died" in line and not self._is_over:
            self.facts.expected(f"node {worker.name} died by itself", holds=False)

    def _issue(self, name: str, role: Role, seconds: float | None = None) -> datetime:
        """A certificate for a year, or for so many seconds; until when."""
        begin = _now() if seconds is None else _now() - timedelta(days=1, seconds=-seconds)
        days = 365 if seconds is None else 1
        return self._authority.issue(name, role, begin, days=days, force=True).valid_until

    async def _start(self, number: int, listen: str = "127.0.0.1:0") -> WorkerProcess:
        name = f"n{number}"
        return await self._cluster.start(
            listen, tls=str(self._folder / f"{name}.pem"), data=str(self._folder / name)
        )

    async def _restart(self, number: int, *, is_killed: bool) -> None:
        """Restart a node at its address, with its disk; its permissions and certificate anew."""
        async with self._changing:
            worker = self._nodes[number]
            worker.is_alive = False
            if is_killed:
                worker.kill()
            else:
                worker.command(do="leave")
            async with asyncio.timeout(PATIENCE_S):
                await worker.process.wait()
            await asyncio.sleep(self.random.uniform(0, self.settings.day_s / 20))
            self._nodes[number] = await self._start(number, worker.name)
        self.say(f"n{number} was {'killed' if is_killed else 'stopped'}, and is back")

    # --- permissions -----------------------------------------------------------------------------

    def _write_permissions(self) -> None:
        lines = [f"[clients.{OPERATOR}]\nobserve = true\nsubscribe = false\npublish = false"]
        for name, bound in self._see.items():
            lines.append(f"[clients.{name}]\nsubscribe = 'level < {bound}'")
        for name, bound in self._publish.items():
            may = f"by = '{name}' AND level < {bound}"
            lines.append(f'[clients.{name}]\npublish = "{may}"')
        self._permissions.write_text("\n\n".join(lines))

    async def _change(self, see: dict[str, int], publish: dict[str, int] | None = None) -> None:
        """Let all nodes go by other bounds; from when to when that was in doubt is noted."""
        async with self._changing:
            begun_ms = now_ms()
            self._see.update(see)
            self._publish.update(publish or {})
            self._write_permissions()
            self._reloaded.clear()
            living = {worker.name: worker for worker in self._nodes if worker.is_alive}
            for worker in living.values():
                worker.command(do="reload")
            await self._until(lambda: self._reloaded >= living.keys(), "permissions were reloaded")
            for name, bound in see.items():
                self.facts.granted(name, "see", bound, begun_ms, now_ms())
            for name, bound in (publish or {}).items():
                self.facts.granted(name, "publish", bound, begun_ms, now_ms())

    def _grant_first(self, see: dict[str, int], publish: dict[str, int]) -> None:
        """What holds before any node runs."""
        self._see.update(see)
        self._publish.update(publish)
        self._write_permissions()
        for name, bound in see.items():
            self.facts.granted(name, "see", bound, 0, 0)
        for name, bound in publish.items():
            self.facts.granted(name, "publish", bound, 0, 0)

    # --- what happens in a day -------------------------------------------------------------------

    async def _tighten(self, day: int) -> None:
        """A reader may see less: one that is away, and one that reads; later they may again."""
        away, reading = self.random.sample(self._readers[: READERS // 2], 2)
        bound = self.random.randrange(3, 7)
        await away.stop()
        await self._pause(0.1)  # What comes meanwhile waits in its log.
        await self._change({away.identity: bound, reading.identity: bound})
        away.begin()
        self.say(f"{away.identity} and {reading.identity} may see levels below {bound}")
        await self._pause(0.3)
        await self._change({away.identity: LEVELS, reading.identity: LEVELS})

    async def _tighten_publisher(self, day: int) -> None:
        bound = self.random.randrange(3, 7)
        await self._change({}, {"feed1": bound})
        await self._pause(0.2)
        await self._change({}, {"feed1": LEVELS})

    async def _revoke(self, day: int) -> None:
        """Somebody reads, its certificate is taken back, and it sees nothing more."""
        name = f"temp{day}"
        self._issue(name, Role.CLIENT)
        await self._change({name: LEVELS})
        node = self.random.choice(self._nodes).name
        reader = Reader(name, self._folder, node, self.facts, symbol="s0", is_durable=False)
        reader.begin()
        await self._pause(0.2)
        begun_ms = now_ms()
        (revocation,) = self._authority.revoke(int(_now().timestamp() * 1_000), name=name)
        await self._as_operator(lambda client: client.tell_revocation(revocation.to_json()))
        self.facts.granted(name, "see", 0, begun_ms, now_ms() + SPREAD_S * 1_000)
        self.say(f"{name} was revoked")
        await asyncio.sleep(SPREAD_S)
        await self._expect_refused(name, "taken back")
        await self._pause(0.2)
        await reader.stop()

    async def _expire(self, day: int) -> None:
        """The certificate of a durable reader expires; it gets another one, and all it missed."""
        reader = self._readers[READERS // 2 + day % (READERS // 2)]
        await reader.stop()
        until = self._issue(reader.identity, Role.CLIENT, self.settings.day_s * 0.2)
        reader.begin()
        await asyncio.sleep(max(0.0, (until - _now()).total_seconds()) + EXPIRY_S)
        status = await self._as_operator(lambda client: client.status(), reader.node)
        there = {each["identity"] for each in (status or {}).get("clients", {}).values()}
        self.facts.expected(
            f"{reader.identity} was hung up on when its certificate expired",
            holds=status is None or reader.identity not in there,
        )
        await self._pause(0.1)
        await reader.stop()
        self._issue(reader.identity, Role.CLIENT)
        reader.begin()
        self.say(f"the certificate of {reader.identity} expired, and was renewed")

    async def _expire_node(self) -> None:
        """The certificate of a node expires: it has no links until it starts with another one."""
        number = 2
        seconds = max(START_S, self.settings.day_s * 0.25)
        until = self._issue(f"n{number}", Role.NODE, seconds)
        await self._restart(number, is_killed=False)
        await asyncio.sleep(max(0.0, (until - _now()).total_seconds()) + EXPIRY_S)
        others = [worker.name for place, worker in enumerate(self._nodes) if place != number]
        status = await self._as_operator(lambda client: client.status(), others[0])
        linked = (status or {}).get("connections", {}).get("links", {})
        self.facts.expected(
            f"n{number} lost its links when its certificate expired",
            holds=self._nodes[number].name not in linked,
        )
        self._issue(f"n{number}", Role.NODE)
        await self._restart(number, is_killed=False)
        self.say(f"the certificate of n{number} expired, and was renewed")

    async def _fill_disk(self, day: int) -> None:
        worker = self.random.choice(self._nodes)
        worker.command(do="disk", full=True)
        self.say(f"the disk of {worker.name} is full")
        await self._pause(0.15)
        worker.command(do="disk", full=False)

    async def _read_slowly(self, day: int) -> None:
        reader = self.random.choice(self._readers)
        reader.pause_s = 0.2
        await self._pause(0.4)
        reader.pause_s = 0.0

    async def _try_as_stranger(self, day: int) -> None:
        """Whom no permission names may not see, publish, or look around."""
        async with self._changing, await self._as_stranger() as client:
            for what, attempt in (
                ("subscribed", client.subscribe("TRUE").accepted()),
                ("published", client.publish({"symbol": "s0", "level": 0})),
            ):
                try:
                    await attempt
                except ClientError:
                    continue
                self.facts.expected(f"a stranger {what}", holds=False)
            shown = str(await client.status())
            self.facts.expected(
                "a stranger saw other nodes or clients",
                holds="feed" not in shown and self._nodes[1].name not in shown,
            )

    # --- helpers ---------------------------------------------------------------------------------

    async def _pause(self, part: float) -> None:
        """A part of a day, more or less."""
        await asyncio.sleep(self.settings.day_s * part * self.random.uniform(0.7, 1.3))

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline_ms = now_ms() + PATIENCE_S * 1_000
        while not holds():
            if now_ms() > deadline_ms:
                self.facts.expected(f"in {PATIENCE_S:.0f} s: {what}", holds=False)
                return
            await asyncio.sleep(0.02)

    def _tls(self, name: str) -> TlsSettings:
        return TlsSettings.beside(self._folder / f"{name}.pem")

    async def _as_stranger(self) -> NodeClient:
        """Connected with a node, which may have just started."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await connect(self._nodes[0].name, tls=self._tls("stranger"))
                except ConnectError:
                    await asyncio.sleep(AGAIN_S)

    async def _as_operator(
        self, work: Callable[[Any], Awaitable[Any]], node: str | None = None
    ) -> Any:
        """Do something at a node, the first that can be reached; None if it cannot be done."""
        for name in [node] if node else [worker.name for worker in self._nodes]:
            try:
                async with connect(name, tls=self._tls(OPERATOR)) as client:
                    return await work(client)
            except ClientError:
                continue
        return None

    async def _expect_refused(self, name: str, why: str) -> None:
        for worker in self._nodes:
            if not worker.is_alive:
                continue
            try:
                await (await connect(worker.name, tls=self._tls(name), reconnect=False)).close()
            except ClientError as error:
                # A node that is about to start again refuses everybody.
                is_refused = why in str(error) or "can be reached" in str(error)
                self.facts.expected(f"{name} was refused: {error}", holds=is_refused)
            else:
                self.facts.expected(f"{name} was refused at {worker.name}", holds=False)

    # --- the week --------------------------------------------------------------------------------

    async def run(self) -> Verdict:
        """Play it, and judge."""
        settings = self.settings
        names = [f"reader{number}" for number in range(READERS)]
        for name in (*names, "feed0", "feed1", OPERATOR, "stranger"):
            self._issue(name, Role.CLIENT)
        self._grant_first(dict.fromkeys(names, LEVELS), {"feed0": LEVELS, "feed1": LEVELS})
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._cluster)
            for number in range(settings.nodes):
                self._issue(f"n{number}", Role.NODE)
                self._nodes.append(await self._start(number))
            self.say(f"{settings.nodes} nodes")
            self._readers = [
                Reader(
                    name,
                    self._folder,
                    self._nodes[(3 * place + 1) % settings.nodes].name,
                    self.facts,
                    symbol=f"s{place % SYMBOLS}",
                )
                for place, name in enumerate(names)
            ]
            for reader in self._readers:
                reader.begin()
                stack.push_async_callback(reader.stop)
            await self._until(
                lambda: all(reader.is_ready.is_set() for reader in self._readers),
                "readers were ready",
            )
            publishers = [
                Publisher(
                    f"feed{number}",
                    self._folder,
                    self._nodes[number * 4 % settings.nodes].name,
                    self.facts,
                    rate=settings.rate / 2,
                    seed=settings.seed,
                )
                for number in range(2)
            ]
            for publisher in publishers:
                publisher.begin()
            await self._play()
            for publisher in publishers:
                await publisher.stop()
            await self._catch_up()
            self._is_over = True
        return self.facts.judge()

    async def _play(self) -> None:
        order = list(range(self.settings.nodes))
        self.random.shuffle(order)
        for day in range(DAYS):
            self.say(f"day {day + 1}")
            tonight = now_ms() + self.settings.day_s * 1_000
            todays = order[day::DAYS]
            await asyncio.gather(
                self._restart_all(todays, day),
                self._after(0.05, self._tighten, day),
                self._after(0.3, self._tighten_publisher, day),
                self._after(0.1, self._revoke, day),
                self._after(0.1, self._expire, day),
                self._after(0.4, self._fill_disk, day),
                self._after(0.2, self._read_slowly, day),
                self._after(0.5, self._try_as_stranger, day),
            )
            if day == DAYS // 2:
                await self._expire_node()
            await asyncio.sleep(max(0.0, (tonight - now_ms()) / 1_000))

    async def _restart_all(self, numbers: list[int], day: int) -> None:
        for number in numbers:
            await self._pause(0.2)
            await self._restart(number, is_killed=day % 3 == 2)

    async def _after(self, part: float, what: Callable[[int], Awaitable[None]], day: int) -> None:
        await self._pause(part)
        await what(day)

    async def _catch_up(self) -> None:
        deadline_ms = now_ms() + CATCH_UP_S * 1_000
        while self.facts.judge().lost and now_ms() < deadline_ms:
            await asyncio.sleep(1.0)


def _now() -> datetime:
    return datetime.now(UTC)


async def run_week(settings: WeekSettings, say: Say) -> Verdict:
    """Play a week, and judge it."""
    with tempfile.TemporaryDirectory(prefix="peersub-") as folder:
        return await _Week(settings, Path(folder), say).run()
