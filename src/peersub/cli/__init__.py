"""The one command, `peersub`.

Data goes to standard output, everything else to standard error. What fails says so in one line that
tells what to do; a traceback is shown only on request (`--debug`). `--help` answers at once: what a
command needs is imported when it runs.
"""

from peersub.cli.entry import main

__all__ = ["main"]
