"""The progress bar: on a terminal only, late, and gone at the end."""

import io
import subprocess
import sys

from peersub.cli import progress as progress_module
from peersub.cli.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_it_shows_on_a_terminal_once_the_work_takes_long(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("Events") as progress:
        progress.update(1, 10, "1 event")
    assert terminal.getvalue() == ""
    monkeypatch.setattr(progress_module, "SHOWN_AFTER_S", 0)
    monkeypatch.setattr(progress_module, "UPDATES_PER_S", float("inf"))
    with progress_bar("Events") as progress:
        progress.update(1, 10, "1 event")
        progress.update(5, 0, "5 events")
    assert "Events" in terminal.getvalue()


def test_it_is_silent_elsewhere(monkeypatch, capsys):
    monkeypatch.setattr(progress_module, "SHOWN_AFTER_S", 0)
    with progress_bar("Events") as progress:
        progress.update(1, 10)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar("Events", quiet=True) as progress:
        progress.update(1, 10)
    assert sys.stderr.getvalue() == ""
    assert capsys.readouterr().err == ""


def test_nobody_who_does_not_look_pays_for_it():
    source = (
        "import sys\nfrom peersub.cli.progress import progress_bar\n"
        "with progress_bar('x') as p: p.update(1, 2)\nassert 'rich' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", source], stderr=subprocess.PIPE).returncode == 0
