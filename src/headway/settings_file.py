"""Writing ``config.toml`` so that a person's comments and order survive."""

from __future__ import annotations

import os

from headway import config, ownership, parsed_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tomlkit import TOMLDocument
    from tomlkit.items import Array

    from headway.limits import Written


class SettingsFile:
    """The file of one home. Changes are atomic; callers hold the store's guard."""

    __slots__ = ("path",)

    def __init__(self, home: str) -> None:
        self.path = os.path.join(home, config.FILE_NAME)

    def set_limit(self, key: str, limit: Written) -> None:
        """Write parts of a key's line; those that it has besides stay, and so do comments."""
        document = self._read()
        table = document.setdefault("limits", _table())
        present = table.get(key)
        if isinstance(present, dict):
            present.update(_parts(limit))
        elif present is not None and isinstance(limit, dict):
            table[key] = _inline({"slots": present, **limit})
        else:
            table[key] = _inline(limit)
        self._write(document)

    def unset_limit(self, key: str) -> None:
        document = self._read()
        if document.get("limits", {}).pop(key, None) is not None:
            self._write(document)

    def pause(self, key: str) -> None:
        document = self._read()
        if "paused" not in document:
            self._write(_with_list(document, [key]))
        elif key not in document["paused"]:
            paused = [*document["paused"], key]
            self._write(_edited(document, paused, _at_the_end(key), _in_front(key)))

    def resume(self, key: str) -> None:
        document = self._read()
        if key in document.get("paused", []):
            paused = [other for other in document["paused"] if other != key]
            self._write(_edited(document, paused, _without(key)))

    def _read(self) -> TOMLDocument:
        """The file as it is; one with problems is for a person to mend first."""
        import tomlkit  # noqa: PLC0415 - only those who change settings need it

        config.load(os.path.dirname(self.path), environ={})
        try:
            with open(self.path, encoding="utf-8", newline="") as file:
                return tomlkit.parse(file.read())
        except FileNotFoundError:
            return tomlkit.document()

    def _write(self, document: TOMLDocument) -> None:
        import tomlkit  # noqa: PLC0415

        # Where the file is a link (a person's dotfiles), what it points to is replaced.
        target = os.path.realpath(self.path)
        draft = f"{target}.{os.getpid()}.new"
        descriptor = ownership.create(draft, os.O_WRONLY | os.O_TRUNC)
        try:
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                self._keep_owner(descriptor, target)
                file.write(tomlkit.dumps(document))
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            try:
                os.unlink(draft)
            except FileNotFoundError:
                pass  # Ctrl-C struck when it was in its place already
            raise

    @staticmethod
    def _keep_owner(descriptor: int, target: str) -> None:
        try:
            replaced = os.stat(target)
        except FileNotFoundError:
            # Nobody would believe the new file where others can replace it.
            ownership.refuse_foreign(target, None, parsed_file.DANGER)
        else:
            ownership.keep_owner(descriptor, replaced)


def _edited(
    document: TOMLDocument, paused: list[str], *edits: Callable[[Array], None]
) -> TOMLDocument:
    """The document with these keys paused, by the first edit of the list that comes out right.

    A list is laid out as a person likes it, and tomlkit does not understand every layout.
    """
    import tomlkit  # noqa: PLC0415

    text = tomlkit.dumps(document)
    for edit in edits:
        draft = tomlkit.parse(text)
        edit(draft["paused"])
        if sorted(_paused_in(tomlkit.dumps(draft))) == sorted(paused):
            return draft
    document["paused"] = paused
    return document


def _at_the_end(key: str) -> Callable[[Array], None]:
    return lambda paused: paused.append(key)


def _in_front(key: str) -> Callable[[Array], None]:
    return lambda paused: paused.insert(0, key)


def _without(key: str) -> Callable[[Array], None]:
    def edit(paused: Array) -> None:
        while key in paused:
            del paused[paused.index(key)]

    return edit


def _paused_in(text: str) -> list[str]:
    import tomllib  # noqa: PLC0415

    try:
        return list(tomllib.loads(text)["paused"])
    except tomllib.TOMLDecodeError:
        return []


def _with_list(document: TOMLDocument, paused: list[str]) -> TOMLDocument:
    """The document with a list at its top: a plain value has to stand before the first table."""
    import tomlkit  # noqa: PLC0415

    return tomlkit.parse(tomlkit.dumps({"paused": paused}) + tomlkit.dumps(document))


def _parts(limit: Written) -> dict[str, int | str]:
    return limit if isinstance(limit, dict) else {"slots": limit}


def _inline(limit: Written) -> object:
    """A limit as it stands behind its key, in one line."""
    if not isinstance(limit, dict):
        return limit
    import tomlkit  # noqa: PLC0415

    table = tomlkit.inline_table()
    table.update(limit)
    return table


def _table() -> dict[str, object]:
    import tomlkit  # noqa: PLC0415

    return tomlkit.table()
