"""The generalised routing algorithm (Terpstra et al. 2003, section 3.1 and figure 3).

Routing and filter maintenance know the network only as a `Topology`: peers, and a partition of
responsibility among them. `tree` and `chord` bring topologies; the rest is here, once.
"""
