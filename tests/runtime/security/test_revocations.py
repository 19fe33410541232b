"""Revocations: signed, spread, kept; what is damaged or forged is refused and counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from overlays.core.link_world import PLAIN, World
from peersub.overlays.core.causes import Tell
from peersub.overlays.core.rumour_messages import Rumour
from peersub.overlays.core.rumours import PAYLOAD_BYTES_MAX, RUMOUR_SLOT, spread_rumours
from peersub.runtime.security import revocations as revocations_module
from peersub.runtime.security.certificates import read_key
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.revocations import (
    Revocation,
    RevocationSet,
    Verifier,
    revocation_of,
    rumour_of,
    sign_revocation,
)
from runtime.security.conftest import NOW


@pytest.fixture(scope="module")
def key(network):
    return read_key(network.authority.folder / "ca.key")


@pytest.fixture(scope="module")
def verifier(network):
    return Verifier(network.node.ca)


@pytest.fixture(scope="module")
def signed(key):
    return [sign_revocation(serial, f"c{serial}", 1_000 + serial, key) for serial in range(1, 6)]


def test_the_certificate_of_the_authority_is_enough_to_believe(verifier, other_network, signed):
    assert all(verifier.believes(revocation) for revocation in signed)
    stranger = Verifier(other_network.node.ca)
    assert not any(stranger.believes(revocation) for revocation in signed)


def test_whatever_is_changed_is_not_believed(verifier, signed):
    true = signed[0]
    forged = [
        replace(true, serial=2),
        replace(true, name="c2"),
        replace(true, name='c1"\n1'),
        replace(true, at_ms=5),
        replace(true, signature=b""),
        replace(true, signature=true.signature[:-1]),
        replace(true, signature=signed[1].signature),
    ]
    assert not any(verifier.believes(revocation) for revocation in forged)


def test_a_client_of_the_network_cannot_sign(verifier, network):
    assert not verifier.believes(sign_revocation(1, "n1", 1, read_key(network.client.key)))


def test_an_authority_with_another_kind_of_key(tmp_path):
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ed")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    path = tmp_path / "ca.pem"
    path.write_bytes(builder.sign(key, None).public_bytes(Encoding.PEM))
    revocation = sign_revocation(7, "c7", 1, key)
    assert Verifier(path).believes(revocation)
    assert not Verifier(path).believes(replace(revocation, serial=8))


def test_json_brings_it_back(signed):
    assert [Revocation.from_json(one.to_json()) for one in signed] == signed


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{}", b"[]", b"null", b"\xff", b"{" * 5_000, b"[" * 3_000,
        b'{"serial":"0","name":"a","at_ms":1,"signature":""}',
        b'{"serial":"-1","name":"a","at_ms":1,"signature":""}',
        b'{"serial":"1","name":7,"at_ms":1,"signature":""}',
        b'{"serial":"1","name":"a","at_ms":true,"signature":""}',
        b'{"serial":"1","name":"a","at_ms":-1,"signature":""}',
        b'{"serial":"1","name":"a","at_ms":1,"signature":"!"}',
        b'{"serial":1,"name":"a","at_ms":1,"signature":""}',
        b'{"serial":"1%s","name":"a","at_ms":1,"signature":""}' % (b"0" * 60),
    ],
)  # fmt: skip
def test_what_is_no_revocation_is_a_value_error(line):
    with pytest.raises(ValueError, match=r"revocation|serial"):
        Revocation.from_json(line)


# --- the set -----------------------------------------------------------------------------------


def test_a_set_is_there_again_after_a_restart(verifier, signed, tmp_path):
    path = tmp_path / "revocations.jsonl"
    known = RevocationSet(verifier, path)
    assert [known.add(revocation) for revocation in (*signed, signed[0])] == [True] * 5 + [False]
    again = RevocationSet(verifier, path)
    assert list(again) == signed and len(again) == 5 and again.refused == 0
    assert 3 in again and 77 not in again
    assert [revocation_of(rumour) for rumour in again.rumours()] == signed


def test_forged_ones_are_refused_and_counted(verifier, signed, tmp_path):
    known = RevocationSet(verifier, tmp_path / "r.jsonl")
    assert not known.add(replace(signed[0], serial=9))
    assert (9 in known, known.refused, (tmp_path / "r.jsonl").exists()) == (False, 1, False)
    assert known.add(signed[0])  # A forgery keeps nothing away.


def test_a_damaged_file_costs_what_is_damaged(verifier, signed, tmp_path):
    path = tmp_path / "r.jsonl"
    known = RevocationSet(verifier, path)
    for revocation in signed[:3]:
        known.add(revocation)
    lines = path.read_bytes().splitlines(keepends=True)
    forged = replace(signed[3], name="other").to_json() + b"\n"
    path.write_bytes(
        lines[0] + b"\xff\n" + b"x" * 10_000 + b"\n\n" + forged + lines[1] + lines[2][:-9]
    )
    after = RevocationSet(verifier, path)
    assert list(after) == signed[:2]
    assert after.refused >= 4  # The long line counts once for each part.
    assert after.add(signed[4])
    assert list(RevocationSet(verifier, path)) == [*signed[:2], signed[4]]


def test_every_cut_of_the_file_keeps_the_whole_lines(verifier, signed, tmp_path):
    path = tmp_path / "r.jsonl"
    known = RevocationSet(verifier, path)
    known.add(signed[0])
    first = len(path.read_bytes())
    known.add(signed[1])
    whole = path.read_bytes()
    for end in range(first, len(whole) + 1, 7):
        path.write_bytes(whole[:end])
        after = RevocationSet(verifier, path)
        assert after.add(signed[2])
        kept = list(RevocationSet(verifier, path))
        assert signed[0] in kept and signed[2] in kept


def test_what_cannot_be_written_counts_all_the_same(verifier, signed, tmp_path):
    folder = tmp_path / "data"
    known = RevocationSet(verifier, folder / "r.jsonl")
    assert known.add(signed[0]) and 1 in known and known.unsaved == 1
    folder.mkdir()
    assert known.add(signed[1]) and known.unsaved == 0
    assert list(RevocationSet(verifier, folder / "r.jsonl")) == signed[:2]
    with pytest.raises(SecurityError, match="cannot be read"):
        RevocationSet(verifier, folder)


def test_a_set_is_bounded(verifier, signed, monkeypatch):
    monkeypatch.setattr(revocations_module, "REVOCATIONS_MAX", 2)
    known = RevocationSet(verifier)
    assert [known.add(revocation) for revocation in signed[:3]] == [True, True, False]
    assert known.refused == 1


# --- on their way ------------------------------------------------------------------------------


def test_a_rumour_is_believed_for_what_is_in_it(verifier, signed):
    rumour = rumour_of(signed[0])
    assert revocation_of(rumour) == signed[0] and verifier.believes_rumour(rumour)
    assert len(rumour.payload) <= PAYLOAD_BYTES_MAX
    for other in (
        replace(rumour, kind="else"),
        replace(rumour, key="2"),
        replace(rumour, payload=b"junk"),
        rumour_of(replace(signed[0], serial=9)),
    ):
        assert not verifier.believes_rumour(other)


def test_the_longest_name_fits_into_a_rumour(key):
    longest = sign_revocation(2**159 - 1, "x" * 64, 2**52, key)
    assert len(rumour_of(longest).payload) <= PAYLOAD_BYTES_MAX


def test_a_revocation_reaches_all_nodes_and_a_forged_one_none(verifier, signed, tmp_path):
    world = World(PLAIN, "abcd")
    sets = {name: RevocationSet(verifier, tmp_path / f"{name}.jsonl") for name in "abcd"}

    def learn(name: str, rumour: Rumour) -> None:
        revocation = revocation_of(rumour)
        assert revocation is not None
        sets[name].add(revocation)

    for name, node in world.nodes.items():
        spread_rumours(node, verifier.believes_rumour, lambda r, name=name: learn(name, r))
    world.link(("a", "b"), ("b", "c"), ("c", "d"))
    forged = replace(signed[1], serial=99)
    for revocation in (signed[0], forged):
        effects = world.nodes["a"].handle(Tell(rumour_of(revocation)), 0, slot=RUMOUR_SLOT)
        world.carry_out("a", effects)
    world.settle()
    assert all(list(known) == signed[:1] for known in sets.values())
    assert "nothing proves" in world.drops[0].reason
