"""Permissions: what a file grants, in clear words; narrowing; the rate limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peersub.filters import Filter
from peersub.overlays.core.publication import Publication
from peersub.runtime.security.permissions import NotPermitted, Permissions, PermissionsError
from peersub.runtime.security.rate_limit import RateLimit

FILE = """
[default]
publish = false
subscribe = "public = TRUE"
filter_bytes_max = 500

[clients.dashboard]
subscribe = true
subscriptions_max = 3

[clients.feed]
publish = "source = 'feed' AND price > 0"
subscribe = false
events_per_second = 2.5
frame_bytes_max = 65536

[clients.news]
publish = { xpath = "/nitf" }
subscribe = { xpath = "/nitf[@lang = 'en']" }
"""


@pytest.fixture(scope="module")
def permissions():
    return Permissions.parse(FILE)


def event(**attributes: object) -> Publication:
    return Publication("e", attributes)


def test_a_subscription_is_narrowed_to_what_its_owner_may_see(permissions):
    narrowed = permissions.of("anybody").narrow(Filter("price > 10"))
    assert narrowed == Filter("price > 10 AND public = TRUE")
    wanted = Filter("price > 10")
    assert permissions.of("dashboard").narrow(wanted) is wanted
    english = permissions.of("news").narrow(Filter.xpath("/nitf/body"))
    assert english == Filter.xpath("/nitf[@lang = 'en']/body")


def test_two_clients_see_only_what_they_may():
    granted = Permissions.parse(
        "[clients.a]\nsubscribe = \"side = 'a'\"\n[clients.b]\nsubscribe = \"side = 'b'\""
    )
    events = [event(side=side, price=price) for side in "abc" for price in (1, 20)]
    for name in "ab":
        seen = granted.of(name).narrow(Filter("price > 10 OR price IS NULL"))
        assert [e.attributes["side"] for e in events if e.matches(seen)] == [name]


def test_what_may_not_be_seen_is_refused_in_clear_words(permissions):
    with pytest.raises(NotPermitted, match="client feed may not subscribe"):
        permissions.of("feed").narrow(Filter("TRUE"))
    with pytest.raises(NotPermitted, match="may only see public = TRUE, and nothing of that"):
        permissions.of("x").narrow(Filter("public = FALSE"))
    with pytest.raises(NotPermitted, match="cannot be narrowed to that: a SQL filter and an XPath"):
        permissions.of("x").narrow(Filter.xpath("/nitf"))
    with pytest.raises(NotPermitted, match="bytes, and client x may use 500"):
        permissions.of("x").narrow(Filter(" OR ".join(f"a{n} = {n}" for n in range(99))))
    assert permissions.of("x").narrow(Filter("FALSE")).is_nothing


def test_a_publication_outside_of_its_bound_is_refused(permissions):
    feed = permissions.of("feed")
    assert feed.check(event(source="feed", price=1)) is None
    for outside in (event(source="feed", price=0), event(source="x", price=1), event()):
        assert feed.check(outside) == (
            "client feed may only publish events with source = 'feed' AND price > 0"
        )
    assert permissions.of("x").check(event()) == "client x may not publish"
    news = permissions.of("news")
    assert news.check(Publication("e", {}, b"<nitf/>")) is None
    assert news.check(Publication("e", {}, b"<html/>")) is not None
    assert news.check(Publication("e", {}, b"<nitf")) is not None


def test_attributes_that_cannot_be_read_are_not_published(permissions):
    def unpack(_: bytes) -> dict[str, object]:
        raise ValueError("damaged")

    damaged = Publication("e", packed=b"?", unpack=unpack)
    assert "cannot be read" in permissions.of("feed").check(damaged)


def test_keys_that_a_client_leaves_out_are_the_defaults(permissions):
    assert permissions.of("dashboard").limits.filter_bytes_max == 500
    assert permissions.of("dashboard").limits.subscriptions_max == 3
    assert permissions.of("dashboard").publish is False
    assert permissions.of("feed").limits.frame_bytes_max == 65_536
    assert permissions.of("x").name == "x" and permissions.of("x").limits.rate_limit() is None
    assert permissions.of("feed").limits.rate_limit() is not None


def test_what_a_file_does_not_grant_is_not_permitted():
    nothing = Permissions.parse("").of("x")
    assert (nothing.publish, nothing.subscribe) == (False, False)
    only = Permissions.parse("[clients.a]\npublish = true")
    assert only.of("a").publish is True and only.of("a").subscribe is False
    assert only.of("b").publish is False


def test_without_a_file_everything_is_permitted():
    anybody = Permissions.unbounded().of("x")
    wanted = Filter("a = 1")
    assert anybody.narrow(wanted) is wanted and anybody.check(event()) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[default", "this is no TOML"),
        ("[other]", "other: not known"),
        ("default = 1", "default: must be a table"),
        ("clients = 1", "clients: must be a table"),
        ("[clients]\na = 1", "clients.a: must be a table"),
        ("[clients.a]\nread = true", "clients.a.read: not known; known are publish, subscribe"),
        ("[default]\npublish = 1", "default.publish: must be true, false, a filter"),
        ("[default]\npublish = { sql = 'a' }", "default.publish: must be true"),
        ("[default]\nsubscribe = { xpath = 'a' }", "default.subscribe: a pattern starts"),
        ("[default]\nsubscriptions_max = -1", "subscriptions_max: must be a whole number"),
        ("[default]\nsubscriptions_max = true", "subscriptions_max: must be a whole number"),
        ("[default]\nfilter_bytes_max = 1.5", "filter_bytes_max: must be a whole number"),
        ("[default]\nevents_per_second = 0", "events_per_second: must be a number greater"),
        ("[default]\nevents_per_second = nan", "events_per_second: must be a number greater"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(text, problem, tmp_path):
    path = tmp_path / "permissions.toml"
    path.write_text(text)
    with pytest.raises(PermissionsError) as refused:
        Permissions.load(path)
    assert str(refused.value).startswith(f"{path}: ") and problem in str(refused.value)


def test_a_wrong_filter_has_its_caret(tmp_path):
    path = tmp_path / "permissions.toml"
    path.write_text('[clients.a]\nsubscribe = "price > AND x"')
    with pytest.raises(PermissionsError) as refused:
        Permissions.load(path)
    first, text, caret, *_ = str(refused.value).splitlines()
    assert "clients.a.subscribe" in first and text == "  price > AND x"
    assert caret.index("^") == text.index("AND")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(PermissionsError, match="cannot be read"):
        Permissions.load(tmp_path / "no.toml")
    (tmp_path / "p.toml").write_bytes(b"\xff")
    with pytest.raises(PermissionsError, match="not UTF-8"):
        Permissions.load(tmp_path / "p.toml")
    (tmp_path / "p.toml").write_text(FILE)
    assert Permissions.load(tmp_path / "p.toml").of("feed").subscribe is False


# --- the rate limit ----------------------------------------------------------------------------


@given(
    st.floats(0.1, 1_000),
    st.floats(1, 50),
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 5)), max_size=60),
)
def test_no_more_than_the_rate_is_permitted_in_any_time(per_second, burst, asked):
    limit = RateLimit(per_second, burst)
    now_ms, taken = 0, []
    for pause_ms, count in asked:
        now_ms += pause_ms
        if limit.wait_ms(now_ms, count) == 0:
            taken.append((now_ms, count))
    for place, (start_ms, _) in enumerate(taken):
        total = 0
        for at_ms, count in taken[place:]:
            total += count
            room = max(burst, 5) + (at_ms - start_ms) * per_second / 1_000
            assert total <= room + 1e-6


@given(st.floats(0.1, 1_000), st.integers(0, 10), st.integers(1, 20))
def test_whoever_waits_as_told_is_permitted_and_not_much_sooner(per_second, earlier, count):
    limits = [RateLimit(per_second) for _ in range(2)]
    for limit in limits:
        for _ in range(earlier):
            limit.wait_ms(0)
    wait_ms = limits[0].wait_ms(0, count)
    if wait_ms:
        assert limits[0].wait_ms(wait_ms, count) == 0
    if wait_ms > 2:
        assert limits[1].wait_ms(wait_ms - 2, count) > 0


def test_a_clock_that_goes_back_permits_nothing_more():
    limit = RateLimit(1, 2)
    assert [limit.wait_ms(5_000), limit.wait_ms(5_000)] == [0, 0]
    assert limit.wait_ms(1_000) > 0 and limit.wait_ms(5_500) > 0
    assert limit.wait_ms(6_000) == 0


def test_a_batch_larger_than_the_burst_goes_through_and_is_paid_for():
    limit = RateLimit(10, 10)
    assert limit.wait_ms(0, 30) == 0
    assert limit.wait_ms(2_000) == 100
    assert limit.wait_ms(2_100) == 0
