"""Benchmarks: this project's engines next to the best that common tools offer, in one run."""
