"""``headway gateway`` as people start, use and stop it."""

from __future__ import annotations

import functools
import json
import re
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

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

    def __init__(self, shell: Shell, upstream: str, *words: str, **options: Any) -> None:
        settings = f'[gateway.upstreams]\nopenai = "{upstream}"\nmine = "{upstream}/deep"\n'
        shell.home.mkdir(exist_ok=True)
        (shell.home / "config.toml").write_text(settings)
        self._talk = shell.directory / "talk"
        with self._talk.open("w") as file:
            self.process = shell.start("gateway", "--port", "0", *words, stderr=file, **options)
        until(lambda: "headway gateway env TOOL" in self.talk, "the introduction")
        found = re.search(r"listens on (http://\S+:\d+)\n", self.talk)
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

    def serves(self, upstream: str) -> bool:
        """Whether there is an upstream of this name."""
        return httpx.get(f"{self.url}/{upstream}/v1/models").status_code == 200

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
    assert "for codex, at the top of ~/.codex/config.toml, or after codex -c:\n" in talk
    for name, upstream in {"openai": server.url, "mine": f"{server.url}/deep"}.items():
        assert f"headway: for {name}, which is {upstream}: {started.url}/{name}\n" in talk
    assert re.fullmatch(
        r"TIME +STATUS +WAITED +FIRST BYTE +TOTAL +BYTES +TOKENS +KEY +TASK +REQUEST +OUTCOME\n"
        r"\d\d:\d\d:\d\d +200 +\d+ ms +\d+ ms +\d+ ms +\d+ +\d+\+\d+ +llm/openai/gpt +me"
        r" +POST /t/me/openai/v1/chat/completions +ok\n",
        log,
    )
    assert "secret" not in log + talk


def test_an_address_with_colons_is_shown_as_urls_have_it(shell: Shell, server: Server) -> None:
    """So that the lines for the tools lead to it."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no ::1 here")
    started = Started(shell, server.url, "--host", "::1")

    assert "hello" in started.ask("[say: hello]").text
    assert started.url.startswith("http://[::1]:")
    started.stop(signal.SIGTERM)


def test_an_address_that_is_all_of_them_is_shown_by_the_name(shell: Shell, server: Server) -> None:
    """Nobody can be sent to 0.0.0.0."""
    shell.environ |= {"HEADWAY_GATEWAY_TOKEN": "0123456789abcdef"}
    started = Started(shell, server.url, "--host", "0.0.0.0")  # noqa: S104 - that is the question
    started.stop(signal.SIGTERM)
    name, port = socket.gethostname(), started.url.rpartition(":")[2]

    assert f"listens on http://{name}:{port}\n" in started.talk
    assert f"=http://{name}:{port}/k/TOKEN/anthropic\n" in started.talk
    assert f"headway gateway env TOOL --host {name} --port {port}\n" in started.talk
    assert "http://0.0.0.0" not in started.talk


def test_the_log_can_be_json_or_off(shell: Shell, server: Server) -> None:
    """For programs, and for nobody."""
    started = Started(shell, server.url, "--log", "json")
    started.ask("[say: hi]")
    line = started.stop(signal.SIGTERM)
    assert json.loads(line)["outcome"] == "ok"

    quiet = Started(shell, server.url, "--log", "off")
    quiet.ask("[say: hi]")
    assert quiet.stop(signal.SIGTERM) == ""


def test_a_log_that_cannot_be_written_ends_no_answer(shell: Shell, server: Server) -> None:
    """A full disk is said once, and the gateway goes on."""
    with open("/dev/full", "w", encoding="ascii") as full:
        started = Started(shell, server.url, stdout=full)

    assert [started.ask("[say: hi]").status_code for _ in range(2)] == [200, 200]

    started.stop(signal.SIGTERM)
    assert started.talk.count("the log is not written any more: cannot write to the") == 1
    assert "Traceback" not in started.talk


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
        until(lambda: "1 answer under way" in started.talk, "the stopping")
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
    """Limits and upstreams; what is wrong in them changes nothing until it is mended."""
    started = Started(shell, server.url)
    file = shell.home / "config.toml"
    file.write_text(f'[gateway.upstreams]\nnew = "{server.url}"\n[limits]\n"llm/new" = 7\n')

    until(lambda: started.serves("new"), "the new one")

    limits = {row["key"]: row["limit"] for row in shell.status()["limits"]}
    assert limits["llm/new"] == 7
    file.write_text("[gateway]\nport = 'x'\n")
    until(lambda: "the settings stay as they were" in started.talk, "the warning")
    assert started.serves("new")

    for name in ("mended", "changed"):
        file.write_text(f'[gateway.upstreams]\n{name} = "{server.url}"\n')
        until(functools.partial(started.serves, name), f"the {name} one")
    started.stop(signal.SIGTERM)
    assert started.talk.count("in force again") == 1


def test_a_taken_port_is_said(shell: Shell, server: Server) -> None:
    """And what to do."""
    started = Started(shell, server.url)
    port = started.url.rpartition(":")[2]

    second = shell.run("gateway", "--port", port)

    assert second.returncode == 69
    assert f"cannot listen on 127.0.0.1:{port}: address already in use; if " in second.stderr


def test_the_lines_for_scripts(shell: Shell) -> None:
    """Each can be evaluated by a shell."""
    told = shell.run("gateway", "env", "claude", "--task", "issue 16")
    settings = shell.run("gateway", "env", "opencode", "--port", "99")

    assert told.stdout == "export ANTHROPIC_BASE_URL=http://127.0.0.1:8642/t/issue%2016/anthropic\n"
    script = f"{settings.stdout}\nprintenv OPENCODE_CONFIG_CONTENT"
    content = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    providers = json.loads(content.stdout)["provider"]
    assert {name: each["options"]["baseURL"] for name, each in providers.items()} == {
        "anthropic": "http://127.0.0.1:99/anthropic/v1",
        "google": "http://127.0.0.1:99/gemini/v1beta",
        "openai": "http://127.0.0.1:99/openai/v1",
    }
    assert shell.run("gateway", "env", "vim").returncode == 64
    nobody = shell.run("gateway", "env", "gemini", "--task", "")
    assert nobody.stdout == "export GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8642/gemini\n"


def test_a_token_is_in_the_lines_for_scripts_and_on_no_screen(shell: Shell, server: Server) -> None:
    """With it a tool comes in, without it does not."""
    shell.environ |= {"HEADWAY_GATEWAY_TOKEN": "0123456789abcdef"}
    started = Started(shell, server.url)
    port = started.url.rpartition(":")[2]
    told = shell.run("gateway", "env", "codex", "--host", "localhost", "--port", port)
    base = told.stdout.split('"')[1]

    assert httpx.get(f"{base}/models").status_code == 200
    assert httpx.get(f"{started.url}/openai/v1/models").status_code == 403
    started.stop(signal.SIGTERM)
    assert "0123456789abcdef" not in started.talk
    assert f"{started.url}/k/TOKEN/anthropic\n" in started.talk


def test_lines_that_lead_nowhere_yet_are_said_to(shell: Shell, server: Server) -> None:
    """A tool would only say that it cannot connect; the line is printed all the same."""
    started = Started(shell, server.url)
    port = started.url.rpartition(":")[2]
    assert shell.run("gateway", "env", "claude", "--port", port).stderr == ""
    started.stop(signal.SIGTERM)

    told = shell.run("gateway", "env", "claude", "--port", port)

    assert told.stdout == f"export ANTHROPIC_BASE_URL={started.url}/anthropic\n"
    assert f"nothing listens on 127.0.0.1:{port} yet" in told.stderr
    assert told.returncode == 0


def test_doctor_sees_the_gateway(shell: Shell, server: Server) -> None:
    """And whether it is one, and wants a token; of one that does not run it says nothing."""

    def told(**env: str) -> list[tuple[str, str]]:
        found = json.loads(shell.run("doctor", "--json", env=env).stdout)["findings"]
        return [(each["level"], each["text"]) for each in found if each["about"] == "gateway"]

    def hang_up(listening: socket.socket) -> None:
        listening.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as another:
        place = f"127.0.0.1:{another.getsockname()[1]}"
        port = {"HEADWAY_GATEWAY_PORT": place.partition(":")[2]}
        with ThreadPoolExecutor(1) as pool:
            pool.submit(hang_up, another)
            assert told(**port) == [("warning", f"what listens on {place} is no gateway")]
    assert told(**port) == []

    started = Started(shell, server.url)
    place = started.url.removeprefix("http://")
    port = {"HEADWAY_GATEWAY_PORT": place.partition(":")[2]}
    assert told(**port) == [("ok", f"listens on {place}, requests under way: 0")]
    started.stop(signal.SIGTERM)

    token = {"HEADWAY_GATEWAY_TOKEN": "0123456789abcdef"}
    shell.environ |= token
    guarded = Started(shell, server.url)
    place = guarded.url.removeprefix("http://")
    port = {"HEADWAY_GATEWAY_PORT": place.partition(":")[2]}
    assert told(**port) == [("ok", f"listens on {place}, for those who have its token")]
    del shell.environ["HEADWAY_GATEWAY_TOKEN"]
    assert told(**port) == [("warning", f"that on {place} wants a token")]
    guarded.stop(signal.SIGTERM)


@pytest.mark.parametrize("words", [("--drain", "1ms"), ()])
def test_what_it_cuts_is_said(shell: Shell, server: Server, words: tuple[str, ...]) -> None:
    """After as long as is said, or by a second signal: no client has gone by itself."""
    server.plan(hold="middle", words=20)
    started = Started(shell, server.url, *words)
    shell.run("limits", "set", "llm", "1")
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(started.ask, "hello") for _ in range(2)]
        server.until(lambda s: s.held() == 1, 60)
        until(lambda: shell.status()["waiting"], "the wait of the other")

        started.process.send_signal(signal.SIGTERM)
        until(lambda: "send SIGTERM once more to cut" in started.talk, "the stopping")
        log = started.stop(*([] if words else [signal.SIGTERM]))

        assert all(isinstance(each.exception(), httpx.HTTPError) for each in asking)
    server.release(later_too=True)
    assert [line.endswith(" gateway stopped") for line in log.splitlines()[1:]] == [True, True]
    assert started.talk.endswith("headway: stopped; 2 answers cut\n")
    assert shell.status()["leases"] == []


def test_the_port_can_be_set(shell: Shell) -> None:
    """For the gateway and for the lines that lead to it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        env = {"HEADWAY_GATEWAY_PORT": port}

        refused = shell.run("gateway", env=env)

    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert f":{port}/gemini" in shell.run("gateway", "env", "gemini", env=env).stdout


@pytest.mark.parametrize("host", ["nosuchhost.invalid", "a..b"])
def test_a_name_that_leads_nowhere_is_said(shell: Shell, host: str) -> None:
    """A token would not help."""
    refused = shell.run("gateway", "--port", "0", "--host", host)

    assert refused.returncode == 69
    assert f"--host {host} cannot be resolved: " in refused.stderr
    assert "token" not in refused.stderr


def test_an_address_for_others_needs_a_token(shell: Shell) -> None:
    """It does not even begin without one."""
    refused = shell.run("gateway", "--port", "0", "--host", "0.0.0.0")  # noqa: S104

    assert refused.returncode == 78
    assert "set gateway.token" in refused.stderr


def test_credentials_that_every_local_user_can_spend_are_pointed_out(
    shell: Shell, server: Server
) -> None:
    """At the start and by doctor, unless there is a token."""
    env = {"HEADWAY_GATEWAY_CREDENTIALS": "openai=KEY", "KEY": "secret"}
    warning = "every user of this machine can send requests with"
    started = Started(shell, server.url, env=env)
    port = {"HEADWAY_GATEWAY_PORT": started.url.rpartition(":")[2]}

    assert warning in started.talk
    assert warning in shell.run("doctor", env=env | port).stdout
    assert warning not in shell.run("doctor", env=port).stdout
    started.stop(signal.SIGTERM)

    closed = Started(shell, server.url, env=env | {"HEADWAY_GATEWAY_TOKEN": "0123456789abcdef"})
    assert warning not in closed.talk
    closed.stop(signal.SIGTERM)


def test_it_runs_in_the_background(shell: Shell, server: Server) -> None:
    """It is started once, found, and stopped; its log is in the home."""
    shell.home.mkdir(exist_ok=True)
    (shell.home / "config.toml").write_text(f'[gateway.upstreams]\nopenai = "{server.url}"\n')
    assert shell.run("gateway", "status").returncode == 1

    started = shell.run("gateway", "--detach", "--port", "0")
    try:
        found = re.search(r"Gateway (\d+) runs in the background: (http://\S+);", started.stdout)
        assert found, started
        again = shell.run("gateway", "--detach", "--port", "0")
        told = json.loads(shell.run("gateway", "status", "--json").stdout)
        shown = shell.run("gateway", "status").stdout
        answer = httpx.get(f"{found[2]}/openai/v1/models")
    finally:
        stopped = shell.run("gateway", "stop")

    assert f"a gateway runs already: pid {found[1]}, {found[2]}" in again.stderr
    assert (told["running"], told["pid"], told["address"]) == (True, int(found[1]), found[2])
    assert told["busy"] == 0
    assert shown.startswith(f"Gateway {found[1]} listens on {found[2]}, since ")
    assert answer.status_code == 200
    assert stopped.stdout == f"Gateway {found[1]} stopped.\n"
    assert "GET /openai/v1/models" in (shell.home / "logs" / "gateway.log").read_text()
    assert json.loads(shell.run("gateway", "status", "--json").stdout)["running"] is False
    assert shell.run("gateway", "stop").stdout == "No gateway runs.\n"


def test_a_gateway_that_cannot_start_says_why(shell: Shell) -> None:
    """Also if that is in the log of a process in the background."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = shell.run("gateway", "--detach", "--port", port)

    assert refused.returncode == 69
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr


def test_stop_now_cuts_what_is_under_way(shell: Shell, server: Server) -> None:
    """Without it, the gateway would wait for the answer."""
    server.plan(hold="before")
    started = Started(shell, server.url)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(started.ask, "x")
        server.until(lambda s: s.held() == 1)
        stopped = shell.run("gateway", "stop", "--now")
        assert asked.exception() is not None

    assert "stopped." in stopped.stdout
    assert started.process.wait(60) == 0
    server.release(later_too=True)
