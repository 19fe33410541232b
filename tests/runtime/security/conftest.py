"""One authority for all tests, with certificates of every sort."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from peersub.runtime.security.authority import Authority
from peersub.runtime.security.identity import Role
from peersub.runtime.security.settings import TlsSettings

NOW = datetime.now(UTC)
"""TLS itself knows no other time than the present."""


class Network(NamedTuple):
    """An authority, and the files of whom it let in."""

    authority: Authority
    node: TlsSettings
    client: TlsSettings
    expired: TlsSettings


def files_of(authority: Authority, name: str) -> TlsSettings:
    folder = authority.folder
    return TlsSettings(authority.certificate, folder / f"{name}.pem", folder / f"{name}.key")


def make_network(folder: Path) -> Network:
    authority = Authority.create(folder, "test", NOW - timedelta(days=30))
    authority.issue("n1", Role.NODE, NOW)
    authority.issue("c1", Role.CLIENT, NOW)
    authority.issue("old", Role.NODE, NOW - timedelta(days=10), days=5)
    return Network(authority, *(files_of(authority, name) for name in ("n1", "c1", "old")))


@pytest.fixture(scope="session")
def network(tmp_path_factory):
    """Not to be changed: tests that revoke or issue make one of their own."""
    return make_network(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="session")
def other_network(tmp_path_factory):
    return make_network(tmp_path_factory.mktemp("other"))
