"""Writing ``config.toml`` so that a person's comments and order survive."""

from __future__ import annotations

import os

from headway import config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tomlkit import TOMLDocument


class SettingsFile:
    """The file of one home. Changes are atomic; callers hold the store's guard."""

    __slots__ = ("path",)

    def __init__(self, home: str) -> None:
        self.path = os.path.join(home, config.FILE_NAME)

    def set_limit(self, key: str, limit: int | str) -> None:
        document = self._read()
        document.setdefault("limits", _table())[key] = limit
        self._write(document)

    def unset_limit(self, key: str) -> None:
        document = self._read()
        if document.get("limits", {}).pop(key, None) is not None:
            self._write(document)

    def pause(self, key: str) -> None:
        document = self._read()
        paused = document.get("paused", [])
        if key not in paused:
            self._write(self._with_paused(document, [*paused, key]))

    def resume(self, key: str) -> None:
        document = self._read()
        paused = document.get("paused", [])
        if key in paused:
            self._write(self._with_paused(document, [other for other in paused if other != key]))

    def _with_paused(self, document: TOMLDocument, paused: list[str]) -> TOMLDocument:
        if "paused" in document:
            document["paused"] = paused
            return document
        # A plain value has to stand before the first table.
        import tomlkit  # noqa: PLC0415

        return tomlkit.parse(tomlkit.dumps({"paused": paused}) + tomlkit.dumps(document))

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
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(tomlkit.dumps(document))
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise


def _table() -> dict[str, object]:
    import tomlkit  # noqa: PLC0415

    return tomlkit.table()
