"""A Redis Cluster: one of its servers has the namespace, and everyone finds it."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.fleet.server import Server

from headway import AtCapacity, Governor

if TYPE_CHECKING:
    from collections.abc import Iterator

_SLOTS = 16_384


def _free_port() -> int:
    # A node of a cluster listens at 10,000 more, too.
    for port in range(21_000, 31_000):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            return port
    raise AssertionError("there is no free port")


@pytest.fixture
def cluster() -> Iterator[list[Server]]:
    """Two servers, each with half of the slots."""
    servers = []
    for number in range(2):
        servers.append(Server("--cluster-enabled", "yes", port=_free_port()))
        half = range(number * _SLOTS // 2, (number + 1) * _SLOTS // 2)
        servers[-1].client.execute_command("CLUSTER ADDSLOTS", *half)
    servers[0].client.execute_command("CLUSTER MEET", "127.0.0.1", servers[1].port)
    for server in servers:
        while server.client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            time.sleep(0.01)
    yield servers
    for server in servers:
        server.close()


def test_every_server_of_a_cluster_leads_to_the_namespace(
    cluster: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is named in the address: those who share it share its limits."""
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "1")
    first, second = (
        Governor(f"redis://127.0.0.1:{server.port}", limits={"k": 1}) for server in cluster
    )
    with first, second:
        with first.slot("k"), pytest.raises(AtCapacity):
            second.slot("k", wait=False).__enter__()
        with second.slot("k"):
            assert len(first.snapshot().leases) == 1
