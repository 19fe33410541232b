"""How the command ends: exit codes, one-line errors, quiet broken pipes, help at once."""

import os
import re
import subprocess
import sys

import pytest

from peersub import __version__
from peersub.cli import entry, main
from peersub.cli.network_commands import OVERLAY_HELP
from peersub.overlays.registry import OVERLAYS


def peersub(*arguments, **options):
    command = [sys.executable, "-W", "error", "-m", "peersub.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def test_version_and_help(run):
    assert run("--version").out == f"peersub {__version__}\n"
    for arguments in ((), ("--help",), ("-h",)):
        done = run(*arguments)
        assert done.code == 0 and "match" in done.out and "Exit codes" in done.out


@pytest.mark.parametrize(
    "arguments",
    [("demo",), ("match",), ("filter", "check"), ("filter", "explain"), ("filter", "covers"),
     ("bench", "matching"), ("node",), ("pub",), ("sub",), ("status",)],
)  # fmt: skip
def test_every_command_has_help(run, arguments):
    done = run(*arguments, "--help")
    assert done.code == 0 and "Usage: peersub " + " ".join(arguments) in done.out


def test_help_needs_nothing_heavy():
    source = (
        "import sys; from peersub.cli import main; main(['--help']); main(['match', '--help']);"
        "heavy = {'rich', 'numpy', 'pyarrow', 'numba', 'sqlglot', 'lxml', 're2', 'msgspec'};"
        "found = heavy & {name.partition('.')[0] for name in sys.modules}; assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope",), "No such command 'nope'"),
        (("match",), "Missing option '--subscriptions'"),
        (("match", "--bogus"), "No such option: --bogus"),
        (("match", "--subscriptions", "a", "--events", "b", "--threads", "0"), "--threads"),
        (("match", "--subscriptions", "a", "--events", "b", "--threads", "x"), "--threads"),
        (("match", "--subscriptions", "-", "--events", "-"), "Name a file"),
        (("match", "--subscriptions", "a", "--events", "b", "--events-format", "x"), "jsonl, json"),
        (("match", "--subscriptions", "a", "--events", "b", "--schema", "x"), "name:kind"),
        (("match", "--subscriptions", "a", "--events", "b", "--quarantine", "q"), "--skip-bad"),
        (("filter", "check"), "give either a FILTER or --file"),
        (("filter", "check", "a", "--file", "b"), "give either a FILTER or --file"),
        (("filter", "explain", "a", "--event", "{"), "--event is not JSON"),
        (("filter", "explain", "a", "--event", "[" * 99_999), "--event is not JSON"),
        (("filter", "explain", "a", "--event", "5"), "not an object"),
        (("filter", "covers", "a"), "SPECIFIC"),
        (("filter", "covers", "a", "b >"), "SPECIFIC: "),
        (("demo", "--events", "0"), "--events"),
        (("bench", "matching", "--sizes", "many"), "--sizes"),
        (("bench", "matching", "--skews", "sideways"), "skew"),
        (("bench", "matching", "--engines", "steam"), "no engine 'steam'"),
        (("bench", "matching", "--operators", "x=1"), "--operators"),
        (("bench", "matching", "--attributes-per-event", "3"), "least and the greatest"),
        (("bench", "matching", "--opaque", "7"), "opaque_share"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, arguments, message):
    done = run(*arguments)
    assert done.code == 2 and done.out == ""
    assert done.err.count("\n") == 1 and done.err.startswith("peersub: error: ")
    assert message in done.err


def test_a_group_without_a_command_shows_its_help(run):
    done = run("filter")
    assert done.code == 2 and "check" in done.err


@pytest.fixture
def failing(monkeypatch):
    def fail_with(error):
        def app(**_):
            raise error

        monkeypatch.setattr(entry, "_command", lambda: app)

    return fail_with


def test_what_was_not_foreseen_is_one_line_too(run, failing, monkeypatch):
    monkeypatch.delenv("PEERSUB_DEBUG", raising=False)
    failing(RuntimeError("first\nsecond"))
    done = run("match")
    assert done.code == 1 and done.err.count("\n") == 1
    assert "first second" in done.err and "--debug" in done.err
    with pytest.raises(RuntimeError):
        main(["match", "--debug"])
    monkeypatch.setenv("PEERSUB_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["match"])


def test_other_ends(run, failing):
    failing(KeyboardInterrupt())
    assert run("match").code == 130
    failing(MemoryError())
    assert run("match").code == 1
    failing(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow"))
    done = run("match")
    assert done.code == 1 and "pip install 'peersub[matching]'" in done.err


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    (tmp_path / "e.jsonl").write_text("".join(f'{{"id": {i}}}\n' for i in range(1_500)))
    subscriptions = "".join(f'{{"id": "s{i}", "filter": "TRUE"}}\n' for i in range(200))
    (tmp_path / "s.jsonl").write_text(subscriptions)
    command = [sys.executable, "-m", "peersub.cli", "match", "--subscriptions",
               str(tmp_path / "s.jsonl"), "--events", str(tmp_path / "e.jsonl"), "-q"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b'{"event_id": ')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_real_process_ends_with_the_same_codes(tmp_path):
    done = peersub("filter", "check", "a >")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert peersub("filter", "covers", "a > 1", "a > 2").returncode == 0
    ascii_only = dict(os.environ) | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = peersub("filter", "check", "é = '😀'", env=ascii_only)
    assert done.returncode == 0 and "\\U0001f600" in done.stdout


def test_help_names_all_overlays() -> None:
    named = re.findall(r"[a-z]+", OVERLAY_HELP.replace("(default)", ""))
    assert sorted(named) == sorted(OVERLAYS)
