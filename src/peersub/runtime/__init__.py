"""The runtime: overlays on asyncio TCP. It drives the same nodes as the simulator does.

`connection` has one TCP connection, `transport` all of a node's, `liveness` tells who is gone;
`driver` hands causes to the node and carries out its effects; `live_node` is what programs use.
"""
