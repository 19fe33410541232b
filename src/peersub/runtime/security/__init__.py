"""Security of a live network: who is who, who may do what, and who is no longer trusted.

`authority` makes certificates, `tls` uses them, `revocations` takes them back; `permissions` bounds
what clients see and publish, `rate_limit` how fast. Nodes of a network trust each other.
"""
