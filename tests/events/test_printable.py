"""Text of strangers on a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from peersub.cli.output import note, say
from peersub.events.printable import escape_line, escape_lines


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_left_is_one_printable_line(text):
    assert escape_line(text).isprintable()
    assert escape_lines(text).replace("\n", "").replace("\t", "").isprintable()


def test_notes_and_results_are_escaped(capsys):
    note("a\x1b[31m\nb\u202e\r")
    say("a\x1b[31m\nb\u202e\r")
    shown = capsys.readouterr()
    assert shown.err == "a\\x1b[31m\\nb\\u202e\\r\n"
    assert shown.out == "a\\x1b[31m\nb\\u202e\\r\n"
