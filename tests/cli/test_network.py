"""`peersub node`, `pub`, `sub` and `status`: over real nodes on this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from peersub.client.sync import connect, join
from peersub.filters import Filter


@pytest.fixture(scope="module")
def node():
    with join(network="test") as node:
        yield node


@pytest.fixture
def received(node):
    """The events that come, by a subscription to all of them."""
    with node.subscribe("TRUE") as subscription:
        subscription.ready(timeout=20)
        yield lambda count: [subscription.next(timeout=20) for _ in range(count)]


@pytest.fixture
def nowhere():
    """An address at which nobody listens any more."""
    with join() as node:
        addresses = [node.node]
    return addresses[0]


# --- pub -------------------------------------------------------------------------------------


def test_pub_publishes_its_argument(run, node, received):
    done = run("pub", "--node", node.node, '{"symbol": "ACME", "price": 12.5}')
    assert done == (0, "", "peersub: published 1 event\n")
    (event,) = received(1)
    assert event.attributes == {"symbol": "ACME", "price": 12.5} and len(event.id) == 32


def test_pub_names_the_event(run, node, received):
    done = run("pub", "--node", node.node, "{}", "--id", "mine", "--json")
    assert done.code == 0 and done.err == ""
    assert json.loads(done.out) == {
        "published": 1,
        "already_seen": 0,
        "failed": 0,
        "bad_lines": 0,
        "id": "mine",
    }
    assert received(1)[0].id == "mine"


def test_pub_repeats_an_event_under_other_ids(run, node, received):
    done = run(
        "pub", "--node", node.node, '{"n": "again"}', "--id-attribute", "n", "--count", 3, "-q"
    )
    assert done == (0, "", "")
    assert [event.id for event in received(3)] == ["again", "again#1", "again#2"]


def test_pub_says_what_was_published_before(run, node, received, tmp_path, monkeypatch):
    monkeypatch.setenv("PEERSUB_STATE", str(tmp_path))
    lines = b'{"name": "a", "id": 1}\n{"name": "b", "id": 1}\n'
    named = ("pub", "--node", node.node, "--id-attribute", "name", "--publisher", "feed")
    assert run(*named, stdin=lines).err == "peersub: published 2 events\n"
    again = run(*named, stdin=lines + b'{"name": "c"}\n')
    assert again.err == "peersub: published 3 events, 2 of them already seen\n"
    assert json.loads(run(*named, "--json", stdin=lines).out)["already_seen"] == 2
    # Another publisher's are others.
    assert run(*named[:-1], "other", stdin=lines).err == "peersub: published 2 events\n"
    assert [event.id for event in received(5)] == ["a", "b", "c", "a", "b"]
    assert run(*named[:-1], "", stdin=lines).code == 2


def test_pub_reads_lines_and_names_bad_ones(run, node, received):
    lines = b'{"n": 1}\n\nnonsense\n{"n": 2}\n[3]\n{"n": 4, "id": "four"}'
    done = run("pub", "--node", node.node, "--delivery", "at_least_once", stdin=lines)
    assert done.code == 2 and done.out == ""
    first, second, summary = done.err.splitlines()
    assert "line 3: not JSON" in first and "line 5: an array, not an object" in second
    assert summary == "peersub: published 3 events"
    assert sorted(event.attributes["n"] for event in received(3)) == [1, 2, 4]


def test_pub_stops_after_so_many_lines(run, node, received):
    lines = b"".join(b'{"n": %d}\n' % n for n in range(10))
    done = run("pub", "--node", node.node, "-", "--count", 2, "--json", stdin=lines)
    assert json.loads(done.out)["published"] == 2
    assert [event.attributes["n"] for event in received(2)] == [0, 1]


def test_pub_keeps_to_a_rate(run, node, received):
    lines = b"".join(b'{"n": %d}\n' % n for n in range(50))
    assert run("pub", "--node", node.node, "--rate", 1_000, stdin=lines).code == 0
    assert [event.attributes["n"] for event in received(50)] == list(range(50))


def test_pub_takes_a_body_from_a_file(run, node, received, tmp_path):
    (tmp_path / "news.xml").write_bytes(b"<news/>")
    assert run("pub", "--node", node.node, "{}", "--body", tmp_path / "news.xml").code == 0
    assert received(1)[0].body == b"<news/>"


def test_pub_says_which_events_failed(run):
    with join(overlay="flood") as flood:
        arguments = ("pub", "--node", flood.node, "{}", "--id", "7", "--delivery", "at_least_once")
        done = run(*arguments)
    assert done.code == 1
    assert "the event '7' was not published: " in done.err.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{", ), "the event is not JSON"),
        (("5",), "the event is a number, not an object"),
        (("{}", "--delivery", "twice"), "best_effort or at_least_once"),
        (("{}", "--rate", "0"), "--rate"),
        (("-", "--id", "a"), "--id and --body are for one event"),
        (("{}", "--node", "localhost"), "--node: 'localhost' is no address"),
        (("{}", "--node", "localhost:70000"), "a port is at most 65535"),
    ],
)  # fmt: skip
def test_pub_used_wrongly(run, arguments, message):
    done = run("pub", *arguments)
    assert done.code == 2 and done.out == "" and message in done.err
    assert done.err.count("\n") == 1


# --- sub -------------------------------------------------------------------------------------


class Subscribing:
    """`peersub sub` in a process of its own, ready."""

    def __init__(self, *arguments):
        command = [sys.executable, "-W", "error", "-m", "peersub.cli", "sub", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr.readline().startswith("peersub: ready")

    def end(self):
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def test_sub_prints_attributes_as_they_come(node):
    subscribing = Subscribing("--node", node.node, "n > 1", "--count", "2", "--wait", "30")
    node.publish_many([{"n": n, "text": "é"} for n in range(3)])
    line = subscribing.process.stdout.readline()
    assert json.loads(line) == {"n": 2, "text": "é"}  # Before the second event is there.
    node.publish({"n": 9})
    assert subscribing.end() == (0, '{"n": 9}\n', "")


def test_sub_with_envelopes(node):
    subscribing = Subscribing("--node", node.node, "TRUE", "--count", "3", "--json")
    node.publish({"a": b"\xff"}, id="one")
    node.publish({}, id="two", body=b"<a/>")
    node.publish({}, id="three", body=b"\xff")
    code, out, _ = subscribing.end()
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"id": "one", "hops": 0, "attributes": {"a": "/w=="}},
        {"id": "two", "hops": 0, "attributes": {}, "body": "<a/>"},
        {"id": "three", "hops": 0, "attributes": {}, "body": {"base64": "/w=="}},
    ]


def test_sub_with_patterns_prints_bodies(node):
    subscribing = Subscribing("--node", node.node, "/news/p", "--xpath", "--count", "1", "--raw")
    node.publish({}, body=b"<news/>")
    node.publish({}, body=b"<news><p/></news>")
    assert subscribing.end()[:2] == (0, "<news><p/></news>\n")


def test_a_durable_sub_goes_on_where_it_stopped(run, node):
    arguments = ("sub", "--node", node.node, "d > 0", "--durable", "cli", "--json", "-q")
    with node.subscribe("d > 0", durable="cli") as subscription:
        subscription.ready(timeout=20)
    node.publish_many([{"id": f"d{n}", "d": n} for n in range(6)], id_attribute="id")
    taken = []
    for count in (2, 3):
        done = run(*arguments, "--count", count, "--wait", 20)
        assert done.code == 0
        taken += [json.loads(line) for line in done.out.splitlines()]
    assert [event["id"] for event in taken] == [f"d{n}" for n in range(1, 6)]
    done = run(*arguments, "--since", "earliest", "--count", 5, "--wait", 20)
    assert [json.loads(line) for line in done.out.splitlines()] == taken
    assert sorted(event["position"] for event in taken) == [event["position"] for event in taken]
    done = run("sub", "--node", node.node, "d > 0", "--durable", "cli", "--since", "yesterday")
    assert done.code == 1 and "earliest" in done.err


def test_sub_gives_up_in_time(run, node):
    done = run("sub", "--node", node.node, "TRUE", "--count", 2, "--wait", 0.01, "-q")
    assert done.code == 3 and done.out == ""
    assert "0 of 2 events came in 0.01 s" in done.err
    assert run("sub", "--node", node.node, "TRUE", "--wait", 0).code == 3


def test_sub_ends_with_its_reader(node):
    subscribing = Subscribing("--node", node.node, "TRUE")
    subscribing.process.stdout.close()
    stop = threading.Event()

    def publish():
        with connect(node.node) as light:
            while not stop.is_set():
                light.publish({"n": 1})

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        assert subscribing.process.wait(30) == 141
    finally:
        stop.set()
        publishing.join()
    subscribing.process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("price >",), "at character 8"),
        (("TRUE", "--since", "earliest"), "--durable"),
        (("TRUE", "--raw", "--json"), "do not go together"),
        (("/a[", "--xpath"), "/a["),
    ],
)
def test_sub_used_wrongly(run, arguments, message):
    done = run("sub", *arguments)
    assert done.code == 2 and done.out == "" and message in done.err
    assert done.err.count("\n") == 1


# --- status, and nobody there ----------------------------------------------------------------


def test_status_shows_the_node(run, node):
    with node.subscribe(Filter("a = 1")) as subscription:
        subscription.ready(timeout=20)
        shown = run("status", "--node", node.node)
        plain = run("status", "--node", node.node, "--json")
    assert shown.code == plain.code == 0
    assert f"node {node.node} of the network 'test'" in shown.out
    assert "in memory, until the node ends" in shown.out
    assert "chord" in shown.out and "client-1" in shown.out and "peersub status" not in shown.out
    status = json.loads(plain.out)
    assert status["node"] == node.node and status["subscriptions"] == 1


def test_names_of_strangers_command_no_terminal(run, node):
    evil = "\x1b[2J\x1b]0;owned\x07\nclient-9 \u202etrusted\u2066"
    with connect(node.node, name=evil) as client, client.subscribe("TRUE", name=evil):
        shown = run("status", "--node", node.node)
    assert "\\x1b[2J" in shown.out and "\\u202e" in shown.out
    assert all(character.isprintable() for character in shown.out.replace("\n", ""))
    assert not any(line.startswith("client-9") for line in shown.out.splitlines())


@pytest.mark.parametrize("command", [("pub", "{}"), ("sub", "TRUE"), ("status",)])
def test_nobody_there_is_one_line_that_says_what_to_do(run, nowhere, command, monkeypatch):
    monkeypatch.setenv("PEERSUB_NODE", nowhere)
    done = run(*command)
    assert done.code == 1 and done.out == "" and done.err.count("\n") == 1
    assert f"peersub node --listen {nowhere}" in done.err and "refused" in done.err


# --- node ------------------------------------------------------------------------------------


@contextmanager
def node_process(*arguments, **variables):
    """`peersub node` in a process of its own; gives the process and its address as a member."""
    command = [sys.executable, "-W", "error", "-m", "peersub.cli", "node", "--json", *arguments]
    environment = dict(os.environ) | variables
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            listening = json.loads(process.stdout.readline())
            member = json.loads(process.stdout.readline())
            assert listening["listening"] == member["member"]
            yield process, member
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()


def test_a_node_that_nobody_answers_says_so_in_its_log_and_goes_on(nowhere):
    arguments = ("--listen", "127.0.0.1:0", "--join", nowhere, "--log-format", "json")
    with node_process(*arguments) as (process, member):
        process.send_signal(signal.SIGHUP)
        with connect(member["member"]) as light:
            status = light.status()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    (said,) = (line for line in lines if "cannot join" in line["message"])
    assert nowhere in said["message"] and said["level"] == "warning"
    assert any("no permissions to read again" in line["message"] for line in lines)
    assert status["version"] and status["uptime_s"] >= 0 and status["memory_bytes"] > 0
    assert status["events"]["published"] == 0 and status["behind"] == {"clients": [], "links": []}


@pytest.mark.parametrize("option", ["--log-level", "--log-format"])
def test_a_log_that_there_is_not(run, option):
    done = run("node", option, "loud")
    assert done.code == 2 and f"{option}: one of" in done.err


def test_two_nodes_a_subscriber_and_a_publisher(run):
    with node_process("--listen", "127.0.0.1:0") as (first, member):
        address = member["member"]
        assert member == {"member": address, "overlay": "chord", "network": "peersub"}
        with (
            node_process("--listen", "127.0.0.1:0", "--join", address) as (second, other),
            connect(other["member"]) as light,
            light.subscribe("price > 10") as subscription,
        ):
            subscription.ready(timeout=20)
            lines = b'{"price": 5}\n{"price": 12}\n'
            arguments = ("--node", address, "--delivery", "at_least_once")
            assert run("pub", *arguments, stdin=lines).code == 0
            delivery = subscription.next_delivery(timeout=20)
            assert delivery.event.attributes == {"price": 12} and delivery.hops == 1
            first.send_signal(signal.SIGTERM)
            assert first.wait(20) == 0
            assert f"node {address} leaves" in first.stderr.read()
            second.send_signal(signal.SIGINT)
            assert second.wait(20) == 0


def test_flags_come_before_the_environment_and_both_before_the_file(tmp_path):
    (tmp_path / "node.toml").write_text(
        'listen = "127.0.0.1:0"\noverlay = "tree"\nnetwork = "of-the-file"\n'
        "[set]\nseen_events_max = 700\n"
    )
    variables = {"PEERSUB_NODE_OVERLAY": "flood", "PEERSUB_NODE_NETWORK": "of-the-environment"}
    arguments = ("--config", str(tmp_path / "node.toml"), "--overlay", "chord")
    with node_process(*arguments, **variables) as (_, member):
        assert member["overlay"] == "chord" and member["network"] == "of-the-environment"
    with node_process("--config", str(tmp_path / "node.toml")) as (_, member):
        assert member["overlay"] == "tree" and member["network"] == "of-the-file"


def test_a_trace_can_be_explained(run, tmp_path):
    trace = tmp_path / "trace.jsonl"
    with node_process("--listen", "127.0.0.1:0", "--trace", str(trace)) as (process, member):
        with connect(member["member"]) as light, light.subscribe("n = 1") as subscription:
            subscription.ready(timeout=20)
            light.publish({"n": 1}, id="e1")
            assert subscription.next(timeout=20).id == "e1"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    name = next(
        json.loads(line)["cause"]["subscription"]
        for line in trace.read_text().splitlines()
        if '"subscribe"' in line
    )
    arguments = ("--trace", trace, "--event", "e1", "--subscription", name)
    assert run("explain", *arguments).code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("listne = 'x'", "Did you mean listen?"),
        ("entirely = 'x'", "There are: listen, join"),
        ("listen = 7", "listen is text in quotes, not 7"),
        ("join = 7", "join is a list of addresses"),
        ("insecure = 'yes'", "insecure is true or false"),
        ("set = 'a=1'", "set is a table"),
        ("listen =", "this is no TOML"),
        ("[set]\nnope = 1", "there is no setting 'nope'"),
        ("overlay = 'ring'", "there is no overlay 'ring'"),
        ("listen = '127.0.0.1'", "--listen: '127.0.0.1' is no address"),
        ("join = ['127.0.0.1:0']", "--join"),
    ],
)
def test_a_file_that_cannot_be_used(run, tmp_path, content, message):
    (tmp_path / "node.toml").write_text(content)
    done = run("node", "--config", tmp_path / "node.toml")
    assert done.code == 2 and done.out == "" and message in done.err
    assert done.err.count("\n") == 1


def test_a_node_that_cannot_begin(run, node, nowhere, tmp_path):
    done = run("node", "--listen", node.node)
    assert done.code == 1 and "cannot listen" in done.err
    assert run("node", "--config", tmp_path / "none.toml").code == 2
    assert run("node", "--set", "retry_ms").code == 2
    done = run("node", "--store", "log_byte_max=1")
    assert done.code == 2 and "there is no setting 'log_byte_max'; there are: " in done.err


# --- certificates ----------------------------------------------------------------------------


def test_a_network_with_certificates(run, tmp_path):
    folder = tmp_path / "net"
    assert run("certs", "init", folder).code == 0
    assert run("certs", "issue", folder, "n1", "--role", "node").code == 0
    assert run("certs", "issue", folder, "desk", "--role", "client").code == 0
    (tmp_path / "permissions.toml").write_text("[clients.desk]\npublish = true\n")
    arguments = (
        "--tls",
        str(folder / "n1.pem"),
        "--permissions",
        str(tmp_path / "permissions.toml"),
    )
    with node_process("--listen", "127.0.0.1:0", *arguments) as (_, member):
        node = ("--node", member["member"])
        assert run("pub", "{}", *node).code == 1
        assert run("pub", "{}", *node, "--tls", folder / "desk.pem").code == 0
        done = run("sub", "TRUE", *node, "--tls", folder / "desk.pem", "--wait", 1)
        assert done.code == 1 and "desk may not subscribe" in done.err
        assert run("status", *node, "--tls", folder / "none.pem").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "0.0.0.0:0"), "--insecure"),
        (("--tls", "none.pem"), "none.pem"),
        (("--tls-key", "none.key"), "Give --tls"),
        (("--permissions", "none.toml"), "Give --tls"),
    ],
)
def test_a_node_that_would_not_be_secure(run, arguments, message):
    done = run("node", *arguments)
    assert done.code == 2 and message in done.err and done.err.count("\n") == 1
