"""What the semantic overlays share: the sample of events, the hosting of members, the metrics.

In the containment tree and in the similarity graph (Chand & Felber, Euro-Par 2005) a peer stands
for one filter, not for a node, and is placed by what it wants.
"""
