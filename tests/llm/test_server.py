"""The model server keeps its own promises, in every dialect."""

from __future__ import annotations

import asyncio
import http.client
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import aiohttp
import pytest
from tests.llm.kit import DIALECTS, Client, calls
from tests.llm.plans import tags

if TYPE_CHECKING:
    from tests.llm.server import Server


def test_a_text_is_said_verbatim(client: Client) -> None:
    """What the prompt asks to be said comes back whole, letter by letter."""
    got = client.ask("Please say: grüße an  alle, 世界 🙂!")

    assert (got.status, got.text) == (200, "grüße an  alle, 世界 🙂!")
    assert got.is_whole


def test_paragraphs_are_said_verbatim(client: Client) -> None:
    """A text in brackets may have several lines."""
    got = client.ask("[say: one\n\ntwo  three\n]")

    assert got.text == "one\n\ntwo  three\n"


def test_without_a_plan_the_prompt_is_echoed(client: Client) -> None:
    """Whoever asks plainly gets several words of their own back."""
    assert "count the green bottles" in client.ask("count the green bottles").text


def test_many_at_once_get_their_own_answers(client: Client) -> None:
    """Parallel requests are not mixed up."""
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: client.ask(f"say: number {n}").text, range(24)))

    assert answers == [f"number {n}" for n in range(24)]


def test_a_path_prefix_is_kept(server: Server, dialect: str) -> None:
    """Requests below a prefix are answered, and the record tells the prefix."""
    got = Client(server, dialect, prefix="/t/run42").ask("say: here")

    assert got.text == "here"
    assert server.requests()[0].ask.path.startswith("/t/run42/")


def test_words_are_counted_and_huge_bodies_are_huge(client: Client) -> None:
    """The plan sets how much is said."""
    assert client.ask("[words: 5]").text == "word1 word2 word3 word4 word5"
    assert len(client.ask("[huge: 3000000]").text) >= 3_000_000


def test_an_empty_answer_is_a_success(client: Client) -> None:
    """Nothing may be said, and told as whole."""
    got = client.ask("[empty: yes] say: no")

    assert got.status == 200
    assert b"no" not in got.raw.replace(b"none", b"").replace(b"annotations", b"")
    assert got.is_whole


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503, 529])
def test_errors_are_given_for_ever(client: Client, status: int) -> None:
    """Without a count, each request fails, in the dialect's own words."""
    got = [client.ask(f"[status: {status}]") for _ in range(3)]

    assert {(each.status, "Retry-After" in each.headers) for each in got} == {(status, False)}
    assert got[0].json["error"]["message"] == f"planned {status}"


def test_an_error_is_given_as_often_as_planned(client: Client) -> None:
    """Trouble ends after its count; then the same prompt is answered."""
    prompt = "[status: 429] [retry-after: 7] [times: 2] say: at last"
    got = [client.ask(prompt) for _ in range(4)]

    assert [each.status for each in got] == [429, 429, 200, 200]
    assert [each.headers.get("Retry-After") for each in got] == ["7", "7", None, None]
    assert got[-1].text == "at last"


def test_gemini_tells_the_delay_in_its_body(server: Server) -> None:
    """RetryInfo stands where Gemini's clients look for it."""
    got = Client(server, "gemini").ask("[status: 429] [retry-delay: 3s]")

    assert got.json["error"]["details"][0]["retryDelay"] == "3s"


def test_above_its_cap_a_model_refuses(server: Server, dialect: str) -> None:
    """With a cap, whoever comes too much is told 429; the others are served."""
    server.plan(cap=2, hold="before", retry_after="1")
    client = Client(server, dialect)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(client.ask, "say: held") for _ in range(2)]
        server.until(lambda s: s.held() == 2)
        refused = client.ask("say: refused")
        server.release()

    assert refused.status == 429
    assert [each.result().text for each in waiting] == ["held", "held"]


@pytest.mark.parametrize("where", ["before", "opened", "middle"])
def test_a_held_request_goes_on_when_released(client: Client, where: str) -> None:
    """A test decides when a request goes on, wherever it is held."""
    server = client.server
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.ask, f"[hold: {where}] say: one two three four")
        if where == "opened" and not client.streams:
            assert waiting.result().text == "one two three four"
            return
        server.until(lambda s: s.held("fake-1") == 1)
        assert server.in_flight("fake-1") == 1
        server.release("another-model")
        assert server.held("fake-1") == 1
        server.release("fake-1")

        assert waiting.result().text == "one two three four"
    server.until(lambda s: s.in_flight() == s.held() == 0)


def test_after_a_last_release_nothing_is_held(client: Client) -> None:
    """A test that is done with holding says so once."""
    client.server.release(later_too=True)

    assert client.ask("[hold: before] say: free").text == "free"


def test_a_cut_by_reset_is_an_error_for_the_client(client: Client) -> None:
    """The connection breaks in the middle of the answer."""
    connection, response = client.begin("[cut: reset] say: one two three four")
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        response.read()
    connection.close()


def test_a_clean_cut_has_no_last_event(client: Client) -> None:
    """The response ends as HTTP wants it, and lacks what tells that it was whole."""
    got = client.ask("[cut: clean] say: one two three four")

    assert got.status == 200
    assert not got.is_whole
    assert not client.streams or got.text == "one two "


def test_a_cut_that_is_over_is_followed_by_the_whole(client: Client) -> None:
    """A client that asks again gets everything."""
    prompt = "[cut: clean] [times: 1] say: one two three four"
    client.ask(prompt)

    assert client.ask(prompt).text == "one two three four"


def test_a_dropped_connection_has_no_headers(client: Client) -> None:
    """Hanging up before any answer is a reset."""
    with pytest.raises(ConnectionError):
        client.ask("[drop: yes]")
    assert client.server.requests()[0].status is None


def test_garbage_is_no_answer(client: Client) -> None:
    """Bytes that no client can read, with a status that promises otherwise."""
    got = client.ask("[garbage: yes]")

    assert got.status == 200
    with pytest.raises(UnicodeDecodeError):
        got.raw.decode()


def test_trickled_bytes_are_the_same_bytes(client: Client) -> None:
    """However small the pieces, the answer is whole."""
    got = client.ask("[trickle: 1] say: drop by drop")

    assert got.text == "drop by drop"


def test_delays_change_nothing_else(client: Client) -> None:
    """Slow headers and slow words are still the answer."""
    got = client.ask("[header-delay: 0.05] [chunk-delay: 0.01] say: slowly but surely")

    assert got.text == "slowly but surely"


def test_tools_are_called_one_after_another(server: Server, dialect: str) -> None:
    """Each result brings the next command, and after the last the words come."""
    client = Client(server, dialect, streams=False)
    prompt = "[tool: echo 1] [tool: exit 3] say: done"
    names = {"chat": "bash", "responses": "exec_command", "messages": "Bash"}
    argument = "cmd" if dialect == "responses" else "command"

    asked = [calls(client.ask(prompt, results)) for results in range(2)]

    assert [(name, arguments[argument]) for [(name, arguments)] in asked] == [
        (names.get(dialect, "run_shell_command"), "echo 1"),
        (names.get(dialect, "run_shell_command"), "exit 3"),
    ]
    assert client.ask(prompt, 2).text == "done"


def test_a_tool_call_is_streamed(server: Server, dialect: str) -> None:
    """Streams carry the command, too."""
    got = Client(server, dialect).ask("[tool: echo streamed]")

    assert b"echo streamed" in got.raw
    assert got.is_whole


def test_the_same_tool_is_called_for_ever(server: Server, dialect: str) -> None:
    """A plan without end asks for the same command, however often it was run."""
    client = Client(server, dialect, streams=False)
    server.plan(tools=("echo again",), forever=True)

    asked = [calls(client.ask("go", results)) for results in (0, 1, 2, 30)]

    assert asked == [asked[0]] * 4


def test_plans_are_for_their_model_and_their_prompts(server: Server) -> None:
    """The newest plan that applies wins; tags go before it."""
    server.plan(say="anybody")
    server.plan(model="fake-2", say="second")
    server.plan(match="special", say="special")
    one, two = Client(server, "chat"), Client(server, "messages", model="fake-2")

    assert one.ask("hello").text == "anybody"
    assert two.ask("hello").text == "second"
    assert two.ask("a special case").text == "special"
    assert two.ask("say: mine").text == "mine"
    server.forget_plans()
    assert one.ask("hello").text == "you said: hello"


def test_a_plan_of_the_test_counts_over_all_prompts(server: Server) -> None:
    """Trouble ordered by the test is counted for the order, whoever asks."""
    server.plan(status=503, times=2)
    client = Client(server, "chat")

    assert [client.ask(f"say: {n}").status for n in range(3)] == [503, 503, 200]


def test_a_mistaken_plan_is_refused(server: Server) -> None:
    """A misspelt directive is told at once."""
    with pytest.raises(TypeError):
        server.plan(no_such_field=1)


def test_titles_are_answered_plainly(server: Server) -> None:
    """A request for a title repeats the prompt, but not its trouble."""
    body = {
        "model": "fake-small",
        "messages": [
            {"role": "system", "content": "You are a title generator."},
            {"role": "user", "content": "[status: 500] say: hello"},
        ],
    }

    async def title() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{server.url}/v1/chat/completions", json=body) as got,
        ):
            return got.status

    assert asyncio.run(title()) == 200
    assert server.requests() == []
    assert server.requests(titles=True)[0].ask.is_title


def test_tags_are_read_from_prompts() -> None:
    """Tags may stand anywhere; opencode's quotes do not matter."""
    assert tags('"[tool: ls [a-z]*] [chunk-delay: 0.5] [drop: no] and say: a word"') == {
        "tools": ("ls [a-z]*",),
        "chunk_delay": 0.5,
        "drop": False,
        "say": 'a word"',
    }


def test_the_server_counts_what_is_in_flight(server: Server) -> None:
    """In flight and peak are counted per model and in all."""
    server.plan(hold="middle")
    clients = [Client(server, each, model=f"fake-{each}") for each in DIALECTS]
    with ThreadPoolExecutor(8) as pool:
        for client in clients * 2:
            pool.submit(client.ask, "say: one two three")
        server.until(lambda s: s.held() == 8)
        assert (server.in_flight(), server.in_flight("fake-chat")) == (8, 2)
        server.release("fake-chat")
        server.until(lambda s: s.in_flight("fake-chat") == 0)
        server.release()
    server.until(lambda s: s.in_flight() == 0)

    assert (server.peak(), server.peak("fake-gemini"), server.peak("unknown")) == (8, 2, 0)


def test_one_after_another_is_a_peak_of_one(client: Client) -> None:
    """A client that asks again upon the last bytes never counts as two."""
    for number in range(60):
        client.ask(f"say: {number}")

    assert client.server.peak() == 1


def test_a_client_that_left_is_not_in_flight(client: Client) -> None:
    """Hanging up ends the request, and the record tells it."""
    server = client.server
    connection = client.send("[hold: before]")
    server.until(lambda s: s.held() == 1)
    connection.close()
    server.until(lambda s: s.in_flight() == 0)

    [record] = server.requests()
    assert (record.client_left, record.status) == (True, None)


def test_a_successor_of_one_that_left_is_a_peak_of_one(client: Client) -> None:
    """Leaving is counted before whatever the client does next."""
    server = client.server
    for number in range(30):
        connection = client.send("[hold: before]")
        server.until(lambda s, n=number: len(s.requests()) == n + 1)  # type: ignore[misc]
        connection.close()

    assert server.peak() == 1


def test_a_record_tells_about_its_request(client: Client) -> None:
    """Model, dialect, prompt, tag, status, times."""
    client.ask("say: hello")

    [record] = client.server.requests("fake-1")
    assert (record.ask.dialect, record.ask.streams) == (client.dialect, client.streams)
    assert (record.prompt, record.tag, record.status) == ("say: hello", "hello", 200)
    assert record.ended_at is not None
    assert record.ended_at >= record.started_at
    assert not record.client_left


def test_probes_are_answered_and_noted(server: Server) -> None:
    """Requests that ask no model are answered, and not counted as such."""

    async def probe() -> list[int]:
        async with aiohttp.ClientSession(server.url) as session:
            head = await session.head("/")
            models = await session.get("/t/x/v1/models")
            count = await session.post("/v1/messages/count_tokens?beta=true", json={"a": "b c"})
            other = await session.get("/elsewhere")
            assert (await models.json())["data"][0]["id"] == "fake-1"
            assert (await count.json())["input_tokens"] > 0
            return [each.status for each in (head, models, count, other)]

    assert asyncio.run(probe()) == [200, 200, 200, 404]
    assert server.probes[0] == "HEAD /"
    assert server.requests() == []


def test_a_coroutine_may_wait_for_events(server: Server) -> None:
    """Waiting does not stop the loop that the request itself runs on."""

    async def story() -> str:
        body = {"model": "fake-1", "messages": [{"role": "user", "content": "[hold: before]"}]}
        async with aiohttp.ClientSession(server.url) as session:
            asking = asyncio.create_task(session.post("/v1/chat/completions", json=body))
            await server.until_async(lambda s: s.held() == 1)
            server.release()
            return str((await (await asking).json())["object"])

    assert asyncio.run(story()) == "chat.completion"


def test_waiting_in_vain_tells_what_is(server: Server) -> None:
    """A condition that never holds ends in a message that helps."""
    with pytest.raises(TimeoutError, match="0 in flight, 0 held, 0 requests"):
        server.until(lambda s: s.in_flight() == 1, timeout_seconds=0.01)
