"""Flights joined with airports, earthquakes, weather: deliveries equal DuckDB's, row for row.

The data lie beside the project and are not part of it; without them there is nothing to test. Each
set has 5,000 drawn subscriptions. DuckDB evaluates every one of them as a query over the same rows.
"""

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peersub.cli import main
from peersub.events.envelope import row_identifiers
from pipeline.drawn_filters import drawn_filters

DATA = Path(__file__).parents[3] / "shared" / "data" / "events"
SUBSCRIPTIONS = 5_000
QUERIES_AT_ONCE = 250

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not DATA.is_dir(), reason="the data are not beside the project"),
]


def flights(folder):
    """Flights with the airports they start from, as Parquet with an id."""
    connection = duckdb.connect()
    table = connection.sql(
        f"""SELECT 'f' || row_number() OVER () AS id, f.date::VARCHAR AS date,
                   f.delay::BIGINT AS delay, f.distance::BIGINT AS distance, f.origin,
                   f.destination, a.city, a.state, a.latitude, a.longitude
            FROM read_json_auto('{DATA}/flights-20k.json') f
            LEFT JOIN read_csv_auto('{DATA}/airports.csv') a ON f.origin = a.iata"""
    ).to_arrow_table()
    pq.write_table(table, folder / "flights.parquet", row_group_size=4_096)
    return folder / "flights.parquet", (), table, list(table.column_names[1:])


def earthquakes(_folder):
    """A GeoJSON document with nested records, as it is."""
    features = json.loads((DATA / "earthquakes.json").read_text("utf-8"))["features"]
    rows = [
        {"id": one["id"], "properties": {k: one["properties"].get(k) for k in _QUAKE_NAMES}}
        for one in features
    ]
    names = [f"properties.{name}" for name in _QUAKE_NAMES]
    return DATA / "earthquakes.json", ("--records", "features"), pa.Table.from_pylist(rows), names


_QUAKE_NAMES = ("mag", "place", "time", "tsunami", "sig", "net", "magType", "rms", "gap", "felt")


def weather(_folder):
    """A CSV file without ids: rows are named by their content."""
    table = duckdb.read_csv(str(DATA / "weather.csv"), dtype={"date": "VARCHAR"}).to_arrow_table()
    # A whole number in a CSV cell is written 0.0 here: the same number for both.
    names = list(row_identifiers(table.to_pylist()))
    return DATA / "weather.csv", (), table.add_column(0, "id", pa.array(names)), table.column_names


def values_of(table, name):
    outer, _, inner = name.partition(".")
    column = table.column(outer).combine_chunks()
    return (column.field(inner) if inner else column).to_pylist()


def by_duckdb(connection, table, filters):
    """A table `expected` of row id and subscription, each filter a query of its own."""
    connection.register("events", table)
    connection.execute("CREATE TABLE t AS SELECT * FROM events")
    connection.execute("CREATE TABLE expected (event_id VARCHAR, subscription_id VARCHAR)")
    for start in range(0, len(filters), QUERIES_AT_ONCE):
        queries = [
            f"SELECT id, 's{start + place}' FROM t WHERE {text}"
            for place, text in enumerate(filters[start : start + QUERIES_AT_ONCE])
        ]
        connection.execute("INSERT INTO expected " + " UNION ALL ".join(queries))


@pytest.mark.parametrize("prepare", [flights, earthquakes, weather])
def test_deliveries_equal_those_of_duckdb(prepare, tmp_path, spark):
    events, options, table, names = prepare(tmp_path)
    filters = drawn_filters(
        {name: values_of(table, name) for name in names}, SUBSCRIPTIONS, seed=len(names)
    )
    with (tmp_path / "subscriptions.jsonl").open("w") as stream:
        for number, text in enumerate(filters):
            stream.write(json.dumps({"id": f"s{number}", "filter": text}) + "\n")
    out = tmp_path / "out"
    inputs = ("--subscriptions", str(tmp_path / "subscriptions.jsonl"), "--events", str(events))
    code = main(["pipeline", "match", "--quiet", *inputs, *options, "--out", str(out)])
    assert code == 0
    connection = duckdb.connect()
    by_duckdb(connection, table, filters)
    found = f"(SELECT event_id, subscription_id FROM '{out}/deliveries/*.parquet')"
    (count,) = connection.execute("SELECT count(*) FROM expected").fetchone()
    assert count > 10_000
    assert connection.execute(f"SELECT count(*) FROM {found}").fetchone() == (count,)
    for one, other in ((found, "expected"), ("expected", found)):
        difference = f"SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other} LIMIT 5"
        assert connection.execute(difference).fetchall() == []
