"""Writes the lock files: exact versions with hashes, and no index address.

    requirements/locker.txt   the resolver itself
    requirements/lock.txt     all that the project needs but Spark
    requirements/spark.txt    what Spark adds to it

The lock files are universal: environment markers choose between versions where Python
versions need different ones, and hashes of every platform's files are listed. Versions that
are locked stay as they are unless --upgrade is given. Options are passed on to the resolver.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
RESOLVE = ["pip", "compile", "--universal", "--python-version=3.11", "--generate-hashes"]
RESOLVE += ["--no-header", "--no-annotate", "--quiet", "--no-config"]
ENTRY_START = re.compile(r"(?m)^(?=[a-z0-9])")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        resolver = install_resolver(Path(folder))
        lock(resolver, "locker.txt", "-", requirement="uv")
        lock(resolver, "lock.txt", "pyproject.toml", "--group=dev", "--extra=bench", "--extra=tls")
        constraint = "--constraints=requirements/lock.txt"
        lock(resolver, "spark.txt", "pyproject.toml", "--extra=spark", constraint)
    already_locked = set(entries("lock.txt"))
    added = [entry for entry in entries("spark.txt") if entry not in already_locked]
    (REQUIREMENTS / "spark.txt").write_text("".join(added))


def install_resolver(folder: Path) -> Path:
    """The resolver that requirements/locker.txt names, in an environment of its own."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes"]
    requirements = ["-r", REQUIREMENTS / "locker.txt"]
    pip = [folder / "bin" / "python", "-m", "pip", "install"]
    subprocess.run([*pip, *options, *requirements], check=True)
    return folder / "bin" / "uv"


def lock(resolver: Path, output: str, *arguments: str, requirement: str | None = None) -> None:
    """Resolve into requirements/<output>, keeping the versions that are there already."""
    command = [resolver, *RESOLVE, *arguments, f"--output-file=requirements/{output}"]
    environment = dict(os.environ)
    if "PIP_CERT" in environment:
        environment.setdefault("SSL_CERT_FILE", environment["PIP_CERT"])
    options = sys.argv[1:]
    standard_input = requirement.encode() if requirement else None
    subprocess.run(
        [*command, *options],
        check=True,
        cwd=ROOT,
        env=environment,
        input=standard_input,
        stdout=subprocess.DEVNULL,
    )


def entries(name: str) -> list[str]:
    """Each pinned requirement of a lock file with its hashes, as it is written there."""
    text = (REQUIREMENTS / name).read_text()
    return [entry for entry in ENTRY_START.split(text) if entry.strip()]


if __name__ == "__main__":
    main()
