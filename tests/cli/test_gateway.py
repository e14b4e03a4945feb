"""``headway gateway`` as people start, use and stop it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.cli.kit import until
from tests.llm.conftest import server

if TYPE_CHECKING:
    from tests.cli.kit import Shell
    from tests.llm.server import Server

__all__ = ["server"]


class Started:
    """A gateway in a process of its own."""

    def __init__(self, shell: Shell, upstream: str, *words: str) -> None:
        settings = f'[gateway.upstreams]\nopenai = "{upstream}"\nmine = "{upstream}/deep"\n'
        shell.home.mkdir(exist_ok=True)
        (shell.home / "config.toml").write_text(settings)
        self._talk = shell.directory / "talk"
        with self._talk.open("w") as file:
            self.process = shell.start("gateway", "--port", "0", *words, stderr=file)
        until(lambda: "for opencode:" in self.talk, "the introduction")
        found = re.search(r"listens on (http://127\.0\.0\.1:\d+)\n", self.talk)
        assert found
        self.url = found[1]

    @property
    def talk(self) -> str:
        """What it has said so far."""
        return self._talk.read_text()

    def ask(self, text: str) -> httpx.Response:
        """One request."""
        message = {"role": "user", "content": text}
        asked = {"model": "gpt", "stream": True, "messages": [message]}
        return httpx.post(f"{self.url}/t/me/openai/v1/chat/completions", json=asked, timeout=60)

    def stop(self, *signals: signal.Signals) -> str:
        """End it; its log."""
        for signum in signals:
            self.process.send_signal(signum)
        return self.process.communicate(timeout=60)[0]


def test_it_says_how_to_reach_it_and_logs_each_request(shell: Shell, server: Server) -> None:
    """One line for each tool, and one for each request, without what was said."""
    started = Started(shell, server.url)
    answer = started.ask("[say: secret]")
    log, talk = started.stop(signal.SIGINT), started.talk

    assert "secret" in answer.text
    assert started.process.returncode == 0
    assert f"for claude:\n    export ANTHROPIC_BASE_URL={started.url}/anthropic\n" in talk
    assert "for codex, in ~/.codex/config.toml:\n" in talk
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d 200 llm/openai/gpt me POST /t/me/openai/v1/chat/completions"
        r" waited \d+ ms, first byte \d+ ms, total \d+ ms, \d+ bytes \d+\+\d+ tokens ok\n",
        log,
    )
    assert "secret" not in log + talk


def test_the_log_can_be_json_or_off(shell: Shell, server: Server) -> None:
    """For programs, and for nobody."""
    started = Started(shell, server.url, "--log", "json")
    started.ask("[say: hi]")
    line = started.stop(signal.SIGTERM)
    assert json.loads(line)["outcome"] == "ok"

    quiet = Started(shell, server.url, "--log", "off")
    quiet.ask("[say: hi]")
    assert quiet.stop(signal.SIGTERM) == ""


@pytest.mark.parametrize("patient", [True, False])
def test_it_lets_answers_end_unless_it_is_told_twice(
    shell: Shell,
    server: Server,
    patient: bool,  # noqa: FBT001
) -> None:
    """Whoever comes meanwhile is refused."""
    server.plan(hold="middle", words=20)
    started = Started(shell, server.url)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(started.ask, "hello")
        server.until(lambda s: s.held() == 1, 60)
        started.process.send_signal(signal.SIGTERM)
        until(lambda: "once more cuts them" in started.talk, "the stopping")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{started.url}/healthz")
        if patient:
            server.release(later_too=True)
        started.stop(*([] if patient else [signal.SIGTERM]))
        server.release(later_too=True)

    assert (asking.exception() is None) is patient
    assert shell.status()["leases"] == []


def test_a_killed_gateway_leaves_no_slot_behind(shell: Shell, server: Server) -> None:
    """Its leases are those of its process."""
    server.plan(hold="before")
    started = Started(shell, server.url)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(started.ask, "hello")
        until(shell.holds(1), "the request")

        started.process.kill()

        until(shell.holds(0), "the end of the lease")
        assert isinstance(asking.exception(), httpx.HTTPError)
    server.release(later_too=True)


def test_changed_settings_count_at_once(shell: Shell, server: Server) -> None:
    """Limits and upstreams; what is wrong in them changes nothing."""
    started = Started(shell, server.url)
    file = shell.home / "config.toml"
    file.write_text(f'[gateway.upstreams]\nnew = "{server.url}"\n[limits]\n"llm/new" = 7\n')

    until(lambda: httpx.get(f"{started.url}/new/v1/models").status_code == 200, "the new one")

    limits = {row["key"]: row["limit"] for row in shell.status()["limits"]}
    assert limits["llm/new"] == 7
    file.write_text("[gateway]\nport = 'x'\n")
    until(lambda: "the settings stay as they were" in started.talk, "the warning")
    assert httpx.get(f"{started.url}/new/v1/models").status_code == 200


def test_a_taken_port_is_said(shell: Shell, server: Server) -> None:
    """And what to do."""
    started = Started(shell, server.url)
    port = started.url.rpartition(":")[2]

    second = shell.run("gateway", "--port", port)

    assert second.returncode == 69
    assert f"cannot listen on 127.0.0.1:{port}" in second.stderr


def test_the_lines_for_scripts(shell: Shell) -> None:
    """Each can be evaluated by a shell."""
    told = shell.run("gateway", "env", "claude", "--task", "issue 16")
    settings = shell.run("gateway", "env", "opencode", "--port", "99")

    assert told.stdout == "export ANTHROPIC_BASE_URL=http://127.0.0.1:8642/t/issue%2016/anthropic\n"
    script = f"{settings.stdout}\nprintenv OPENCODE_CONFIG_CONTENT"
    content = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    providers = json.loads(content.stdout)["provider"]
    assert providers["openai"]["options"]["baseURL"] == "http://127.0.0.1:99/openai/v1"
    assert shell.run("gateway", "env", "vim").returncode == 64
