"""Reach: attributes are bits, and events go down the subsets of their bits (Perng et al. 2004).

`identifiers` is the geometry: places of different lengths, routing, subset trees. `structure`
says how places split, merge and fall to others. `attributes` turns filters and events into bits.

The protocol needs no locks: a node alone says which places it holds (`directory`), and changes that
by itself (`holdings`). What is kept at a place (`seats`) is copied to its heirs (`copies`), and
interest in it is told upwards (`interest`). `registrations` are the subscriptions of a node.
"""
