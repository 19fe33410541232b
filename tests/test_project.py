"""The lock files: complete, hashed, and silent about where packages come from."""

import os
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import peersub

ROOT = Path(__file__).parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")

every_lock = pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)


def entries(path: Path) -> dict[str, list[str]]:
    """Each logical line of a lock file, as its requirement and its hashes."""
    lines = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    split = [line.split(" --hash=") for line in lines if line.strip()]
    return {requirement.strip(): hashes for requirement, *hashes in split}


def pinned(name: str) -> list[Requirement]:
    return [Requirement(text) for text in entries(ROOT / "requirements" / name)]


def test_there_are_lock_files():
    assert {path.name for path in LOCKS} == {"lock.txt", "locker.txt", "spark.txt"}


@every_lock
def test_every_requirement_is_one_version_with_hashes(path):
    for text, hashes in entries(path).items():
        specifiers = list(Requirement(text).specifier)
        assert [specifier.operator for specifier in specifiers] == ["=="], text
        assert hashes, text
        assert all(HASH.fullmatch(f"--hash={value.strip()}") for value in hashes), text


@every_lock
def test_no_address(path):
    text = path.read_text(encoding="utf-8")
    assert "//" not in text
    assert not re.search(r"(?m)^\s*-(?!-hash=)", text), "an option of pip"


def test_spark_only_adds():
    both = {entry.name for entry in pinned("lock.txt")} & {e.name for e in pinned("spark.txt")}
    assert both == set()


def missing(requirements: list[str], locks: list[str]) -> list[str]:
    """Requirements for which the lock files hold no suitable version."""
    found: dict[str, list[Requirement]] = {}
    for lock in locks:
        for entry in pinned(lock):
            found.setdefault(canonicalize_name(entry.name), []).append(entry)
    wanted = [Requirement(text) for text in requirements]
    return [
        str(requirement)
        for requirement in wanted
        if canonicalize_name(requirement.name) != "peersub"
        and not any(
            requirement.specifier.contains(next(iter(entry.specifier)).version)
            for entry in found.get(canonicalize_name(requirement.name), [])
        )
    ]


def test_a_requirement_without_a_lock_entry_is_noticed():
    assert missing(["no-such-package"], ["lock.txt"]) == ["no-such-package"]
    assert missing(["rich>=9999"], ["lock.txt"]) == ["rich>=9999"]


def test_what_the_project_asks_for_is_locked():
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    common = project["dependencies"] + PYPROJECT["build-system"]["requires"]
    common += PYPROJECT["dependency-groups"]["dev"] + extras["matching"] + extras["bench"]
    assert missing(common, ["lock.txt"]) == []
    assert missing(extras["spark"], ["lock.txt", "spark.txt"]) == []


def test_the_version_is_the_same_everywhere():
    assert PYPROJECT["project"]["version"] == peersub.__version__


@pytest.mark.parametrize("name", [".ci/run", "scripts/environment"])
def test_scripts_can_be_run(name):
    assert os.access(ROOT / name, os.X_OK)
