"""The authority: its files, what it issues, what it takes back."""

from __future__ import annotations

import stat

import pytest

from peersub.runtime.security.authority import Authority
from peersub.runtime.security.certificates import facts_of, read_certificate
from peersub.runtime.security.errors import SecurityError
from peersub.runtime.security.identity import Role
from peersub.runtime.security.revocations import RevocationSet, Verifier
from runtime.security.conftest import NOW


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "ca", "market", NOW)


def test_keys_are_for_their_owner_only(authority):
    authority.issue("n1", Role.NODE, NOW)
    keys = list(authority.folder.glob("*.key"))
    assert len(keys) == 2
    assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)
    assert {path.name for path in authority.folder.iterdir()} == {
        *("ca.pem", "ca.key", "n1.pem", "n1.key", "issued.jsonl")
    }


def test_nothing_is_overwritten_unless_asked(authority):
    first = authority.issue("n1", Role.NODE, NOW)
    before = first.key.read_bytes(), (authority.folder / "ca.key").read_bytes()
    with pytest.raises(SecurityError, match="already"):
        authority.issue("n1", Role.CLIENT, NOW)
    with pytest.raises(SecurityError, match="already"):
        Authority.create(authority.folder, "market", NOW)
    assert before == (first.key.read_bytes(), (authority.folder / "ca.key").read_bytes())
    second = authority.issue("n1", Role.NODE, NOW, force=True)
    assert second.identity.serial != first.identity.serial and second.key.read_bytes() != before[0]
    Authority.create(authority.folder, "market", NOW, force=True)
    assert not (authority.folder / "issued.jsonl").exists()


def test_a_certificate_says_what_was_asked_for(authority):
    issued = authority.issue("n1", Role.NODE, NOW, hosts=("Node.Example", "[fe80::1]"), days=2)
    facts = facts_of(read_certificate(issued.certificate), issued.certificate)
    assert facts.identity is not None and set(facts.identity.hosts) == {"node.example", "fe80::1"}
    assert facts.network == "market" and not facts.is_authority
    assert (facts.valid_until - NOW).days in (1, 2)
    own = facts_of(read_certificate(authority.certificate), authority.certificate)
    assert own.is_authority and own.identity is None


def test_names_and_hosts_are_checked(authority):
    for name in ("", "ca", "../n1", "a b", ".hidden", "x" * 65, "a:b"):
        with pytest.raises(SecurityError, match="name"):
            authority.issue(name, Role.NODE, NOW)
    for host in ("", "a:80", "*.example", "http://a", "é"):
        with pytest.raises(SecurityError, match="is no host"):
            authority.issue("n1", Role.NODE, NOW, hosts=(host,))
    with pytest.raises(SecurityError, match="only a node has hosts"):
        authority.issue("c1", Role.CLIENT, NOW, hosts=("a",))
    with pytest.raises(SecurityError, match="at least one day"):
        authority.issue("c1", Role.CLIENT, NOW, days=0)
    with pytest.raises(SecurityError, match="name of a network"):
        Authority.create(authority.folder / "x", "", NOW)


def test_a_folder_without_an_authority(tmp_path, authority):
    with pytest.raises(SecurityError, match="certs init"):
        Authority(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SecurityError, match="cannot be written"):
        Authority.create(tmp_path / "file" / "ca", "market", NOW)
    issued = authority.issue("n1", Role.NODE, NOW)
    (authority.folder / "ca.key").write_bytes(issued.key.read_bytes())
    with pytest.raises(SecurityError, match="not the key"):
        Authority(authority.folder)


def test_revoking_by_name_takes_back_all_that_the_name_has(authority):
    issued = [authority.issue("c1", Role.CLIENT, NOW, force=True) for _ in range(3)]
    authority.issue("c2", Role.CLIENT, NOW)
    serials = {one.identity.serial for one in issued}
    revoked = authority.revoke(1_000, name="c1")
    assert {revocation.serial for revocation in revoked} == serials
    verifier = Verifier(authority.certificate)
    assert all(verifier.believes(revocation) for revocation in revoked)
    kept = RevocationSet(verifier, authority.folder / "revocations.jsonl")
    assert {revocation.serial for revocation in kept} == serials and kept.refused == 0
    assert authority.revoke(2_000, name="c1") == revoked  # Again, as it was.
    with pytest.raises(SecurityError, match="known: c1, c2"):
        authority.revoke(1, name="c3")


def test_revoking_by_serial_number(authority):
    serial = authority.issue("c1", Role.CLIENT, NOW).identity.serial
    (known,) = authority.revoke(1_000, serial=serial)
    (unknown,) = authority.revoke(1_000, serial=77)
    assert (known.name, unknown.name, unknown.serial) == ("c1", "", 77)
    (authority.folder / "issued.jsonl").write_text("damaged")
    with pytest.raises(SecurityError, match="--serial"):
        authority.revoke(1_000, name="c1")
