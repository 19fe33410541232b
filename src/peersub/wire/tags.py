"""The numbers of messages and records on the wire and on disk.

A number is given once and never again to something else, also after its message is gone. A new
message takes a new line; `fields` works out the rest from the types of its fields. A field that a
later version adds stands last and has a default; no field is taken away or changes its place.
"""

from __future__ import annotations

from typing import Final

from peersub.overlays.chord import messages as chord
from peersub.overlays.containment import messages as containment
from peersub.overlays.core import link_messages as link
from peersub.overlays.core import mirror_messages as mirrors
from peersub.overlays.core import records
from peersub.overlays.core import rumour_messages as rumours
from peersub.overlays.dag import messages as dag
from peersub.overlays.flood import messages as flood
from peersub.overlays.reach import messages as reach
from peersub.overlays.routing import messages as routing
from peersub.overlays.semantic import messages as semantic
from peersub.overlays.semantic import sample_messages as semantic_sample
from peersub.overlays.similarity import messages as similarity
from peersub.overlays.tree import messages as tree
from peersub.wire import client_messages as client

__all__ = ["MESSAGES", "RECORDS"]

MESSAGES: Final[dict[int, type]] = {
    # links: 1 to 19
    1: link.Hello,
    2: link.Carried,
    3: link.Acknowledgement,
    4: link.Goodbye,
    5: link.LinkWanted,
    6: link.BetweenSlots,
    7: link.TunnelRequest,
    8: link.TunnelAnswer,
    9: link.TunnelBroken,
    10: link.Tunnelled,
    11: link.LinkOpen,
    12: link.LinkAccepted,
    13: link.LinkRejected,
    14: link.Heartbeat,
    15: rumours.RumourSet,
    16: rumours.RumourNames,
    17: rumours.Rumours,
    # routing: 20 to 29
    20: routing.Notify,
    21: routing.Confirm,
    22: routing.FilterUpdate,
    23: routing.FilterConfirmed,
    24: routing.FilterMismatch,
    25: routing.ResponsibilityChange,
    26: routing.NotifyBatch,
    # mirrors: 30 to 39
    30: mirrors.MirrorWanted,
    31: mirrors.MirrorReady,
    32: mirrors.MirrorEnded,
    33: mirrors.MirrorOffer,
    34: mirrors.MirrorReleased,
    35: mirrors.MirrorHolds,
    36: mirrors.MirrorMisses,
    37: mirrors.MirrorCopy,
    # flood: 40 to 49
    40: flood.Flooded,
    41: flood.NeighboursWanted,
    42: flood.Neighbours,
    # tree: 50 to 59
    50: tree.Attach,
    51: tree.Attached,
    52: tree.Refused,
    53: tree.Path,
    # chord: 60 to 77
    60: chord.Present,
    61: chord.LookupRequest,
    62: chord.Located,
    63: chord.AdmissionRequest,
    64: chord.Admission,
    65: chord.KeyTaken,
    66: chord.NeighbourhoodRequest,
    67: chord.Neighbourhood,
    68: chord.Leaving,
    69: chord.LinkUnneeded,
    70: chord.LinkNeeded,
    71: chord.RingsMeet,
    # clients: 79 to 98
    79: client.MoveFollowed,
    80: client.ClientHello,
    81: client.ClientWelcome,
    82: client.ClientRefused,
    83: client.SubscribeWanted,
    84: client.SubscriptionState,
    85: client.StateWanted,
    86: client.UnsubscribeWanted,
    87: client.Delivered,
    88: client.Acknowledged,
    89: client.Credit,
    90: client.PublishWanted,
    91: client.PublishEnded,
    92: client.StatusWanted,
    93: client.StatusGiven,
    94: client.PublishBatchWanted,
    95: client.DeliveredBatch,
    96: client.RevocationTold,
    97: client.Answered,
    98: client.MoveProposed,
    265: client.DeliveredAgain,
    295: client.DurableLosses,
    296: client.ConsumedElsewhere,
    250: client.PublishedBefore,
    # semantic overlays: containment 110 to 139, similarity 140 to 159, both 160 to 169
    110: containment.Forwarded,
    111: containment.JoinRequest,
    112: containment.Probe,
    113: containment.ProbeAnswer,
    114: containment.Found,
    115: containment.PlaceWanted,
    116: containment.PlaceGiven,
    117: containment.Redirected,
    118: containment.Detach,
    119: containment.Ancestry,
    120: containment.Handed,
    121: containment.Promote,
    122: containment.Promoted,
    123: containment.CrownSought,
    124: containment.CrownFound,
    125: containment.Reconsider,
    126: containment.Reorganise,
    127: containment.Deepened,
    128: containment.Departing,
    129: containment.SiblingsAre,
    130: containment.SiblingsKnown,
    131: containment.NodesLost,
    140: similarity.Asked,
    141: similarity.Named,
    142: similarity.LinkAsked,
    143: similarity.LinkGiven,
    144: similarity.LinkRefused,
    145: similarity.LinkDropped,
    146: similarity.Exchanged,
    147: similarity.ProfileTold,
    148: similarity.Walked,
    149: similarity.WalkEnded,
    150: similarity.MemberLeaves,
    151: similarity.MembersWanted,
    152: similarity.MembersKnown,
    153: similarity.Routed,
    154: similarity.Sought,
    160: semantic_sample.SampleOffered,
    161: semantic_sample.SampleKeys,
    162: semantic_sample.SampleEvents,
    166: semantic.LinkUnneeded,
    167: semantic.LinkFree,
    168: semantic.LinkNeeded,
    169: semantic.MemberGone,
    # dag: 170 to 199
    170: dag.Passed,
    171: dag.Turn,
    172: dag.WantTurn,
    173: dag.Relay,
    174: dag.RequestVal,
    175: dag.Invite,
    176: dag.Offer,
    177: dag.LinkUpOk,
    178: dag.Later,
    # 179 was a message of the anonymous overlay that no release had
    180: dag.LinkDown,
    181: dag.Labelled,
    182: dag.LabelAsked,
    183: dag.LabelTold,
    184: dag.Census,
    185: dag.Announce,
    186: dag.Echo,
    187: dag.DirectoryState,
    188: dag.DirectoryEntries,
    189: dag.Inherit,
    190: dag.Inherited,
    191: dag.Leaving,
    192: dag.LeaveOk,
    193: dag.LeaveWait,
    194: dag.LayersTold,
    # reach: 200 to 229
    200: reach.SeatsTold,
    201: reach.JoinAsked,
    202: reach.EntriesGiven,
    203: reach.SeatGiven,
    204: reach.SeatTaken,
    205: reach.Routed,
    206: reach.StoreAsked,
    207: reach.UnstoreAsked,
    208: reach.PlaceSought,
    209: reach.Stored,
    210: reach.Unstored,
    211: reach.InterestTold,
    212: reach.InterestAsked,
    213: reach.InterestHeard,
    214: reach.Rendezvous,
    215: reach.Spread,
    216: reach.Notified,
    217: reach.NodesTold,
    218: reach.CopyTold,
    219: reach.CopyEnded,
    220: reach.CopyHeard,
    221: reach.RenewalWanted,
    222: reach.RivalNamed,
    223: reach.NearTold,
    224: reach.Detour,
    225: reach.CopyDropped,
    226: reach.InterestChanged,
    227: reach.Handed,
    228: reach.LoadAsked,
    229: reach.LoadTold,
    230: reach.LeaveAsked,
    231: reach.LeaveAgreed,
    # clients again: 232 to 239
    232: client.SubscriptionPhases,
    # copies of what durable subscriptions want: 240 to 249
    240: mirrors.MirrorRecruit,
    241: mirrors.MirrorWitness,
    242: mirrors.MirrorKept,
    243: mirrors.MirrorSafe,
    244: mirrors.MirrorKeep,
    245: mirrors.MirrorSuspended,
    300: mirrors.MirrorRowsKept,
    301: mirrors.MirrorRowsSafe,
    302: mirrors.MirrorKeepBatch,
}

# None of these is a message's: a record never passes for something that a peer said.
RECORDS: Final[dict[int, type]] = {
    78: records.NeighboursStored,
    100: records.IdentityStored,
    101: records.SubscriptionStored,
    102: records.SubscriptionRemoved,
    103: records.EventStored,
    104: records.EventHandedOver,
    105: records.EventSeen,
    106: records.BatchStored,
    107: records.BatchHandedOver,
    108: records.DurableSubscriptionStored,
}
