"""`peersub bench network`: live nodes on one machine, beside Zenoh and NATS."""
