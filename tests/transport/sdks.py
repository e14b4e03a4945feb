"""The real clients, each with the one line that has its calls counted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headway.llm import AsyncHeadwayTransport, HeadwayTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from headway import Governor

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the network when it is loaded


PATIENCE_SECONDS = 90.0  # with the network, on a machine that has much to do


class Sdk:
    """One client, plain and async; prompts in, texts out.

    ``below`` are transports, plain and async, that several of them share.
    """

    key: str
    model: str

    def __init__(
        self, url: str, governor: Governor | None, *, below: Any = (None, None), **options: Any
    ) -> None:
        provider = self.key.split("/")[1]
        self._url = url
        self._transport = HeadwayTransport(provider, governor, below[0], **options)
        self._async_transport = AsyncHeadwayTransport(provider, governor, below[1], **options)

    def ask(self, prompt: str) -> str:
        raise NotImplementedError

    def stream(self, prompt: str) -> Iterator[str]:
        raise NotImplementedError

    async def aask(self, prompt: str) -> str:
        raise NotImplementedError

    def astream(self, prompt: str) -> AsyncIterator[str]:
        raise NotImplementedError


class OpenAI(Sdk):
    """Chat completions, on httpx."""

    key, model = "llm/openai/fake-1", "fake-1"

    def __init__(self, url: str, governor: Governor | None, **options: Any) -> None:
        import openai  # noqa: PLC0415 - each of them takes seconds to load

        super().__init__(url, governor, **options)
        login = _login(f"{url}/v1")
        http = openai.DefaultHttpxClient(transport=self._transport)
        ahttp = openai.DefaultAsyncHttpxClient(transport=self._async_transport)
        self.client = openai.OpenAI(http_client=http, **login)
        self.aclient = openai.AsyncOpenAI(http_client=ahttp, **login)

    def ask(self, prompt: str) -> str:
        answer = self.client.chat.completions.create(**self._asking(prompt))
        return str(answer.choices[0].message.content)

    def stream(self, prompt: str) -> Iterator[str]:
        for chunk in self.client.chat.completions.create(**self._asking(prompt), stream=True):
            yield _said(chunk)

    async def aask(self, prompt: str) -> str:
        answer = await self.aclient.chat.completions.create(**self._asking(prompt))
        return str(answer.choices[0].message.content)

    async def astream(self, prompt: str) -> AsyncIterator[str]:
        chunks = await self.aclient.chat.completions.create(**self._asking(prompt), stream=True)
        async for chunk in chunks:
            yield _said(chunk)

    def _asking(self, prompt: str) -> Any:
        return {"model": self.model, "messages": [{"role": "user", "content": prompt}]}


class Responses(OpenAI):
    """The same client's newer dialect, on httpx2, which it takes as well."""

    def __init__(self, url: str, governor: Governor | None, **options: Any) -> None:
        import openai  # noqa: PLC0415

        super().__init__(url, governor, **options)
        login = _login(f"{url}/v1")
        http = openai.DefaultHttpx2Client(transport=self._transport)
        ahttp = openai.DefaultAsyncHttpx2Client(transport=self._async_transport)
        self.client = openai.OpenAI(http_client=http, **login)
        self.aclient = openai.AsyncOpenAI(http_client=ahttp, **login)

    def ask(self, prompt: str) -> str:
        return self.client.responses.create(model=self.model, input=prompt).output_text

    def stream(self, prompt: str) -> Iterator[str]:
        for event in self.client.responses.create(model=self.model, input=prompt, stream=True):
            yield event.delta if event.type == "response.output_text.delta" else ""

    async def aask(self, prompt: str) -> str:
        return (await self.aclient.responses.create(model=self.model, input=prompt)).output_text

    async def astream(self, prompt: str) -> AsyncIterator[str]:
        events = await self.aclient.responses.create(model=self.model, input=prompt, stream=True)
        async for event in events:
            yield event.delta if event.type == "response.output_text.delta" else ""


class Anthropic(Sdk):
    """Messages, on httpx2."""

    key, model = "llm/anthropic/claude-fake", "claude-fake"

    def __init__(self, url: str, governor: Governor | None, **options: Any) -> None:
        import anthropic  # noqa: PLC0415

        super().__init__(url, governor, **options)
        login = _login(url)
        http = anthropic.DefaultHttpxClient(transport=self._transport)
        ahttp = anthropic.DefaultAsyncHttpxClient(transport=self._async_transport)
        self.client = anthropic.Anthropic(http_client=http, **login)
        self.aclient = anthropic.AsyncAnthropic(http_client=ahttp, **login)

    def ask(self, prompt: str) -> str:
        answer = self.client.messages.create(**self._asking(prompt))
        return "".join(block.text for block in answer.content)

    def stream(self, prompt: str) -> Iterator[str]:
        with self.client.messages.stream(**self._asking(prompt)) as events:
            yield from events.text_stream

    async def aask(self, prompt: str) -> str:
        answer = await self.aclient.messages.create(**self._asking(prompt))
        return "".join(block.text for block in answer.content)

    async def astream(self, prompt: str) -> AsyncIterator[str]:
        async with self.aclient.messages.stream(**self._asking(prompt)) as events:
            async for text in events.text_stream:
                yield text

    def _asking(self, prompt: str) -> Any:
        said = [{"role": "user", "content": prompt}]
        return {"model": self.model, "max_tokens": 99, "messages": said}


class Gemini(Sdk):
    """google-genai, which makes its own httpx2 clients around a transport."""

    key, model = "llm/gemini/gemini-fake", "gemini-fake"

    def __init__(self, url: str, governor: Governor | None, **options: Any) -> None:
        from google import genai  # noqa: PLC0415
        from google.genai import types  # noqa: PLC0415

        super().__init__(url, governor, **options)
        http_options = types.HttpOptions(
            base_url=url,
            client_args={"transport": self._transport},
            async_client_args={"transport": self._async_transport},
        )
        self.client = genai.Client(api_key="x", http_options=http_options)

    def ask(self, prompt: str) -> str:
        return str(self.client.models.generate_content(model=self.model, contents=prompt).text)

    def stream(self, prompt: str) -> Iterator[str]:
        chunks = self.client.models.generate_content_stream(model=self.model, contents=prompt)
        for chunk in chunks:
            yield chunk.text or ""

    async def aask(self, prompt: str) -> str:
        models = self.client.aio.models
        return str((await models.generate_content(model=self.model, contents=prompt)).text)

    async def astream(self, prompt: str) -> AsyncIterator[str]:
        models = self.client.aio.models
        chunks = await models.generate_content_stream(model=self.model, contents=prompt)
        async for chunk in chunks:
            yield chunk.text or ""


class LiteLLM(Sdk):
    """litellm, whose OpenAI-like providers go through its sessions, on httpx."""

    key, model = "llm/openai/fake-1", "fake-1"

    def __init__(self, url: str, governor: Governor | None, **options: Any) -> None:
        import httpx  # noqa: PLC0415
        import litellm  # noqa: PLC0415

        super().__init__(url, governor, **options)
        litellm.client_session = httpx.Client(transport=self._transport)
        litellm.aclient_session = httpx.AsyncClient(transport=self._async_transport)
        self._litellm: Any = litellm
        self._litellm.in_memory_llm_clients_cache.flush_cache()  # of clients on other sessions

    def ask(self, prompt: str) -> str:
        answer = self._litellm.completion(**self._asking(prompt))
        return str(answer.choices[0].message.content)

    def stream(self, prompt: str) -> Iterator[str]:
        for chunk in self._litellm.completion(**self._asking(prompt), stream=True):
            yield _said(chunk)

    async def aask(self, prompt: str) -> str:
        answer = await self._litellm.acompletion(**self._asking(prompt))
        return str(answer.choices[0].message.content)

    async def astream(self, prompt: str) -> AsyncIterator[str]:
        async for chunk in await self._litellm.acompletion(**self._asking(prompt), stream=True):
            yield _said(chunk)

    def _asking(self, prompt: str) -> dict[str, Any]:
        said = [{"role": "user", "content": prompt}]
        login = {"api_key": "x", "api_base": f"{self._url}/v1", "num_retries": 0}
        return {"model": f"openai/{self.model}", "messages": said, **login}


def _login(url: str) -> Any:
    return {"api_key": "x", "base_url": url, "max_retries": 0, "timeout": PATIENCE_SECONDS}


def _said(chunk: Any) -> str:
    return "".join(choice.delta.content or "" for choice in chunk.choices)


SDKS: dict[str, type[Sdk]] = {
    "openai": OpenAI,
    "openai-responses": Responses,
    "anthropic": Anthropic,
    "google-genai": Gemini,
    "litellm": LiteLLM,
}
