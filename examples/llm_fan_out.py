"""Thirty prompts over two models, never more than four calls in flight.

python examples/llm_fan_out.py

With OPENAI_API_KEY in the environment the calls are real and count in your home; without it
they go to a stand-in on this machine: no account, no cost.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import openai

from headway import Governor
from headway.events import Granted
from headway.llm import AsyncHeadwayTransport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.events import Event

LIMITS = {"llm/openai": 4}
MODELS = ("gpt-5-mini", "gpt-5-nano")
PROMPTS = [f"In one line: what is special about {n}?" for n in range(1, 31)]


class StandIn(BaseHTTPRequestHandler):
    """A provider that answers chat completions with an echo, after a moment."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(random.uniform(0.1, 0.3))
        said = {"role": "assistant", "content": "You said: " + asked["messages"][-1]["content"]}
        choice = {"index": 0, "finish_reason": "stop", "message": said}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"]}
        body = json.dumps({**answer, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named so there
        """Nothing; the answers are what is to be seen."""


@contextmanager
def stand_in() -> Iterator[str]:
    """Its base URL, for as long as the block lasts."""
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


async def fan_out(governor: Governor, base_url: str | None, api_key: str | None) -> None:
    """Ask everything at once; the limit decides how many are sent."""
    waited: defaultdict[str | None, float] = defaultdict(float)

    def hear(event: Event) -> None:
        if isinstance(event, Granted):  # again, if the provider refused and the SDK retried
            waited[event.task] += event.waited_seconds

    async def ask(number: int, prompt: str) -> None:
        # One client for each prompt, so that each has a label of its own in `headway status`.
        task, model = f"prompt-{number}", MODELS[number % len(MODELS)]
        transport = AsyncHeadwayTransport("openai", governor, task=task)
        http_client = openai.DefaultAsyncHttpxClient(transport=transport)
        async with openai.AsyncOpenAI(
            http_client=http_client, base_url=base_url, api_key=api_key
        ) as client:
            answer = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": prompt}]
            )
        text = (answer.choices[0].message.content or "").replace("\n", " ")
        print(f"{task:9}  {model}  waited {waited[task]:4.1f} s  {text[:60]}", flush=True)

    governor.subscribe(hear)
    async with asyncio.TaskGroup() as group:
        for number, prompt in enumerate(PROMPTS, start=1):
            group.create_task(ask(number, prompt))


def main() -> None:
    """Really, or against the stand-in."""
    if os.environ.get("OPENAI_API_KEY"):
        with Governor(limits=LIMITS) as governor:  # where your home has no limit of its own
            asyncio.run(fan_out(governor, None, None))
        return
    with stand_in() as url, Governor("memory://", limits=LIMITS) as governor:
        asyncio.run(fan_out(governor, url, "none"))


if __name__ == "__main__":
    main()
