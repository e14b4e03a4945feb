"""The pages about frameworks: every program as written, with the framework's real package."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import running
from tests.transport.pages import FRAMEWORKS, Page, try_program

import headway

if TYPE_CHECKING:
    from pathlib import Path

    from tests.llm.server import Server
    from tests.transport.pages import Desk

pytestmark = pytest.mark.timeout(300)

_BY_TRANSPORT = [
    (page, number)
    for page in FRAMEWORKS
    for number, program in enumerate(page.blocks("python"))
    if "ChatAnthropic" not in program
]


def _named(value: object) -> str | None:
    return value.path if isinstance(value, Page) else None


@pytest.mark.parametrize(("page", "number"), _BY_TRANSPORT, ids=_named)
def test_a_program_runs_as_written_and_its_calls_are_counted(
    desk: Desk, server: Server, page: Page, number: int
) -> None:
    """It waits while its key is paused, then prints the answers; the home counts every call."""
    desk.use(FRAMEWORKS[page])
    if "instructor" in page.path:  # its answers are JSON
        server.plan(say=json.dumps({"text": "you said: Who goes next?"}))

    with headway.Governor() as governor:
        try_program(desk, governor, server, page, number)


def test_langchain_reaches_anthropic_through_the_gateway(
    desk: Desk, home: str, server: Server, tmp_path: Path
) -> None:
    """With nothing but the variable that ``headway gateway env claude`` prints."""
    (page,) = [page for page in FRAMEWORKS if "langchain" in page.path]
    ((number, _),) = [
        (number, program)
        for number, program in enumerate(page.blocks("python"))
        if "ChatAnthropic" in program
    ]
    desk.use(FRAMEWORKS[page])

    with running(tmp_path / home, {"anthropic": server.url}) as gateway:
        command = f"headway gateway env claude --port {gateway.port}"
        printed = desk.types(f'eval "$({command})"; echo "$ANTHROPIC_BASE_URL"')
        desk.environ["ANTHROPIC_BASE_URL"] = printed.strip()
        with headway.Governor() as governor:
            try_program(desk, governor, server, page, number)
