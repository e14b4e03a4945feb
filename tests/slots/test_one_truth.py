"""A home's file and what is in force never part, whoever reads and writes at once (rule 12)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Worker

from headway import ConfigError, Governor, config

if TYPE_CHECKING:
    from collections.abc import Callable


def _change_while_reading(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]
) -> Callable[[], None]:
    """Have the file changed right after it is read next; call the answer to wait for the change.

    Who is kept out while the file is read makes the change as soon as it is let in.
    """
    read, workers = config.load, list[Worker[None]]()

    def read_and_be_overtaken(*args: Any, **options: Any) -> config.Settings:
        monkeypatch.setattr(config, "load", read)
        settings = read(*args, **options)
        workers.append(Worker(change))
        workers[0].join(0.2)
        return settings

    monkeypatch.setattr(config, "load", read_and_be_overtaken)

    def wait_for_the_change() -> None:
        workers.pop().result()

    return wait_for_the_change


@pytest.mark.parametrize("way", ["opening", "reloading"])
@pytest.mark.parametrize("change", ["limit", "no limit", "pause", "resume"])
def test_what_is_set_while_another_reads_the_file_stays_set(
    home: str, monkeypatch: pytest.MonkeyPatch, way: str, change: str
) -> None:
    """Whoever opens or reloads with an old reading of the file undoes nothing."""
    with Governor(f"sqlite:///{home}") as one, Governor(f"sqlite:///{home}") as other:
        one.set_limit("llm", 5)
        one.pause("k")
        changed = _change_while_reading(
            monkeypatch,
            {
                "limit": lambda: one.set_limit("llm", 1),
                "no limit": lambda: one.unset_limit("llm"),
                "pause": lambda: one.pause("llm"),
                "resume": lambda: one.resume("k"),
            }[change],
        )

        if way == "opening":
            Governor(f"sqlite:///{home}").close()
        else:
            other.reload()
        changed()

        written = config.load(home, {})
        assert one.lines() == list(written.lines)
        paused = {row.key for row in one.snapshot().limits if row.paused}
        assert paused == written.paused


def test_a_file_broken_while_the_home_is_opened_is_refused(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was in force stays so, and the one who was refused leaves no holder behind."""
    with Governor(f"sqlite:///{home}") as one:
        one.set_limit("llm", 5)
        read, path = config.load, os.path.join(home, config.FILE_NAME)

        def read_and_break(*args: Any, **options: Any) -> config.Settings:
            monkeypatch.setattr(config, "load", read)
            with open(path, "w", encoding="utf-8") as file:
                file.write("[limits]\nllm = 1\n")
            settings = read(*args, **options)
            with open(path, "w", encoding="utf-8") as file:
                file.write("[limits\n")
            return settings

        monkeypatch.setattr(config, "load", read_and_break)
        with pytest.raises(ConfigError, match="not valid TOML"):
            Governor(f"sqlite:///{home}")

        assert one.capacity("llm").limit == 5
        assert len(one._store._home.live.holders()) == 1  # type: ignore[attr-defined]
