"""What a node says in its log: one line each, and not too often."""

import logging
import subprocess
import sys

import pytest

from peersub.runtime.counters import Counters
from peersub.runtime.figures import WINDOW_MS, Rate, resident_bytes
from peersub.runtime.logs import PERIOD_S, SAID_MAX, NodeLog


class Hand:
    """A clock that is moved by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_said_again_and_again_is_left_out_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "peersub")
    clock = Hand()
    log = NodeLog("peersub.test", clock)
    for number in range(SAID_MAX + 5):
        log.info("%s came", number)
        log.warning("another thing")
    assert len(caplog.messages) == 2 * SAID_MAX
    clock.now_s = PERIOD_S
    log.info("%s came", "late")
    assert caplog.messages[-1] == "late came (5 more like this were left out)"
    log.info("%s came", "later")
    assert caplog.messages[-1] == "later came"


def test_a_program_without_logging_hears_nothing() -> None:
    script = "from peersub.runtime.logs import NodeLog; NodeLog('peersub.test').warning('lost')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_a_name_that_others_chose_stays_within_its_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "peersub")
    NodeLog("peersub.test").info("hello %s", "a\nERROR forged\x1b[2J")
    (message,) = caplog.messages
    assert message == "hello a\\nERROR forged\\x1b[2J"


def test_what_is_counted_is_logged_and_the_grave_as_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "peersub")
    counters = Counters()
    counters.add("the disk refused: 100% full")
    counters.add("a link in doubt")
    levels = {record.getMessage(): record.levelno for record in caplog.records}
    assert levels == {
        "counted: the disk refused: 100% full": logging.WARNING,
        "counted: a link in doubt": logging.INFO,
    }


def test_a_rate_forgets_what_is_long_ago() -> None:
    rate = Rate(0)
    rate.add(600, 0)
    assert rate.per_second(WINDOW_MS) == 10
    rate.add(60, 10 * WINDOW_MS)
    assert (rate.total, rate.per_second(10 * WINDOW_MS + 1_000)) == (660, 1)


def test_a_process_takes_memory() -> None:
    taken = resident_bytes()
    assert taken is None or taken > 1_000_000
