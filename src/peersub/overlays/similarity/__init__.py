"""The similarity graph (Chand & Felber, "Semantic Peer-to-Peer Overlays for Publish/Subscribe
Networks", Euro-Par 2005, §3.2, §4.2, §6): members linked with others that want alike.

A member stands for one distinct filter of a node. It passes an event on if it matches it itself;
nobody keeps a routing table, or knows a filter of somebody else. What it knows of others is which
events of a shared sample they match (`semantic.sample`): those bits are enough to measure how much
two have in common. All quality comes from who is linked with whom. Delivery is *approximate*: an
event may miss a subscriber, also where nothing fails. It never comes to one that does not want it,
and to none twice.

    settings    all knobs; PAPER is the paper's setting
    proximity   how near two members are, by counts; by latency and bandwidth too
    choosing    whom a member links itself with
    forwarding  who passes an event on to whom
    summary     an option: what an event must have to match a neighbour, in a few bits
    member      one member: search, exchange, links, losses
    desk        what a node does for its members, and without any
    routing     the events of a node
    peer        the overlay: hosts desk and members
    converged, invariants, bulk, bulk_routing    as in the other overlays

Where it departs from the paper, and why
----------------------------------------
* **Another choice of neighbours** (`climb`, the default). The n most similar members of a member
  are those that want the same as it: cliques form, and only random links lead from one to the next.
  A random link brings a false positive three times out of four, so the paper has to choose between
  the two errors by ρ. Under `climb` a member takes neighbours of *higher rank* (more general, by
  the sample) that together match what it matches, and little else (`choosing` has the rule). Then
  all who match an event are connected by links among themselves, up to what the sample did not
  show, and random links are not needed to reach them: false positives and false negatives fall
  together, with fewer links. `choice=nearest` is the paper's rule.
* **A publication spreads over all random links where it begins**, and over few later (ρ = 0.05):
  what is lost is mostly what begins at a member whose neighbours happen not to match.
* **Ties** are broken on a circle of places, not by who has fewest links: it spreads links as well,
  and does not depend on the order of joins, so that a converged graph is a function of its members.
* **Indulgence travels in the copy** (the text's "γ times per message" would need a count that all
  copies share). A copy that has more left than those before it is passed on again, so who is
  reached does not depend on which copy was faster.
* **Small networks are cliques** (`clique_up_to`): a sample of a few events says nothing yet, and
  with some dozen members it costs little to be linked with all. They miss nothing.
* **A network warms up** (`warm_up_events`): while the sample has few events, members choose by
  nearness, which is mostly a draw, and pass everything on. Those first events reach all, and make
  the sample; a member relies on its links once they have been chosen by it and are steady.
* **What passes between members of one node is free.** A node that gets an event hands it to all its
  subscriptions that want it, and its members that match all pass it on.

Open points, settled
--------------------
1. Several subscriptions on a node: a member for each distinct filter, one delivery for each
   subscription.
2. Where publications begin: at all members of the publisher's node that match. If none does, the
   event looks for one: it goes to the most general neighbour, and on from there (`Sought`), at most
   `seek_steps`; then it is passed on to all neighbours as by a member with indulgence 1. A node
   without members hands it to a member that it knows. Measurements begin at a drawn member that
   matches, as the paper's do.
3. Who receives in vain counts: false positives are members that got a copy and do not match, over
   all members; false negatives are over those that match (`semantic.metrics`).
4. Zero denominators: smoothing (`smoothing`, α = 0.5); with 0, what was never seen is near nobody.
5. Join: best-first search with a beam, then comparing lists with neighbours now and then. Only
   neighbours are told on, so that who is gone is soon forgotten.
6. Random links: ends of random walks. Walks prefer well-linked members; converged graphs draw
   evenly.
7. Leave and crash: the next best of those known, and a new draw.
8. The claim that n = 1, r = 0 with containment as similarity gives the containment tree holds
   roughly only: f_s is the same from both sides. `climb` with `nearest=1`, `cover=1` comes near it.
9. At-least-once is refused: nobody can tell that somebody was missed. `ready()` says that links are
   held, and `describe` that delivery is approximate.

Known limits: a filter that matches nothing of the sample has random links only, so a member that
waits for a kind of event that was never published before hears of it late: new events get into the
sample ever more rarely. While many events are published between two ticks, links lag behind.

Invariants are in `invariants`; the laws of the bulk form in `bulk`.
"""
