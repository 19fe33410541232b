"""docs/limits.md says what the code does: each default that it names is compared."""

import re
from pathlib import Path

import pytest

from peersub.cli.failures import CommandError
from peersub.cli.node_options import NodeOptions, node_settings
from peersub.filters.price import (
    FILTER_BYTES_MAX,
    FILTER_PRICE_MAX,
    PART_PRICE_MAX,
    ROW_PRICE_MAX,
)
from peersub.overlays.core.batch_bounds import UNPACKED_BYTES_MAX
from peersub.overlays.core.home import HomeSettings
from peersub.overlays.core.mirror_settings import MirrorSettings
from peersub.runtime.client_gate import FULL_BYTES
from peersub.runtime.client_status import STATUS_WAITING_MAX
from peersub.runtime.limits import ServingLimits
from peersub.runtime.security.permissions import ClientLimits
from peersub.runtime.settings import NodeSettings
from peersub.runtime.store.settings import StoreSettings
from peersub.runtime.transport import TransportSettings
from peersub.wire.limits import ATTRIBUTES_BYTES_MAX, BODY_BYTES_MAX, VALUES_MAX
from test_project import ROOT

HOUR_MS = 3_600_000
FIXED = {
    "price of one filter": FILTER_PRICE_MAX,
    "bytes of one filter": FILTER_BYTES_MAX,
    "price of what other nodes are told of a filter": ROW_PRICE_MAX,
    "price of a row in routing tables": PART_PRICE_MAX,
    "durable subscriptions of a client with a certificate": ClientLimits().durable_max,
    "age of a durable subscription that nobody consumes, of a client with a certificate": (
        ClientLimits().abandoned_days
    ),
    "hours that publishers wait for a node with durable subscriptions": MirrorSettings().away_max_ms
    // HOUR_MS,
    "status questions of a client that wait": STATUS_WAITING_MAX,
    "waiting on one client's connection, beside the queues": FULL_BYTES,
    "attributes of one event": ATTRIBUTES_BYTES_MAX,
    "values in the attributes of one event, with those in records and lists": VALUES_MAX,
    "body of one event": BODY_BYTES_MAX,
    "values of a batch of events, unpacked": UNPACKED_BYTES_MAX,
    "events whose repetition is recognised, in bytes": HomeSettings().history_bytes_max,
    "copies of an acknowledged event": MirrorSettings().copies,
}
SETTINGS = (ServingLimits(), TransportSettings(), TransportSettings().connection, StoreSettings())
WITHOUT_NUMBER = ("file_bytes_max", "events that one client publishes a second")


def rows():
    text = (Path(ROOT) / "docs" / "limits.md").read_text("utf-8")
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return [
        (bound.strip(), default.strip()) for bound, default, *_ in cells if "bound" not in bound
    ]


@pytest.mark.parametrize(("bound", "default"), rows())
def test_the_table_has_the_defaults_of_the_code(bound, default):
    named = re.match(r"`(\w+)`", bound)
    if bound.strip("`") in WITHOUT_NUMBER:
        return
    number = float(re.match(r"[\d,]+", default).group().replace(",", ""))
    if named is None:
        assert number == FIXED[bound]
    else:
        values = [getattr(each, named[1]) for each in SETTINGS if hasattr(each, named[1])]
        assert values == [number]


def test_every_limit_of_clients_is_in_the_table():
    listed = " ".join(bound for bound, _ in rows())
    assert all(f"`{name}`" in listed for name in ServingLimits.__slots__)


def test_limits_reach_the_node():
    chosen = ("client_bytes_max=1000", "connections_max=7", "strangers_per_second=2.5")
    settings = node_settings(NodeOptions(limit=chosen))
    assert settings.limits == ServingLimits(client_bytes_max=1_000)
    assert settings.transport == TransportSettings(connections_max=7, strangers_per_second=2.5)
    assert node_settings(NodeOptions()) == NodeSettings(listen="127.0.0.1:7001")


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("client_byte_max=1", "Did you mean client_bytes_max?"),
        ("heartbeat_ms=1", "there is no limit 'heartbeat_ms'"),
        ("client_bytes_max=0", "client_bytes_max is at least 1"),
        ("client_bytes_max", "write NAME=VALUE"),
    ],
)
def test_limits_that_cannot_be_are_named(word, text):
    with pytest.raises(CommandError, match=re.escape(text)):
        node_settings(NodeOptions(limit=(word,)))


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        *(("limit", bound, "0") for bound in ServingLimits.__slots__),
        ("limit", "connections_max", "0"),
        ("limit", "unnamed_max", "-1"),
        ("limit", "queue_bytes_max", "0"),
        ("limit", "strangers_per_second", "0"),
        ("limit", "strangers_per_second", "nan"),
        ("store", "log_bytes_max", "-5"),
    ],
)
def test_no_limit_is_less_than_1(option, name, value):
    with pytest.raises(CommandError, match=f"--{option}: {name} is at least 1, not "):
        node_settings(NodeOptions(**{option: (f"{name}={value}",)}))


def test_other_numbers_that_cannot_be_are_named_by_their_flags():
    with pytest.raises(CommandError, match="--copies is at least 1, not 0"):
        node_settings(NodeOptions(copies=0))
    with pytest.raises(CommandError, match="--away-max is more than no time"):
        node_settings(NodeOptions(away_max=0))
