"""`peersub certs init | issue | revoke | show`."""

import json
import stat

import pytest

from peersub.cli.certs_command import run_revoke
from peersub.cli.failures import CommandError
from peersub.runtime.security.revocations import Verifier


@pytest.fixture
def folder(tmp_path, run):
    assert run("certs", "init", tmp_path / "ca", "--name", "market").code == 0
    return tmp_path / "ca"


def test_the_tour(tmp_path, run):
    folder = tmp_path / "ca"
    done = run("certs", "init", folder)
    assert (done.code, done.out.strip()) == (0, str(folder / "ca.pem"))
    assert "certs issue" in done.err
    done = run("certs", "issue", folder, "n1", "--role", "node", "--host", "10.0.0.7")
    assert (done.code, done.out.split()) == (0, [str(folder / "n1.pem"), str(folder / "n1.key")])
    assert "10.0.0.7" in done.err
    assert stat.S_IMODE((folder / "n1.key").stat().st_mode) == 0o600
    done = run("certs", "show", folder / "n1.pem")
    assert done.code == 0 and "role: node" in done.out and "state: valid" in done.out


def test_json(folder, run):
    done = run("certs", "issue", folder, "c1", "--role", "client", "--days", "3", "--json")
    issued = json.loads(done.out)
    assert done.code == 0 and done.err == ""
    assert (issued["name"], issued["role"], issued["hosts"]) == ("c1", "client", [])
    shown = json.loads(run("certs", "show", issued["certificate"], "--json").out)
    assert (shown["serial"], shown["network"]) == (issued["serial"], "market")
    assert json.loads(run("certs", "show", folder / "ca.pem", "--json").out)["role"] == "authority"
    revoked = json.loads(run("certs", "revoke", folder, "c1", "--json").out)
    assert revoked == {"revoked": [{"serial": issued["serial"], "name": "c1"}]}
    again = run("certs", "revoke", folder, "--serial", issued["serial"], "--json")
    assert json.loads(again.out) == revoked
    made = json.loads(run("certs", "init", folder, "--force", "--json").out)
    assert made == {"network": "peersub", "ca": str(folder / "ca.pem")}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["init", "{}"], "there is an authority already"),
        (["issue", "{}", "x", "--role", "boss"], "--role is node or client"),
        (["issue", "{}", "ca", "--role", "node"], "the authority's own"),
        (["issue", "{}", "x", "--role", "client", "--host", "a"], "only a node has hosts"),
        (["issue", "{}/no", "x", "--role", "client"], "peersub certs init"),
        (["revoke", "{}"], "either a NAME or --serial"),
        (["revoke", "{}", "nobody"], "was issued no certificate here"),
        (["revoke", "{}", "--serial", "xyz"], "is no serial number"),
        (["show", "{}/no.pem"], "there is no such file"),
        (["show", "{}/ca.key"], "this is no certificate"),
    ],
)
def test_mistakes_are_one_line(folder, run, arguments, problem):
    done = run("certs", *(argument.replace("{}", str(folder)) for argument in arguments))
    assert done.code == 2 and done.out == ""
    assert done.err.count("\n") == 1 and problem in done.err


def test_nodes_are_told(folder, run, capsys):
    run("certs", "issue", folder, "c1", "--role", "client")
    told = []
    run_revoke(
        str(folder), "c1", None, ("a:1", "b:2"), as_json=False,
        send=lambda node, revoked: told.append((node, len(revoked), revoked[0])),
    )  # fmt: skip
    assert [(node, count) for node, count, _ in told] == [("a:1", 1), ("b:2", 1)]
    assert Verifier(folder / "ca.pem").believes(told[0][2])
    with pytest.raises(CommandError, match="it is revoked"):
        run_revoke(str(folder), "c1", None, ("a:1",), as_json=True)
