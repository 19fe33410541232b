"""The report: what it says, that it is one safe file, and that nothing is said by plots alone."""

import dataclasses
import io
import json
import re

import pytest

pytest.importorskip("pyspark")  # the measures that a report shows are defined beside Spark's steps

from lxml import etree, html
from rich.console import Console

from peersub.pipeline.report import plots
from peersub.pipeline.report.content import Report
from peersub.pipeline.report.page import html_page
from peersub.pipeline.report.sections import sections
from peersub.pipeline.report.terminal import terminal_report
from report_examples import HOSTILE, example_report


def page_of(report):
    return html.document_fromstring(html_page(report))


def terminal_text(report, width=200):
    stream = io.StringIO()
    Console(file=stream, width=width).print(terminal_report(report))
    return stream.getvalue()


def test_the_page_loads_nothing_and_runs_nothing():
    text = html_page(example_report())
    page = html.document_fromstring(text)
    assert not page.xpath("//script | //link | //img | //iframe | //object | //embed | //base")
    assert not page.xpath("//@src | //@href | //@*[starts-with(name(), 'on')]")
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text, re.IGNORECASE)
    [policy] = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert "default-src 'none'" in policy


def test_text_of_the_data_stays_text():
    page = page_of(example_report())
    assert HOSTILE in page.xpath("string(//h1)")
    assert HOSTILE in page.xpath("string(//title)")
    cells = [cell.text_content() for cell in page.xpath("//td | //th")]
    for shown in (f"e3{HOSTILE}", f"events.jsonl{HOSTILE}", f"its filter does not match {HOSTILE}"):
        assert shown in cells
    assert not page.xpath("//script")


def test_the_page_says_what_the_terminal_says():
    report = example_report("")
    page, text = page_of(report), terminal_text(report)
    for section in sections(report):
        [heading] = page.xpath("//h2[text()=$title]", title=section.title)
        assert heading.getparent().tag == "section"
        assert section.title in text
        for table in section.tables:
            rows = page.xpath("//table[caption=$title]/tbody/tr", title=table.title)
            assert len(rows) == len(table.rows)
            for row, found in zip(table.rows, rows, strict=True):
                shown = [cell.xpath("string(text())") for cell in found.xpath("th | td")]
                assert tuple(shown) == row
            for row in table.rows[: table.rows_first]:
                assert all(cell in text for cell in row if len(cell) < 40)


def test_figures_are_there():
    page = page_of(example_report(""))
    cells = {
        row.xpath("string(th/text())"): [cell.text for cell in row.xpath("td")]
        for row in page.xpath("//table[caption='Overlays compared']/tbody/tr")
    }
    assert cells["missed"] == ["0", "118", "7"]
    assert cells["false-negative ratio"] == ["0.00%", "0.13%", "0.01%"]
    assert cells["messages per event"] == ["254.12", "40.20", "14.19"]
    assert cells["copies per receiver"] == ["31.09", "4.92", "1.74"]
    assert "tree: 93,002 delivered of 93,120 expected; 118 missed" in page.text_content()


def test_every_plot_is_told_in_words_and_stands_with_a_table():
    page = page_of(example_report(""))
    drawn = page.xpath("//svg")
    assert len(drawn) == 2 + 5 + 3 + 1
    for svg in drawn:
        assert svg.get("role") == "img"
        assert svg.xpath("string(title)") and svg.xpath("string(desc)")
        assert svg.xpath("ancestor::section//table")
        assert svg.xpath("ancestor::figure/figcaption")
    assert "tree: 40.2" in page.xpath("string(//svg[title='Messages per event']/desc)")


def test_tables_can_be_read_by_ear_and_reached_without_a_mouse():
    page = page_of(example_report())
    assert page.get("lang") == "en"
    for table in page.xpath("//table"):
        assert table.xpath("caption") and table.xpath("thead//th[@scope='col']")
        assert all(row.xpath("th[@scope='row']") for row in table.xpath("tbody/tr"))
        region = table.getparent()
        assert (region.get("role"), region.get("tabindex")) == ("region", "0")
        assert region.get("aria-label")
    assert page.xpath("//meta[@name='viewport']")
    assert "prefers-color-scheme: dark" in page.xpath("string(//style)")
    used = {int(n) for n in re.findall(r"var\(--series-(\d+)\)", html_page(example_report()))}
    defined = {int(n) for n in re.findall(r"--series-(\d+):", page.xpath("string(//style)"))}
    assert used <= defined == set(range(plots.SERIES))


def test_the_report_is_json():
    form = json.loads(json.dumps(example_report().as_json(), allow_nan=False))
    assert form["match"]["share_matched"] == pytest.approx(93_120 / 2e8)
    assert form["overlays"][1]["routing"]["messages_per_event"] == pytest.approx(40.2001)
    assert form["overlays"][2]["hops"]["largest"] == 9


def test_an_empty_report_is_a_page_too():
    page = page_of(Report())
    assert page.xpath("string(//h1)") == "peersub report"
    assert not page.xpath("//section")
    assert "peersub report" in terminal_text(Report())


def test_a_report_of_overlays_without_an_audit_leaves_out_what_is_not_known():
    report = example_report("")
    bare = tuple(dataclasses.replace(each, deliveries=None) for each in report.overlays[:1])
    page = page_of(Report(overlays=bare))
    labels = page.xpath("//table[caption='Overlays compared']//tbody//th/text()")
    assert "missed" not in labels and "relay share" in labels


def test_markup_and_steering_characters_stay_text_in_the_terminal():
    text = terminal_text(example_report("[red]x\x1b[2J"))
    assert "[red]x" in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize(
    "svg",
    [
        plots.bars(HOSTILE, [(HOSTILE, 1.5), ("none", 0.0)], unit=HOSTILE),
        plots.bars("empty", []),
        plots.columns(HOSTILE, [(HOSTILE, 3), ("", 0)], axis=HOSTILE),
        plots.columns("many", [(str(n), n) for n in range(500)]),
        plots.columns("empty", []),
        plots.lorenz_curves(HOSTILE, [(HOSTILE, [(0.5, 0.1), (1.0, 1.0)], 0.4)]),
        plots.lorenz_curves("idle", [("x", [], 0.0)]),
    ],
)
def test_plots_are_well_formed_and_bounded(svg):
    tree = etree.fromstring(svg)
    assert not tree.xpath("//*[local-name()='script']")
    assert len(tree.xpath("//rect")) <= plots.COLUMNS_MAX
    numbers = [float(n) for name in ("x", "y", "width", "height") for n in tree.xpath(f"//@{name}")]
    assert all(0 <= number <= 500 for number in numbers)


def test_a_folded_histogram_loses_nothing():
    tree = etree.fromstring(plots.columns("many", [(str(n), 1) for n in range(500)]))
    shown = [int(title.text.split(": ")[1]) for title in tree.xpath("//rect/title")]
    assert sum(shown) == 500
