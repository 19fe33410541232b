"""Flooding on a random graph: the smallest overlay, and the measure of all others.

Each event goes to every neighbour but the one it came from; whoever has seen it says nothing. Every
node receives every event, about as often as it has neighbours. There are no filters on the way, so
a subscription is ready at once.
"""
