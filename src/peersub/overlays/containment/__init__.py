"""The containment tree: an event goes where members on its way want it, by own interest alone.

Chand and Felber, "Semantic peer-to-peer overlays for publish/subscribe networks" (Euro-Par 2005),
sections 2 to 4. A *member* is one distinct filter on one node; members with equivalent filters are
a *class*. Each member stands below at most one other, over an edge of one of four kinds
(`structure.EdgeKind`): CHILD below the root of a class that strictly contains its own, EQUAL within
its class, TOP between class roots that nobody contains, VISIT for the keeper of a node (`peer`).
`structure` states which tree that is; `building` plays joins without messages; the rest is the
protocol: `seat` (a place, and what neighbours tell each other), `probing`, `giving`, `moving`,
`crown`, `leaving`, `reorganising`, `routing`, `siblings`, put together in `member`; of a node,
`acquaintances` (the other nodes that it knows of) and `publishing`, put together in `peer`.

Where this departs from the paper:

* *The virtual root* is no ring of siblings but a tree of bounded degree over all top-level members,
  whose root is the crown: log T hops in place of T, one way of repair for all edges, and two
  networks merge by attaching one crown below the other.
* *Correction 1*: TOP edges, and lists of siblings, forward unconditionally. Own interest would cut
  off all that is behind.
* *Correction 2*: what a publisher does not match itself climbs to the first member that does, or to
  the top level.
* *Sibling mode*: its four holes are closed as `siblings` says; the third does not arise.

What the paper leaves open:

1. Several subscriptions per peer: a member for each distinct filter of a node. A member hands
   events to its own subscriptions only, so each is reached by the tree itself.
2. Where publications start: at a member of the publishing node that matches, else they climb from
   the node's keeper. A node without subscriptions has nothing but a keeper.
3. Top-level members count as receivers, and so do members that an event climbs over.
4. Accuracy is measured on the network as it is, not while it grows.
5. A parent knows all its children: lists of siblings are told by the parent.
6. Ancestors (k of them, over all kinds of edges) are told with a place, and when they change.
7. Containment is proven by transitive proofs only (`structure.contains`): a containment that is
   missed costs accuracy, never an event. SQL covering is transitive but for its budget; a circle of
   equivalent filters whose equivalence nobody can prove would show among the k ancestors.

The law of receivers: those who match, the class roots right below a class that matches, the top
level, and whom the event climbs over; each once. Of a class that does not match only its root gets
the event. While members move they have two edges up, and a second copy ends at once.

Promises: best effort. A subscription is ready when its member has a place. While the tree stands,
every event reaches all who want it; while it is repaired, an event may miss who has no place just
then. Each side of a split is a tree of its own, in which that holds as well. After the split heals
the trees become one, and it holds for what is published from then on: what was published meanwhile
stays on its side, nobody publishes it again.

A member without links to anybody it knows of becomes a crown of its own; nodes remember 32 others
(`acquaintances`), so parts that know nobody of each other stay apart until one of them learns of a
node there. A newcomer never begins a network because nobody answers: as in Chord, it waits and goes
on asking. Who cannot reach a network and who has none look alike, and a tree that should not be
would be forgotten by all others after `former_horizon_ms`.
"""
