"""The overlays that there are, by name: those of this package, and installed ones.

An installed package offers an overlay by an entry point of the group `peersub.overlays`, whose
object is an `OverlayKind` (docs/own-overlay.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from peersub.overlays.core.checks import Checks
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.protocol import Overlay
from peersub.overlays.settings import SettingsError, settings_from

__all__ = ["OVERLAYS", "OverlayKind", "make_overlay", "overlay_kind"]


@dataclass(frozen=True, slots=True)
class OverlayKind:
    """Where an overlay lives. Its modules are loaded when it is first used.

    Beside the peer, the overlay's folder may have `converged` (the state that joins and subscribes
    would reach) and `invariants` (its `CHECKS`).
    """

    name: str
    summary: str
    peer: str | Callable[..., Overlay]
    """Makes a peer of its address, settings and the seed; or where that is in the folder."""
    settings: str | type
    """The dataclass of its settings; or where that is."""
    promises_at_least_once: bool = False
    is_approximate: bool = False
    """Whether events may miss subscribers of a network that nothing disturbs."""
    says_hops: bool = True
    """Whether deliveries say how far the event came; else drivers count in the trace."""
    begins_alone: bool = False
    """Whether a node whose contacts are not there begins a network, and theirs become one with it
    later. Of other overlays one node begins: the one that has no contacts, or is its own first."""
    is_planned: bool = True
    """Whether it has a bulk form: a plan of a converged network, to route all events at once."""
    proposes_moves: bool = False
    """Whether it proposes to subscribers to move to other nodes."""

    @property
    def settings_class(self) -> type:
        """The dataclass of its settings."""
        settings: type = self._load(self.settings)
        return settings

    def make(self, me: PeerId, seed: int, settings: Any) -> Overlay:
        """A peer of the overlay."""
        peer: Callable[..., Overlay] = self._load(self.peer)
        return peer(me, settings, seed)

    @property
    def checks(self) -> Checks | None:
        """What checkers may ask of its peers, if it has invariants."""
        invariants = self.part("invariants")
        checks: Checks | None = None if invariants is None else invariants.CHECKS
        return checks

    def part(self, module: str) -> Any | None:
        """A module of the overlay's folder, such as `converged`, if it has one."""
        if not isinstance(self.peer, str):
            return None
        name = f"peersub.overlays.{self.name}.{module}"
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            return None

    def _load(self, place: Any) -> Any:
        if not isinstance(place, str):
            return place
        module, _, name = place.partition(":")
        return getattr(import_module(f"peersub.overlays.{self.name}.{module}"), name)


OVERLAYS: dict[str, OverlayKind] = {
    kind.name: kind
    for kind in (
        OverlayKind(
            "chord",
            "filters over a Chord graph: each node is the root of its own tree (Rebeca 2003)",
            "peer:ChordPeer",
            "settings:ChordSettings",
            promises_at_least_once=True,
            begins_alone=True,
        ),
        OverlayKind(
            "tree",
            "one covering broker tree, as Rebeca and Siena have it",
            "peer:TreePeer",
            "peer:TreeSettings",
        ),
        OverlayKind(
            "flood",
            "every event to every neighbour",
            "router:make_flood",
            "router:FloodSettings",
            begins_alone=True,
        ),
        OverlayKind(
            "similarity",
            "members linked with others that want alike; approximate (Chand & Felber 2005)",
            "peer:SimilarityPeer",
            "settings:SimilaritySettings",
            is_approximate=True,
            is_planned=False,
        ),
        OverlayKind(
            "containment",
            "each filter below one that contains it: routing by own interest (Euro-Par 2005)",
            "peer:ContainmentPeer",
            "settings:ContainmentSettings",
        ),
        OverlayKind(
            "reach",
            "attributes as bits: events go down the subsets of their bits (Reach 2004)",
            "peer:ReachPeer",
            "settings:ReachSettings",
        ),
        OverlayKind(
            "dag",
            "topics as layers whose members take turns: publishers stay anonymous (IPDPS 2003)",
            "peer:DagPeer",
            "settings:DagSettings",
            says_hops=False,
            proposes_moves=True,
        ),
    )
}


def overlay_kind(name: str) -> OverlayKind:
    """The overlay of this name.

    Raises:
        SettingsError: there is none.
    """
    kind = OVERLAYS.get(name)
    if kind is not None:
        return kind
    installed = {each.name: each for each in entry_points(group="peersub.overlays")}
    if name not in installed:
        there_are = ", ".join((*OVERLAYS, *sorted(installed)))
        raise SettingsError(f"there is no overlay {name!r}; there are: {there_are}")
    loaded = installed[name].load()
    if not isinstance(loaded, OverlayKind) or loaded.name != name:
        raise SettingsError(
            f"the entry point of the overlay {name!r} is no OverlayKind of its name"
        )
    return loaded


def make_overlay(
    name: str, me: PeerId, seed: int, settings: Mapping[str, object] | None = None
) -> Overlay:
    """A peer of an overlay, with settings by flat names."""
    kind = overlay_kind(name)
    return kind.make(me, seed, settings_from(kind.settings_class, settings or {}))
