"""What pytest collects from the source: doctests, where what a module imports is installed."""

from importlib.util import find_spec

_OPTIONAL = {
    "pyspark": "src/peersub/pipeline/*",
    "nats": "src/peersub/bench/network/nats_member.py",
    "zenoh": "src/peersub/bench/network/zenoh_member.py",
}
collect_ignore_glob = [place for package, place in _OPTIONAL.items() if not find_spec(package)]
