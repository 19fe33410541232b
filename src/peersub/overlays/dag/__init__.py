"""Anonymous publish/subscribe on logical DAGs: a layer per topic, and turns instead of flooding.

Datta, Gradinariu, Raynal, Simon, "Anonymous publish/subscribe in P2P networks" (IPDPS 2003). The
members of a layer form an undirected graph whose edges have a direction. Whoever all edges point at
(a *sink*) is on turn: it sends what it has to its neighbours and turns its edges round. No message
says who published an event.
"""
