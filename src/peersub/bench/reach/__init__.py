"""Reach from its structure alone: visits, quenching, bits and load: `peersub bench reach`."""
