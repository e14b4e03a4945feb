"""A process of its own with many callers of one client: ``python -m tests.transport.caller``.

It takes its part from the first argument as JSON and prints what each caller got, a line each.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
from typing import Any

from tests.transport.sdks import SDKS, Sdk

from headway.stores import book


class Callers:
    """So many of one client, each with a task label and a transport of its own."""

    def __init__(self, part: dict[str, Any]) -> None:
        self._part = part
        lib: Any = importlib.import_module("httpx" if part["sdk"] == "openai" else "httpx2")
        below = lib.HTTPTransport(), lib.AsyncHTTPTransport()
        self._sdks: dict[str, Sdk] = {
            name: SDKS[part["sdk"]](part["url"], None, task=name, below=below)
            for name in part["names"]
        }
        self._printing = threading.Lock()

    def run(self) -> None:
        if self._part.get("wait_for_line"):
            print("ready", flush=True)
            sys.stdin.readline()
        if self._part["how"] == "tasks":
            asyncio.run(self._run_tasks())
            return
        threads = [threading.Thread(target=self._call, args=(name,)) for name in self._sdks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def _run_tasks(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name in self._sdks:
                group.create_task(self._acall(name))

    def _call(self, name: str) -> None:
        sdk, prompt = self._sdks[name], self._prompt(name)
        if not self._streams(name):
            self._say(name, sdk.ask(prompt))
            return
        pieces = []
        for piece in sdk.stream(prompt):
            pieces.append(piece)
            if self._part.get("crash"):
                raise SystemError("a bug in the middle of a stream")
        self._say(name, "".join(pieces))

    async def _acall(self, name: str) -> None:
        sdk, prompt = self._sdks[name], self._prompt(name)
        if self._streams(name):
            self._say(name, "".join([piece async for piece in sdk.astream(prompt)]))
        else:
            self._say(name, await sdk.aask(prompt))

    def _streams(self, name: str) -> bool:
        """Every second one, if the part does not say."""
        streams: bool | None = self._part.get("streams")
        return sum(name.encode()) % 2 == 0 if streams is None else streams

    def _prompt(self, name: str) -> str:
        return str(self._part.get("prompt", "say: {name}")).format(name=name)

    def _say(self, name: str, text: str) -> None:
        with self._printing:
            print(json.dumps({"name": name, "text": text}), flush=True)


def main(part: dict[str, Any]) -> None:
    """Play the part; with minutes as long as it says."""
    book.WINDOW_SECONDS = part.get("minute_seconds", book.WINDOW_SECONDS)
    Callers(part).run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
