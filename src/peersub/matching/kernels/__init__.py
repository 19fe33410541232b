"""Compiled loops of the matching index: the only modules that import numba."""
