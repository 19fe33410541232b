"""What thousands of subscriptions cost a live network, and those who have nothing to do with them.

`workload` draws filters and events; `client` is a process with the clients that subscribe; `trial`
runs a network, lets the clients subscribe while others exchange events, and judges all of it.
"""
