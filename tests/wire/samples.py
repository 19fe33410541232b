"""One or more instances of each message and record, for golden bytes."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from peersub.filters import Filter
from peersub.overlays.chord import messages as chord
from peersub.overlays.containment import messages as containment
from peersub.overlays.containment.structure import EdgeKind
from peersub.overlays.core import link_messages as link
from peersub.overlays.core import mirror_messages as mirrors
from peersub.overlays.core import records
from peersub.overlays.core import rumour_messages as rumours
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import network_batch_key, network_key
from peersub.overlays.core.identity import PeerId
from peersub.overlays.core.publication import Delivery, Publication
from peersub.overlays.dag import messages as dag
from peersub.overlays.flood import messages as flood
from peersub.overlays.reach import messages as reach
from peersub.overlays.reach.identifiers import Place
from peersub.overlays.routing import messages as routing
from peersub.overlays.semantic import messages as semantic
from peersub.overlays.semantic import sample_messages as semantic_sample
from peersub.overlays.similarity import messages as similarity
from peersub.overlays.tree import messages as tree
from peersub.wire import client_messages as client

PEER = PeerId("10.0.0.7:7001", 3, 0)
MEMBERS = (chord.RingMember(2**63, PEER), chord.RingMember(5, PeerId("n8", 0, 2)))
MEMBER = PeerId("10.0.0.8:7001", 2, 5)
CONTAINER = containment.Candidate(MEMBER, False, 3, 12, bytes(range(16)), 40)
CHEAP = Filter("symbol = 'ACME' AND price < 10.5")
LEDE = Filter.xpath("/nitf/body//p[@lede = 'true']")

KEY, BATCH_KEY = network_key(b"a claim"), network_batch_key(b"a claim")
TRADE = Publication("e1", {"symbol": "ACME", "price": 12.5, "size": 300}, None)
STORY = Publication("story-2", {}, b"<nitf><body/></nitf>", delivery=Delivery.AT_LEAST_ONCE)
TRADES = Batch(
    "b7",
    np.array([0, 7], np.uint32),
    1_024,
    delivery=Delivery.AT_LEAST_ONCE,
    packed=b"an Arrow stream",
)
EVERY_KIND = Publication(
    "kinds",
    {
        "nothing": None,
        "truth": True,
        "integer": -5,
        "wide": 2**70,
        "float": 0.1,
        "decimal": Decimal("1.50"),
        "text": "日本",
        "surrogate": "\ud800",
        "date": date(2024, 5, 1),
        "timestamp": datetime(2024, 5, 1, 12, 30, 0, 250_000, tzinfo=UTC),
        "record": {"a": {"b": 1}, "\ud800": 2},
        "list": [1, "two", None],
        "bytes": b"\x00\xff",
    },
    b"",
)

LABEL = dag.Label(4, PEER)
PLACE = Place(3, 0b101)
KEPT = reach.Entry(5, PEER, "s1", Filter("price > 10"), 4)
PROFILE = similarity.Profile(
    PEER, 2, bytes(range(16)), b"\x05\x80", b"\x07\x08", b"\x01", 1.5, -2.0, 100.0
)

MESSAGES: dict[str, Any] = {
    "hello": link.Hello(
        PEER,
        epoch=4,
        network="market",
        version=(1, 0),
        features=("tunnels",),
        overlay="chord",
        settings_digest=bytes(range(16)),
        settings=(("key_bits", "64"), ("strategy", "covering")),
        greeting=b"hi",
        heard=2,
        wanted=False,
    ),
    "hello-short": link.Hello(PEER, 1, "", (1, 0), (), "flood", b""),
    "carried": link.Carried(4, 2, 17, 16, routing.FilterConfirmed(9)),
    "acknowledgement": link.Acknowledgement(4, 2, 17),
    "link-open": link.LinkOpen("10.0.0.7:7001", 176_000_000_000, 3),
    "link-accepted": link.LinkAccepted("10.0.0.8:7001", 176_000_000_001),
    "link-rejected": link.LinkRejected("the two nodes dialled each other at once", crossing=True),
    "heartbeat": link.Heartbeat(),
    "goodbye": link.Goodbye(4, 2, "leave"),
    "link-wanted": link.LinkWanted(),
    "between-slots": link.BetweenSlots(0, 3, link.LinkWanted()),
    "tunnel-request": link.TunnelRequest("n9"),
    "tunnel-answer": link.TunnelAnswer("n9", True),
    "tunnel-broken": link.TunnelBroken("n9"),
    "tunnelled": link.Tunnelled("n9", PEER, link.Carried(1, 1, 1, 0, tree.Attach(("n1",)))),
    "tunnelled-event": link.Tunnelled("n9", PEER, routing.Notify(STORY, (1, 2), 3, 4)),
    "rumour-set": rumours.RumourSet(bytes(range(16))),
    "rumour-names": rumours.RumourNames((bytes(range(16)), b"\xff" * 16)),
    "rumours": rumours.Rumours((rumours.Rumour("revoked", "2a", b"\x00proof"),)),
    "mirror-wanted": mirrors.MirrorWanted("e4", (mirrors.NamedFilter("orders", CHEAP),)),
    "mirror-ready": mirrors.MirrorReady(("orders", "news")),
    "mirror-ended": mirrors.MirrorEnded(()),
    "mirror-offer": mirrors.MirrorOffer("e4", (mirrors.NamedFilter("news", LEDE),)),
    "mirror-released": mirrors.MirrorReleased("orders", ("e1", "b7/3")),
    "mirror-holds": mirrors.MirrorHolds(
        "10.0.0.7:7001", "", 17, (mirrors.HeldEvent("e1", ("orders",)),)
    ),
    "mirror-misses": mirrors.MirrorMisses("10.0.0.7:7001", "orders", 17, ("e1",)),
    "mirror-copy": mirrors.MirrorCopy("10.0.0.7:7001", ("orders", "news"), 3, STORY),
    "mirror-recruit": mirrors.MirrorRecruit(
        "10.0.0.7:7001", "e4", (mirrors.NamedFilter("orders", CHEAP),), True, ("n2",), ("n3", "n4")
    ),
    "mirror-witness": mirrors.MirrorWitness("e4", (mirrors.NamedFilter("news", LEDE),)),
    "mirror-kept": mirrors.MirrorKept(
        "10.0.0.7:7001", (mirrors.KeptFor(("orders",), ("e1", "b7/3")),)
    ),
    "mirror-safe": mirrors.MirrorSafe(
        "10.0.0.7:7001", (mirrors.KeptFor(("news", "orders"), ("e1",)),)
    ),
    "mirror-keep": mirrors.MirrorKeep("10.0.0.7:7001", ("orders",), 2, STORY),
    "mirror-rows-kept": mirrors.MirrorRowsKept(
        "10.0.0.7:7001", (mirrors.KeptRows("b7", (mirrors.NamedRows("orders", b"\x05\x80"),)),)
    ),
    "mirror-rows-safe": mirrors.MirrorRowsSafe("10.0.0.7:7001", ()),
    "mirror-keep-batch": mirrors.MirrorKeepBatch(
        "10.0.0.7:7001", (mirrors.NamedRows("orders", b"\x03"),), 2, TRADES
    ),
    "mirror-suspended": mirrors.MirrorSuspended(("orders",), 1_700_000_000_000),
    "notify": routing.Notify(TRADE, (2**63, 2**62), 3),
    "notify-delegated": routing.Notify(STORY, (), 0, 77, "node-join"),
    "notify-whole-circle": routing.Notify(TRADE, (2**64 - 1, 2**64), 1),
    "notify-every-kind": routing.Notify(EVERY_KIND, (1, 2, 3, 4), 200),
    "notify-with-key": routing.Notify(TRADE.with_key(KEY), (2**63, 2**62), 3),
    "confirm": routing.Confirm("e1", 77),
    "notify-batch": routing.NotifyBatch(TRADES, (2**63, 2**62), 2, 5),
    "notify-batch-with-key": routing.NotifyBatch(TRADES.with_key(BATCH_KEY), (2**63, 2**62), 2, 5),
    "filter-update": routing.FilterUpdate(
        number=12,
        responsibility=3,
        added=(routing.Entry("", CHEAP), routing.Entry("s1", LEDE, (2**63, 10))),
        removed=(("", bytes(range(16))),),
        digest=b"\x01" * 16,
        first=True,
        last=False,
    ),
    "filter-confirmed": routing.FilterConfirmed(12),
    "filter-mismatch": routing.FilterMismatch(12),
    "responsibility-change": routing.ResponsibilityChange(4, (7, 2**64)),
    "flooded": flood.Flooded(TRADE, 2),
    "neighbours-wanted": flood.NeighboursWanted(),
    "neighbours": flood.Neighbours(("n1", "n2")),
    "attach": tree.Attach(("n1", "n0")),
    "attached": tree.Attached(("n1",)),
    "refused": tree.Refused(("n4",)),
    "path": tree.Path(()),
    "present": chord.Present(2**64 - 1, True),
    "lookup-request": chord.LookupRequest(2**63, 5),
    "located": chord.Located(5, 2**63, MEMBERS, MEMBERS[:1]),
    "admission-request": chord.AdmissionRequest(2**63),
    "admission": chord.Admission(False, MEMBERS, MEMBERS[1:]),
    "key-taken": chord.KeyTaken(2**160 - 1),
    "neighbourhood-request": chord.NeighbourhoodRequest(),
    "neighbourhood": chord.Neighbourhood(MEMBERS, ()),
    "leaving": chord.Leaving((), MEMBERS),
    "link-unneeded": chord.LinkUnneeded(),
    "link-needed": chord.LinkNeeded(),
    "rings-meet": chord.RingsMeet("m1"),
    "client-hello": client.ClientHello((1, 0), ("later",), "desk"),
    "client-welcome": client.ClientWelcome("10.0.0.7:7001", (1, 0), "chord", "market", ("later",)),
    "client-refused": client.ClientRefused("the network is full"),
    "subscribe-wanted": client.SubscribeWanted(
        *(7, CHEAP, "cheap", "orders", "earliest", client.Overflow.END, 500, 64)
    ),
    "subscribe-wanted-short": client.SubscribeWanted(8, LEDE),
    "subscription-state": client.SubscriptionState(
        7, client.SubscriptionPhase.PENDING, "narrowed", ("n1", "n2"), 3
    ),
    "state-wanted": client.StateWanted(7),
    "unsubscribe-wanted": client.UnsubscribeWanted(7, True),
    "delivered": client.Delivered(TRADE, (7, 300), 2),
    "delivered-durable": client.Delivered(STORY, (7, 8), 2, (2**40, None)),
    "delivered-again": client.DeliveredAgain(STORY, (7, 8), 2, (2**40, None)),
    "delivered-batch": client.DeliveredBatch(TRADES, ((7, bytes(4)), (8, b"\1\0\0\0")), 2),
    "acknowledged": client.Acknowledged(7, 2**40),
    "credit": client.Credit(7, 512),
    "publish-wanted": client.PublishWanted(STORY, 12),
    "publish-batch-wanted": client.PublishBatchWanted(TRADES, 13),
    "publish-ended": client.PublishEnded((12, 13), ((14, "no promise"),)),
    "published-before": client.PublishedBefore(((12, 1), (13, 3))),
    "revocation-told": client.RevocationTold(7, b'{"serial": "1f"}'),
    "answered": client.Answered(7, "the authority of this network has not signed that"),
    "durable-losses": client.DurableLosses(7, 345, 1),
    "subscription-phases": client.SubscriptionPhases(client.SubscriptionPhase.READY, (7, 8, 300)),
    "move-proposed": client.MoveProposed(7, "10.0.0.8:7001"),
    "move-followed": client.MoveFollowed(7),
    "consumed-elsewhere": client.ConsumedElsewhere(7),
    "status-wanted": client.StatusWanted(1),
    "status-given": client.StatusGiven(1, b'{"node": 1}', False),
    "sample-offered": semantic_sample.SampleOffered(bytes(range(16))),
    "sample-keys": semantic_sample.SampleKeys((bytes(range(16)), b"\xff" * 16)),
    "sample-events": semantic_sample.SampleEvents((TRADE, STORY)),
    "asked": similarity.Asked(3, 7, PROFILE),
    "named": similarity.Named(3, 7, (PROFILE, PROFILE._replace(version=9))),
    "link-asked": similarity.LinkAsked(3, 7, False, PROFILE),
    "link-given": similarity.LinkGiven(3, 7, True, PROFILE),
    "link-refused": similarity.LinkRefused(3, 7, True),
    "link-dropped": similarity.LinkDropped(3, 7, False),
    "exchanged": similarity.Exchanged(3, 7, (PROFILE,), True, False, True),
    "profile-told": similarity.ProfileTold(3, 7, PROFILE),
    "walked": similarity.Walked(3, 7, PEER, 12, 5),
    "walk-ended": similarity.WalkEnded(3, 7, 12, PROFILE),
    "member-leaves": similarity.MemberLeaves(3, 7, ()),
    "members-wanted": similarity.MembersWanted(0, 0, (PROFILE,)),
    "members-known": similarity.MembersKnown(0, 0, (PROFILE,), ("n1",)),
    "routed": similarity.Routed(3, 7, TRADE, 2, 1),
    "sought": similarity.Sought(3, 0, STORY, 1, (PEER,)),
    "passed": dag.Passed("string:ACME", TRADE),
    "turn": dag.Turn("string:ACME", 2, 7),
    "want-turn": dag.WantTurn("*"),
    "relay": dag.Relay("*", STORY),
    "request-val": dag.RequestVal("", PEER, (PeerId("n8"), PEER)),
    "invite": dag.Invite("*", (PEER,)),
    "offer": dag.Offer("*", 12, 1, 300, False, True, LABEL, True),
    "offer-fresh": dag.Offer("", 1, 0, 0, True, False, None, False),
    "link-up-ok": dag.LinkUpOk("*", 12, 1, 3, 2, 0, 2, LABEL, True, (PEER,)),
    "later": dag.Later("*", 12),
    "link-down": dag.LinkDown("*", False, (PEER,)),
    "link-down-answer": dag.LinkDown("*", True, (), 12),
    "labelled": dag.Labelled("*", LABEL, False),
    "label-asked": dag.LabelAsked("", LABEL),
    "label-told": dag.LabelTold("", None, True),
    "census": dag.Census("", LABEL),
    "announce": dag.Announce("*", PEER, 12, LABEL, None),
    "announce-gone": dag.Announce("*", PEER, 13, None, LABEL),
    "echo": dag.Echo("*", False, PEER, 12, True, LABEL),
    "directory-state": dag.DirectoryState(bytes(range(16))),
    "directory-entries": dag.DirectoryEntries((dag.Entry("*", LABEL),), True),
    "inherit": dag.Inherit("*"),
    "inherited": dag.Inherited("*", True),
    "layer-leaving": dag.Leaving("*", 3, (PEER,)),
    "leave-ok": dag.LeaveOk("*", 3),
    "layers-told": dag.LayersTold(("string:ACME", "*"), ("number:1",)),
    "leave-wait": dag.LeaveWait("*", 3),
    "forwarded": containment.Forwarded(TRADE, 2, 3, 4, climbs=True),
    "join-request": containment.JoinRequest(
        2, 3, MEMBER, 7, CHEAP, PEER, is_confined=True, stays_on_top=True, hops=2
    ),
    "join-request-short": containment.JoinRequest(2, 3, MEMBER, 7, None),
    "probe": containment.Probe(2, 3, MEMBER, 7, LEDE, 4, PEER),
    "probe-answer": containment.ProbeAnswer(2, 3, MEMBER, 7, CONTAINER, None),
    "found": containment.Found(2, 3, 7, CONTAINER, CONTAINER),
    "place-wanted": containment.PlaceWanted(
        2, 3, 7, EdgeKind.TOP, CHEAP, stays_on_top=True, in_place_of=PEER, is_leaving=True
    ),
    "place-given": containment.PlaceGiven(
        2, 3, 7, EdgeKind.CHILD, CHEAP, (MEMBER,), (PEER,), (), ("n7",)
    ),
    "redirected": containment.Redirected(2, 3, 7, EdgeKind.EQUAL, MEMBER),
    "redirected-nowhere": containment.Redirected(2, 3, 7, EdgeKind.TOP, None, ("n7", "n8")),
    "detach": containment.Detach(2, 3, 7),
    "ancestry": containment.Ancestry(2, 3, (MEMBER, PEER), (MEMBER,), (PEER,)),
    "handed": containment.Handed(2, 3, MEMBER, in_my_place=True),
    "promote": containment.Promote(2, 3, MEMBER, EdgeKind.TOP, PEER, 1),
    "promoted": containment.Promoted(2, 3),
    "crown-sought": containment.CrownSought(1, 1, MEMBER, "n7", 2),
    "crown-found": containment.CrownFound(1, 2, MEMBER, is_keeper=False, node="n7", hops=2),
    "reconsider": containment.Reconsider(2, 3),
    "reorganise": containment.Reorganise(2, 3, MEMBER, CHEAP, 4, 17, 2, 3),
    "deepened": containment.Deepened(2, 3, 5),
    "departing": containment.Departing(2, 3, departs=False),
    "forwarded-in-list": containment.Forwarded(
        TRADE, 2, 3, 4, list_of=MEMBER, direction=containment.Direction.LEFT, listed=9
    ),
    "siblings-are": containment.SiblingsAre(2, 3, 9, MEMBER, None, is_listed=True),
    "nodes-lost": containment.NodesLost(2, 3, ("n7", "10.0.0.7:7001")),
    "siblings-known": containment.SiblingsKnown(2, 3, 9, works=False),
    "link-unneeded-by-members": semantic.LinkUnneeded(),
    "link-free": semantic.LinkFree(),
    "link-needed-by-members": semantic.LinkNeeded(),
    "member-gone": semantic.MemberGone(3, 7),
    "seats-told": reach.SeatsTold((reach.SeatFact(PLACE, 7, 5),), True),
    "seats-told-none": reach.SeatsTold(()),
    "join-asked": reach.JoinAsked("10.0.0.8:7001", 2),
    "nodes-told": reach.NodesTold(("n1", "n2")),
    "entries-given": reach.EntriesGiven(PLACE, (KEPT,)),
    "seat-given": reach.SeatGiven(PLACE, 8, ("n1", "n2")),
    "seat-taken": reach.SeatTaken(PLACE, 8),
    "reach-routed": reach.Routed(2**60 - 1, 3, reach.StoreAsked(KEPT)),
    "store-asked": reach.StoreAsked(KEPT),
    "unstore-asked": reach.UnstoreAsked(5, PEER, "s1", 4),
    "place-sought": reach.PlaceSought(5, "n9"),
    "reach-stored": reach.Stored("s1", 5, 4),
    "reach-unstored": reach.Unstored("s1", 5, 4),
    "copy-told": reach.CopyTold(PLACE, 7, True, (KEPT,), 12),
    "copy-ended": reach.CopyEnded(PLACE, reach.UnstoreAsked(5, PEER, "s1", 4), 13),
    "near-told": reach.NearTold(PLACE, ((PLACE.sibling, PEER),)),
    "copy-dropped": reach.CopyDropped(PLACE),
    "copy-heard": reach.CopyHeard(PLACE, 13),
    "renewal-wanted": reach.RenewalWanted(PLACE, 9),
    "leave-asked": reach.LeaveAsked(PLACE),
    "leave-agreed": reach.LeaveAgreed(PLACE),
    "rival-named": reach.RivalNamed("10.0.0.9:7001"),
    "interest-told": reach.InterestTold(PLACE, PLACE.sibling, reach.Interest((5, 13), 2), 6),
    "interest-told-with-filters": reach.InterestTold(
        PLACE, PLACE.sibling, reach.Interest((5, 13), 2, (None, CHEAP)), 7
    ),
    "interest-changed": reach.InterestChanged(
        PLACE, PLACE.sibling, 7, 8, (0, 2), reach.Interest((5, 13), 2, (None, CHEAP))
    ),
    "interest-asked": reach.InterestAsked(PLACE, PLACE.sibling),
    "interest-heard": reach.InterestHeard(PLACE, PLACE.sibling, 6),
    "rendezvous": reach.Rendezvous(TRADE, 0b1011, 1, 350),
    "reach-spread": reach.Spread(TRADE, 0b1011, PLACE, 2, 350),
    "reach-detour": reach.Detour(TRADE, 0b1011, PLACE, 1, 2, 350),
    "reach-handed": reach.Handed(TRADE, 0b1011, PLACE, (5, 13), 2, True, 350),
    "load-asked": reach.LoadAsked(),
    "load-told": reach.LoadTold(1_200),
    "reach-notified": reach.Notified(STORY, 3, 350),
}

RECORDS: dict[str, Any] = {
    "neighbours-stored": records.NeighboursStored(("10.0.0.8:7001", "10.0.0.9:7001")),
    "identity-stored": records.IdentityStored(b"\x00\x01"),
    "subscription-stored": records.SubscriptionStored("s1", CHEAP),
    "durable-subscription-stored": records.DurableSubscriptionStored("s1", CHEAP),
    "subscription-removed": records.SubscriptionRemoved("s1"),
    "event-stored": records.EventStored(STORY, ("s1", "s2"), 1_700_000_000_000, 4),
    "event-handed-over": records.EventHandedOver("story-2"),
    "batch-stored": records.BatchStored(TRADES, (("s1", (0, 7)), ("s2", (7,))), 1_700_000_000_000),
    "batch-handed-over": records.BatchHandedOver("b7", (0, 7)),
    "event-seen": records.EventSeen("story-2", 1_700_000_000_000),
}
