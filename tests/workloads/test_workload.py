"""The generator: deterministic, on target, and its texts mean what its columns say."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from peersub.workloads import (
    Operator,
    OperatorMix,
    Workload,
    WorkloadSettings,
    expected_share,
    filter_text_chunks,
    generate,
    subscription_ids,
)

SMALL = WorkloadSettings(
    subscriptions=300,
    events=150,
    share_matched=0.02,
    numeric_attributes=6,
    float_attributes=2,
    numeric_values=1_000,
    categorical_cardinalities=(1, 3, 40, 150),
    attributes_per_event_min=4,
    attributes_per_event_max=9,
    duplicates_share=0.2,
    opaque_share=0.3,
)

FINGERPRINT = """
import hashlib
from peersub.workloads import WorkloadSettings, generate
workload = generate(WorkloadSettings(subscriptions=2_000, events=500, skew="zipf",
                                     opaque_share=0.1, duplicates_share=0.1, seed=5))
digest = hashlib.sha256()
for name, column in zip(workload.events.column_names, workload.events.columns):
    digest.update(repr((name, column.to_pylist())).encode())
digest.update(repr(workload.texts().to_pylist()).encode())
print(digest.hexdigest())
"""


def columnar_matches(workload: Workload) -> set[tuple[int, int]]:
    """Brute force over codes, one predicate at a time, in plain Python."""
    table = workload.subscriptions
    matches = set()
    for event, row in enumerate(workload.event_codes.tolist()):
        for subscription in range(table.count):
            holds = True
            for p in range(table.offsets[subscription], table.offsets[subscription + 1]):
                value, number = row[table.attribute[p]], table.value_list[p]
                if number < 0:
                    holds = table.low[p] <= value <= table.high[p]
                else:
                    span = slice(table.list_offsets[number], table.list_offsets[number + 1])
                    holds = value in table.list_values[span].tolist()
                if not holds:
                    break
            if holds:
                matches.add((event, subscription))
    return matches


def text_matches(workload: Workload) -> set[tuple[int, int]]:
    """DuckDB on the texts: each filter as a boolean column."""
    connection = duckdb.connect()
    connection.register("events", workload.events)
    texts = workload.texts()["filter"].to_pylist()
    matches = set()
    for start in range(0, len(texts), 100):
        columns = ", ".join(f"coalesce({text}, false)" for text in texts[start : start + 100])
        for event, row in enumerate(connection.sql(f"SELECT {columns} FROM events").fetchall()):
            matches |= {(event, start + number) for number, holds in enumerate(row) if holds}
    return matches


@pytest.mark.parametrize("skew", ["uniform", "zipf"])
def test_texts_and_columns_select_the_same_events(skew: str) -> None:
    workload = generate(replace(SMALL, skew=skew))
    expected = columnar_matches(workload)
    assert len(expected) > 100
    assert text_matches(workload) == expected


def test_every_operator_occurs_in_the_texts() -> None:
    texts = " AND ".join(generate(SMALL).texts()["filter"].to_pylist())
    for word in (" = ", " < ", " <= ", " > ", " >= ", " BETWEEN ", " IN (", " LIKE '%"):
        assert word in texts


def test_the_documented_shape_of_a_text() -> None:
    workload = generate(replace(SMALL, float_attributes=0, opaque_share=0.0))
    table, name = workload.subscriptions, workload.attributes.names
    for subscription, text in enumerate(workload.texts()["filter"].to_pylist()[:50]):
        first = int(table.offsets[subscription])
        attribute = name[table.attribute[first]]
        low, high = int(table.low[first]), int(table.high[first])
        match Operator(table.operator[first]):
            case Operator.BETWEEN:
                expected = f"{attribute} BETWEEN {low} AND {high}"
            case Operator.GREATER:
                expected = f"{attribute} > {low - 1}"
            case Operator.LESS:
                expected = f"{attribute} < {high + 1}"
            case Operator.EQUAL if attribute.startswith("c"):
                expected = f"{attribute} = '{attribute}_{low}'"
            case _:
                expected = f"{attribute} "
        assert text.startswith(expected)


@pytest.mark.parametrize("skew", ["uniform", "zipf"])
@pytest.mark.parametrize("share", [0.01, 0.001, 0.0001])
def test_the_mean_share_is_met(skew: str, share: float) -> None:
    workload = generate(
        WorkloadSettings(subscriptions=20_000, events=2_000, share_matched=share, skew=skew)
    )
    reached = expected_share(workload.subscriptions, workload.event_codes >= 0)
    assert reached == pytest.approx(share, rel=0.12)


def test_the_expected_share_is_the_counted_share() -> None:
    workload = generate(replace(SMALL, events=600))
    counted = len(columnar_matches(workload)) / (600 * SMALL.subscriptions)
    expected = expected_share(workload.subscriptions, workload.event_codes >= 0)
    assert counted == pytest.approx(expected, rel=0.1)


def test_one_seed_gives_the_same_bytes_in_two_processes() -> None:
    prints = set()
    for hash_seed in ("1", "2"):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        run = subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        prints.add(run.stdout)
    assert len(prints) == 1
    assert len(prints.pop().strip()) == len(hashlib.sha256().hexdigest())


def test_another_seed_gives_another_workload() -> None:
    one, other = generate(SMALL), generate(replace(SMALL, seed=SMALL.seed + 1))
    assert one.texts()["filter"] != other.texts()["filter"]
    assert one.events != other.events


def test_more_subscriptions_leave_the_events_alone() -> None:
    assert generate(SMALL).events == generate(replace(SMALL, subscriptions=10)).events


def test_duplicates_are_equal_filters() -> None:
    texts = generate(replace(SMALL, duplicates_share=0.5)).texts()["filter"].to_pylist()
    assert len(set(texts)) <= SMALL.subscriptions / 2
    distinct = generate(replace(SMALL, duplicates_share=0.0)).texts()["filter"].to_pylist()
    assert len(set(distinct)) > SMALL.subscriptions * 0.9


def test_opaque_share_is_the_share_of_filters_with_like() -> None:
    workload = generate(replace(SMALL, subscriptions=3_000, opaque_share=0.3))
    texts = workload.texts()["filter"].to_pylist()
    assert sum(" LIKE " in text for text in texts) / 3_000 == pytest.approx(0.3, abs=0.05)
    assert all(text.count(" LIKE ") <= 1 for text in texts)


def test_no_attribute_twice_in_a_filter_and_bounds_in_order() -> None:
    table = generate(SMALL).subscriptions
    for start, stop in zip(table.offsets[:-1], table.offsets[1:], strict=True):
        attributes = table.attribute[start:stop].tolist()
        assert 2 <= len(attributes) <= 5
        assert len(set(attributes)) == len(attributes)
    assert (table.low <= table.high).all()
    for start, stop in zip(table.list_offsets[:-1], table.list_offsets[1:], strict=True):
        assert (np.diff(table.list_values[start:stop]) > 0).all()


def test_chunks_join_to_the_whole() -> None:
    workload = generate(SMALL)
    chunks = list(filter_text_chunks(workload.attributes, workload.subscriptions, rows=70))
    assert [len(chunk) for chunk in chunks] == [70, 70, 70, 70, 20]
    assert pa.chunked_array(chunks).to_pylist() == workload.texts()["filter"].to_pylist()
    assert subscription_ids(2, 4).to_pylist() == ["s2", "s3"]


def test_events_carry_the_asked_number_of_attributes_of_the_asked_kinds() -> None:
    workload = generate(SMALL)
    carried = [sum(v is not None for v in row.values()) for row in workload.events.to_pylist()]
    assert min(carried) == 4
    assert max(carried) == 9
    kinds = [str(field.type) for field in workload.events.schema]
    assert kinds == ["int64"] * 4 + ["double"] * 2 + ["string"] * 4


@pytest.mark.parametrize("changes", [{"subscriptions": 0}, {"events": 0}, {"subscriptions": 1}])
def test_empty_and_tiny_workloads(changes: dict[str, int]) -> None:
    settings = replace(SMALL, **changes)
    workload = generate(settings)
    assert workload.events.num_rows == settings.events
    assert workload.texts().num_rows == settings.subscriptions


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"share_matched": 0.0}, "share_matched"),
        ({"skew": "normal"}, "skew"),
        ({"attributes_per_event_max": 11}, "attributes_per_event"),
        ({"predicates_per_subscription_min": 6}, "predicates_per_subscription"),
        ({"duplicates_share": 1.0}, "duplicates_share"),
        ({"float_attributes": 7}, "float_attributes"),
        ({"categorical_cardinalities": ()}, "attributes_per_event|opaque_share"),
    ],
)
def test_impossible_settings_are_refused_by_name(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(SMALL, **changes)


def test_an_operator_mix_needs_weights() -> None:
    with pytest.raises(ValueError, match="categorical"):
        OperatorMix(categorical_equal=0, categorical_in=0)
    with pytest.raises(ValueError, match="numeric_less"):
        OperatorMix(numeric_less=-1)
