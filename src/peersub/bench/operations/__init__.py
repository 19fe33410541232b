"""A week of operations in some minutes: what operators do to a network, and what clients notice.

`week` plays it on node processes with certificates: restarts, revocations, permissions that change,
certificates that expire, full disks, slow readers. `people` are the clients, in the process of the
benchmark. `checking` judges by brute force from what people noted, and knows no protocol.
"""
