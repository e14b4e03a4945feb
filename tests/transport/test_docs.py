"""The pages about LLM calls: every program as written, against the model server."""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until
from tests.transport.pages import (
    CLIENTS,
    FRAMEWORKS,
    OVERVIEW,
    PAGES,
    ROOT,
    VERSIONS,
    Page,
    plain,
    try_program,
)

import headway
from headway import config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.llm.server import Server
    from tests.transport.pages import Desk

    from headway import Governor

pytestmark = pytest.mark.timeout(300)

PROGRAMS = [(page, number) for page in PAGES for number in range(len(page.blocks("python")))]
OTHER_VERSIONS = [
    (page, number, versions)
    for page, number in PROGRAMS
    for versions in VERSIONS
    if "litellm" not in page.path
]
# What goes wrong, and what the page's program has to make of it.
TROUBLES = {
    "full": "not sent: no slot on KEY within 1 s of queueing",
    "cooling": "not sent: KEY is cooling until ",
    "refused": "the provider answered 429",
    "slow": "the provider was too slow",
}


def named(value: object) -> str | None:
    """How pages are called in the names of tests."""
    return value.path if isinstance(value, Page) else None


@pytest.fixture
def governor() -> Iterator[Governor]:
    """The home's, to look from outside."""
    with headway.Governor() as governor:
        yield governor


def test_no_page_is_left_out() -> None:
    """Each is tried, and has something to try."""
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "llm").iterdir()}

    assert there == {page.path for page in (*CLIENTS, *FRAMEWORKS)}
    for page in (*PAGES, *FRAMEWORKS):
        assert page.blocks("python"), f"{page.path} has no program"
        tried = {"python", "sh", "text", *(["toml"] if page is OVERVIEW else [])}
        assert set(re.findall(r"^ *```(.+)$", page.text, re.MULTILINE)) <= tried, page.path
    for page in (*CLIENTS, *FRAMEWORKS):
        assert page.commands, f"{page.path} sets no limit"


@pytest.mark.parametrize("page", [*PAGES, *FRAMEWORKS], ids=named)
def test_every_link_leads_somewhere(page: Page) -> None:
    """To pages and examples."""
    links = re.findall(r"\]\(([^)#]+)\)", page.text)

    assert links
    assert [link for link in links if not (ROOT / page.path).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize(("page", "number"), PROGRAMS, ids=named)
def test_a_program_runs_as_written_and_its_calls_are_counted(
    desk: Desk, governor: Governor, server: Server, page: Page, number: int
) -> None:
    """It waits while its key is paused, then prints the answers; the home counts every call."""
    try_program(desk, governor, server, page, number)


@pytest.mark.parametrize(("page", "number", "versions"), OTHER_VERSIONS, ids=named)
def test_a_program_runs_with_the_oldest_and_the_newest_sdk(  # noqa: PLR0917
    desk: Desk, governor: Governor, server: Server, page: Page, number: int, versions: str
) -> None:
    """The same, for users whose SDK is not the one of the development environment."""
    desk.use(versions)
    try_program(desk, governor, server, page, number)


@pytest.mark.soak
@pytest.mark.parametrize("page", CLIENTS, ids=named)
def test_status_shows_what_the_page_shows(
    desk: Desk, governor: Governor, server: Server, page: Page
) -> None:
    """While its async program runs, which never goes over the page's limit."""
    (program,) = [each for each in page.blocks("python") if "asyncio" in each]
    running, waiting = (
        int(number)
        for number in re.findall(r"^(\d+) (?:running|waiting)$", page.shown, re.MULTILINE)
    )
    desk.prepare(page)
    server.plan(hold="before")
    process = desk.starts(program)
    until(lambda: _all_asked(governor, running + waiting) or process.poll() is not None)
    server.until(lambda s: s.held() == len(governor.snapshot().leases))

    shown = desk.types("headway status")
    server.release(later_too=True)
    desk.end(process)

    assert sorted(plain(shown)) == sorted(plain(page.shown)), shown
    assert server.peak() == running


def _all_asked(governor: Governor, count: int) -> bool:
    snapshot = governor.snapshot()
    return len(snapshot.leases) + len(snapshot.waiting) == count


def test_status_shows_a_cool_down_as_the_overview_does(
    desk: Desk, governor: Governor, server: Server
) -> None:
    """One process was refused, another waits; and the command that ends it, ends it."""
    (key,), (program, *_) = OVERVIEW.keys, OVERVIEW.blocks("python")
    (resume,) = re.findall(r"`(headway resume \S+)`", OVERVIEW.text)
    desk.prepare(OVERVIEW)
    server.plan(status=429, retry_after="100", times=1)
    desk.starts(program)  # its client sleeps for as long as it was told
    until(lambda: any(row.key == key and row.cooling_until for row in governor.snapshot().limits))
    process = desk.starts(program)
    until(lambda: governor.snapshot().waiting)

    shown = desk.types("headway status")
    desk.types(resume)

    assert plain(shown) == plain(OVERVIEW.shown), shown
    assert "you said: Who goes next?" in desk.end(process)


@pytest.mark.soak  # twenty programs, each of which loads its client anew
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize(
    ("page", "versions"),
    [
        (page, versions)
        for page in CLIENTS
        for versions in (None, *VERSIONS)
        if versions is None or "litellm" not in page.path
    ],
    ids=named,
)
def test_a_program_tells_errors_apart(  # noqa: PLR0917
    desk: Desk, governor: Governor, server: Server, page: Page, versions: str | None, trouble: str
) -> None:
    """Our queue and our refusal, the provider's refusal and its slowness."""
    (program,) = [each for each in page.blocks("python") if "the provider was too slow" in each]
    if versions is not None:
        desk.use(versions)
    desk.prepare(page)

    with in_trouble(trouble, governor, server, page.keys[0]):
        printed = desk.end(desk.starts(program))

    assert printed.startswith(TROUBLES[trouble].replace("KEY", page.keys[0])), printed
    assert len(server.requests()) == (trouble in {"refused", "slow"})


@contextmanager
def in_trouble(trouble: str, governor: Governor, server: Server, key: str) -> Iterator[None]:
    """For as long as the block lasts."""
    with ExitStack() as until_then:
        if trouble == "full":
            until_then.enter_context(governor.slot(key.rpartition("/")[0], weight=2))
        elif trouble == "cooling":
            governor.cool_down(key, 3600, reason="429")
        elif trouble == "refused":
            server.plan(status=429)
        else:
            server.plan(hold="before")
        yield


def test_settings_can_be_loaded(tmp_path: Path) -> None:
    """Limits, budgets, cool-downs and providers, as the overview has them."""
    (settings,) = OVERVIEW.blocks("toml")
    (tmp_path / "config.toml").write_text(settings)

    loaded = config.load(str(tmp_path), {})

    assert {line.pattern: line.written() for line in loaded.lines} == tomllib.loads(settings)[
        "limits"
    ]
    assert loaded.max_cooling_seconds == 300
    assert loaded.providers["localhost:11434"] == "ollama"


@pytest.mark.parametrize("versions", [None, *VERSIONS])
def test_the_example_runs_without_an_account(desk: Desk, versions: str | None) -> None:
    """Thirty answers over two models; some had to wait."""
    del desk.environ["OPENAI_API_KEY"], desk.environ["OPENAI_BASE_URL"]
    if versions is not None:
        desk.use(versions)

    printed = desk.types(f"python {ROOT / 'examples' / 'llm_fan_out.py'}")

    lines = printed.splitlines()
    assert sorted(int(line.split()[0].removeprefix("prompt-")) for line in lines) == [*range(1, 31)]
    assert {line.split()[1] for line in lines} == {"gpt-5-mini", "gpt-5-nano"}
    assert any("waited  0.0 s" not in line for line in lines)
    assert not os.path.exists(desk.environ["HEADWAY_HOME"]), "it needs no home"


@pytest.mark.parametrize("versions", [None, *VERSIONS])
@pytest.mark.parametrize("page", CLIENTS[:2], ids=named)
def test_a_cut_stream_is_recognised_as_the_page_says(
    desk: Desk, server: Server, page: Page, versions: str | None
) -> None:
    """By the error itself or by its cause, whichever the version of the SDK raises."""
    (program,) = [each for each in page.blocks("python") if "TruncatedStream" in each]
    if versions is not None:
        desk.use(versions)
    desk.prepare(page)
    server.plan(words=10, cut="clean")

    printed = desk.end(desk.starts(program))

    assert "the stream was cut" in printed


def test_the_example_counts_in_the_home_with_an_account(
    desk: Desk, governor: Governor, server: Server
) -> None:
    """Never more than four of its calls are in flight."""
    server.plan(hold="before")
    process = desk.starts((ROOT / "examples" / "llm_fan_out.py").read_text(encoding="utf-8"))
    server.until(lambda s: s.held() == 4)
    until(lambda: len(governor.snapshot().waiting) == 26)
    tasks = {row.task for row in governor.snapshot().leases + governor.snapshot().waiting}

    server.release(later_too=True)

    assert tasks == {f"prompt-{number}" for number in range(1, 31)}
    assert len(desk.end(process).splitlines()) == 30
    assert server.peak() == 4
