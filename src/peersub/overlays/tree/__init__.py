"""One broker tree with filters on its edges, as Rebeca and Siena have it: the second baseline.

The network is a tree; each edge, both ways, has a filter that covers what is wanted behind it. All
events and all filter updates share this one tree, whose inner nodes carry most of the load: what
the Chord overlay is to be better than.
"""
