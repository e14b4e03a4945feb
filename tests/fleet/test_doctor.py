"""Servers that may lose what they know, and namespaces that do not agree: found and mended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.fleet.conftest import LEASE_SECONDS, on_each_server

from headway import ConfigError, Governor, StoreUnavailable
from headway.stores.redis_rows import packed, unpacked

if TYPE_CHECKING:
    from tests.cli.kit import Shell
    from tests.fleet.conftest import Persons
    from tests.fleet.server import Server

_KEYS = "{headway:default}:keys"
_EVICTING = ("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")


def _found(shell: Shell, *options: str) -> list[dict[str, Any]]:
    """What doctor says that is not as it should be, or about repairs."""
    report = json.loads(shell.run("doctor", "--json", *options).stdout)
    assert report["healthy"] == all(row["level"] != "problem" for row in report["findings"])
    return [row for row in report["findings"] if row["level"] != "ok" or row["about"] == "repair"]


def _use(server: Server) -> None:
    """As a process does that comes there."""
    with Governor(server.url) as governor, governor.slot("k"):
        pass


@on_each_server
@pytest.mark.parametrize("server", [_EVICTING], indirect=True)
def test_a_server_that_evicts_is_refused_unless_allowed(
    person: Persons, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command says why and what to do; a setting accepts it."""
    ann = person("ann")

    refused = ann.run("run", "--", "true")
    with pytest.raises(ConfigError, match=r"evicts keys .*volatile-lru, maxmemory 104857600"):
        _use(server)

    assert refused.returncode == 78
    assert 'store.eviction = "allow"' in refused.stderr
    assert not server.client.keys("*holders*"), "nobody is registered there"
    (problem,) = [row for row in _found(ann) if row["level"] == "problem"]
    assert "is refused" in problem["text"]
    ann.environ["HEADWAY_STORE_EVICTION"] = "allow"
    assert ann.run("run", "--", "true").returncode == 0
    assert {row["level"] for row in _found(ann)} == {"warning"}
    monkeypatch.setenv("HEADWAY_STORE_EVICTION", "allow")
    _use(server)


def test_what_runs_goes_on_when_a_server_is_set_to_evict(server: Server) -> None:
    """Only newcomers are refused: a process that reconnects must keep its leases."""
    with Governor(server.url) as governor, governor.slot("k") as lease:
        server.client.config_set("maxmemory-policy", "allkeys-lru")
        server.client.config_set("maxmemory", "100mb")
        server.client.client_kill_filter(_type="normal", skipme=True)

        lease.check()

        with pytest.raises(ConfigError, match="evicts keys"):
            _use(server)


def test_a_policy_without_a_bound_evicts_nothing(server: Server) -> None:
    """Some servers come with such a policy and all the memory there is."""
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    _use(server)


def test_data_of_a_newer_headway_is_refused(person: Persons, server: Server) -> None:
    """Its rows may mean something else; the error and doctor name both formats and the fix."""
    _use(server)
    server.client.hset("{headway:default}:meta", "format", "99")

    with pytest.raises(StoreUnavailable, match=r"newer Headway \(format 99, this one knows"):
        _use(server)
    (problem,) = [row for row in _found(person("ann")) if row["level"] == "problem"]

    assert "its format is 99" in problem["text"]
    assert "update Headway" in problem["fix"]


def test_data_of_an_older_headway_is_taken_over(server: Server) -> None:
    """After everyone had the time to register again."""
    with Governor(server.url) as governor, governor.slot("k"):
        server.client.hdel("{headway:default}:meta", "format")
        server.client.hdel(_KEYS, "")
        with Governor(server.url) as other, other.slot("j"):
            assert governor.capacity("k").used == 1


def test_a_server_that_writes_nothing_to_disk(person: Persons, server: Server) -> None:
    """It is a warning, until it does."""
    ann = person("ann")
    (warning,) = _found(ann)
    assert "writes nothing to disk" in warning["text"]

    server.client.config_set("appendonly", "yes")

    assert not _found(ann)


def test_processes_with_different_lease_seconds(
    person: Persons, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one to come after a loss of data decides for all: they have to agree."""
    server.client.config_set("appendonly", "yes")
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "3")
    with Governor(server.url) as governor, governor.slot("k"):
        (warning,) = _found(person("ann"))

    assert f"{LEASE_SECONDS} s for 1 process" in warning["text"]
    assert "3 s for 1 process" in warning["text"]


def test_wrong_counts_on_a_server_are_found_and_repaired(person: Persons, server: Server) -> None:
    """Slots that nobody holds are free again, and what runs keeps its own."""
    server.client.config_set("appendonly", "yes")
    ann = person("ann")
    with Governor(server.url, limits={"k": 2}) as governor, governor.slot("k") as lease:
        with server.other_client() as client:
            row = unpacked(client.hget(_KEYS, "k"))
            row[3] = 2
            client.hset(_KEYS, "k", packed(row))
        (problem,) = _found(ann)
        assert "k: used was 2, should be 1" in problem["text"]
        assert problem["fix"] == "headway doctor --repair"

        (repaired,) = _found(ann, "--repair")

        assert repaired["text"] == "k: used was 2, should be 1"
        with governor.slot("k"):
            lease.check()
    assert "nothing to repair" in _found(ann, "--repair")[0]["text"]
