"""Reach: attributes are bits, and events go down the subsets of their bits (Perng et al. 2004).

`identifiers` is the geometry: places of different lengths, routing, subset trees. `structure`
says how places split, merge and fall to others. `attributes` turns filters and events into bits.
"""
