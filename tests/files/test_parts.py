"""Parts of files: ranges of bytes that hold each line once, and CSV whose rows are lines."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.files.csv_rows import csv_rows, quotes_balance
from peersub.files.errors import FileError, refuse_row
from peersub.files.json_rows import json_line_rows
from peersub.files.opening import LinesOf, line_blocks


def ranges(size, step):
    return [LinesOf(start, min(start + step, size)) for start in range(0, size, step)]


@given(st.lists(st.binary(max_size=9).map(lambda b: b.replace(b"\n", b"x"))), st.integers(1, 12))
def test_ranges_that_follow_each_other_hold_each_line_once(tmp_path_factory, lines, step):
    file = tmp_path_factory.mktemp("parts") / "f"
    data = b"\n".join(lines)
    file.write_bytes(data)
    found = b"".join(
        block for part in ranges(len(data), step) for _, block in line_blocks(str(file), part=part)
    )
    mark = b"\xef\xbb\xbf"
    assert found == data.removeprefix(mark)


def test_a_part_begins_and_ends_at_lines(tmp_path):
    file = tmp_path / "f.jsonl"
    file.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a": 3}\n')

    def rows(start, end):
        batches = json_line_rows(str(file), refuse_row, part=LinesOf(start, end))
        return [row["a"] for batch in batches for row in batch.rows]

    assert rows(0, 1) == [1]
    assert rows(1, 9) == []  # the second line begins at byte 9
    assert rows(1, 10) == [2]
    assert rows(9, 27) == [2, 3]
    mark = b"\xef\xbb\xbf"
    file.write_bytes(mark + file.read_bytes())
    assert rows(0, 5) == [1]


def test_lines_longer_than_many_ranges_belong_to_the_range_where_they_begin(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"a" * 5_000_000 + b"\nb\n")
    size = file.stat().st_size
    parts = ranges(size, 1_000_000)
    counts = [sum(block.count(b"\n") for _, block in line_blocks(str(file), part=p)) for p in parts]
    assert counts == [1, 0, 0, 0, 0, 1]


CELLS = st.text(st.sampled_from('ab",\n\r é'), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=6))
def test_where_quotes_balance_each_line_is_a_row(rows):
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    text = written.getvalue()
    if quotes_balance(text.encode()):
        apart = [next(csv.reader([line])) for line in text.splitlines(keepends=True)]
        assert apart == list(csv.reader(io.StringIO(text, newline=""), strict=True))
    else:
        # Only line ends within cells unbalance what a program wrote.
        assert any(end in cell for row in rows for cell in row for end in "\r\n")


def test_a_part_of_csv_has_the_header_of_the_file(tmp_path):
    file = tmp_path / "f.csv"
    file.write_text("\ufeffname,n\n" + "".join(f"x{i},{i}\n" for i in range(50)), "utf-8")
    parts = ranges(file.stat().st_size, 30)
    found = [
        row
        for part in parts
        for batch in csv_rows(str(file), {}, refuse_row, lines_are_rows=True, part=part)
        for row in batch.rows
    ]
    assert found == [{"name": f"x{i}", "n": i} for i in range(50)]


def bad_rows(file, **options):
    bad = []
    batches = csv_rows(str(file), {}, bad.append, **options)
    return [row for batch in batches for row in batch.rows], bad


def test_a_wrong_quote_costs_one_row_where_rows_are_lines(tmp_path):
    file = tmp_path / "f.csv"
    file.write_text('a,b\n1,2\n"3"x,"4"\n5,6\n')
    rows, (bad,) = bad_rows(file, lines_are_rows=True)
    assert rows == [{"a": 1, "b": 2}, {"a": 5, "b": 6}]
    assert (bad.place, bad.original) == ("line 3", '"3"x,"4"')
    assert "not CSV" in bad.reason
    before = csv_rows(str(file), {}, refuse_row)
    assert next(before).rows == [{"a": 1, "b": 2}]
    with pytest.raises(FileError, match="line 3: not CSV"):
        next(before)


def test_blank_lines_count(tmp_path):
    file = tmp_path / "f.csv"
    file.write_text("a,b\n\n\n3\n\n4,5\n\n6\n")
    rows, bad = bad_rows(file)
    assert rows == [{"a": 4, "b": 5}]
    assert [row.place for row in bad] == ["line 4", "line 8"]


def test_a_byte_that_is_not_unicode_costs_one_row(tmp_path):
    file = tmp_path / "f.csv"
    file.write_bytes(b"a,b\n1,2\n\xe9t\xe9,3\n4,5\n")
    rows, (bad,) = bad_rows(file)
    assert rows == [{"a": 1, "b": 2}, {"a": 4, "b": 5}]
    assert bad.place == "line 3"
    assert bad.reason == "a: byte 0xe9 is not UTF-8. Save the file as UTF-8."
    assert bad.original == "\ufffdt\ufffd,3"
