"""Keys of events: opaque, one for (publisher, id), and a name that every version can carry."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overlays.core.batch_rows import batch_of
from peersub.events.envelope import IDENTIFIER_BYTES_MAX
from peersub.overlays.core.batch import Batch
from peersub.overlays.core.event_keys import (
    BATCH_ID_BYTES_MAX,
    BATCH_ROWS_MAX,
    KEY_BYTES,
    event_id_of,
    key_of_id,
    key_of_name,
    name_of,
    name_of_key,
    network_batch_key,
    network_key,
    number_of,
    publisher_key,
    row_key,
    split_name,
)
from peersub.overlays.core.publication import Publication
from strategies import examples

IDS = st.text(min_size=1, max_size=12) | st.sampled_from(["e1", "b/7", "\x01", "\x01AAAA", "a/b/0"])
SECRETS = st.binary(min_size=16, max_size=64)
KEYS = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES).map(network_key)


@examples(300)
@given(IDS, st.none() | KEYS)
def test_a_name_holds_key_and_id(event_id, key):
    name = name_of(key, event_id)
    assert key_of_name(name) == (key_of_id(event_id) if key is None else key)
    assert split_name(name)[1] == event_id
    publication = Publication(event_id, {}, key=key)
    assert (publication.key, publication.name) == (key_of_name(name), name)
    assert key_of_name(name_of_key(publication.key)) == publication.key


@examples(100)
@given(KEYS.map(network_batch_key), IDS, st.integers(0, BATCH_ROWS_MAX - 1))
def test_an_event_of_a_batch_is_named_as_earlier_versions_do(batch_key, batch_id, number):
    key = row_key(batch_key, number)
    name = name_of(key, event_id_of(batch_id, number))
    assert name == event_id_of(name_of(batch_key, batch_id), number)
    assert key_of_name(name) == key
    assert (number_of(key), key_of_name(name_of_key(key))) == (number, key)


@examples(100)
@given(SECRETS, SECRETS, IDS, IDS)
def test_a_key_is_that_of_one_publisher_and_one_id(secret, other, first, second):
    key = network_key(publisher_key(secret, first))
    assert len(key) == KEY_BYTES and number_of(key) is None
    assert key == network_key(publisher_key(secret, first))
    assert (key == network_key(publisher_key(other, first))) == (secret == other)
    assert (key == network_key(publisher_key(secret, second))) == (first == second)
    # What a node sends on is nothing that a client could have sent to get it.
    assert network_key(key) != key != publisher_key(secret, first)
    assert key not in (key_of_id(first), network_batch_key(publisher_key(secret, first)))


def test_keys_of_one_publisher_have_nothing_in_common():
    keys = [network_key(publisher_key(b"secret", f"e{number}")) for number in range(256)]
    # All but the bit that tells events of no batch: each bit is set in about half of the keys.
    bits = np.unpackbits(np.frombuffer(b"".join(keys), np.uint8).reshape(256, KEY_BYTES), axis=1)
    assert np.flatnonzero(bits.all(axis=0)).tolist() == [112]
    assert bits.any(axis=0).all()


def test_the_parts_of_a_batch_keep_its_key():
    batch = batch_of([{"a": number} for number in range(4)]).with_key(network_batch_key(b"claim"))
    part = batch.part(np.array([1, 3]))
    assert part.key == batch.key != Batch(batch.id, batch.numbers, 4, packed=b"").key
    assert [event.key for event in part.publications()] == list(part.row_keys())
    assert list(part.row_keys()) == [row_key(batch.key, 1), row_key(batch.key, 3)]


@examples(100)
@given(st.text(min_size=1, max_size=16), KEYS, st.integers(1, 4))
def test_a_name_for_an_earlier_version_is_no_longer_than_an_id(text, key, times):
    event_id = (text * times)[:IDENTIFIER_BYTES_MAX]
    short = Publication(event_id, {}, key=key).with_short_name()
    assert short.key == key
    assert len(short.name.encode()) <= IDENTIFIER_BYTES_MAX
    batch = Batch(event_id, np.arange(3), 3, packed=b"", key=network_batch_key(key))
    assert len(batch.with_short_name().name.encode()) <= BATCH_ID_BYTES_MAX
    # A batch and an event of it that travels alone are cut alike.
    row = Publication(event_id_of(batch.id, 2), {}, key=row_key(batch.key, 2)).with_short_name()
    assert row.name == event_id_of(batch.with_short_name().name, 2)
    assert key_of_name(row.name) == row.key
