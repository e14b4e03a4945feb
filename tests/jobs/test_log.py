"""The output of an attempt on disk: what is kept of it, and how it is followed."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.jobs import log
from headway.jobs.log import Follower, LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

chunks = st.lists(st.binary(max_size=60), max_size=30)
# Any cap, small enough for all parts to be cut often.
caps = st.integers(1, 200)
relaxed = settings(deadline=None)
MARK = re.compile(rb"\n\[headway: (\d+) bytes were cut here\]\n")


def mark(count: int) -> bytes:
    """What stands where so much was cut."""
    return b"\n[headway: %d bytes were cut here]\n" % count


def rooms(cap: int) -> tuple[int, int]:
    """How long the beginning is, and how long each of the later pieces."""
    return max(1, cap // 2), max(1, cap // 4)


def tail_start(total: int, cap: int) -> int:
    """Where the part begins that is kept besides the beginning."""
    head, piece = rooms(cap)
    later = -(-max(0, total - head) // piece)
    return min(total, head + max(0, later - 2) * piece)


def kept(output: bytes, cap: int) -> bytes:
    """What a reader has to find."""
    head, start = output[: rooms(cap)[0]], tail_start(len(output), cap)
    cut = start - len(head)
    return head + (mark(cut) if cut else b"") + output[start:]


def written(path: str, output: Iterable[bytes], cap: int) -> LogWriter:
    """A writer that has written this and is not closed."""
    writer = LogWriter(path, cap)
    for chunk in output:
        writer.write(chunk)
    return writer


def kill(writer: LogWriter) -> None:
    """What the kernel does for a writer that was killed."""
    if writer._file is not None:
        writer._file.close()


def stream(length: int) -> bytes:
    """Output in which every place looks different from its neighbours and none like a mark."""
    return bytes(33 + (place * 31 + place // 57) % 57 for place in range(length))


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where the log is to be."""
    return log.path_of(str(tmp_path), 16, 1)


class Away:
    """A directory that is gone after the block; hypothesis shares fixtures between examples."""

    def __enter__(self) -> str:
        self._directory = tempfile.TemporaryDirectory()
        return log.path_of(self._directory.name, 16, 1)

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()


# -- what is kept ----------------------------------------------------------------------------


@relaxed
@given(chunks, caps)
def test_the_beginning_and_the_end_are_kept_whatever_comes_in(
    output: list[bytes], cap: int
) -> None:
    """Byte by byte, the cut is marked with the true number, and the size is bounded."""
    with Away() as path:
        writer = LogWriter(path, cap)
        so_far = b""
        for chunk in output:
            writer.write(chunk)
            so_far += chunk
            assert b"".join(log.read(path)) == kept(so_far, cap)
            used = sum(os.stat(f"{path}.{start}").st_size for start, _ in log._pieces(path))
            assert used <= max(cap, 3)
        writer.close()

        assert writer.written == len(so_far)
        assert writer.trouble is None
        assert b"".join(log.read(path)) == Path(path).read_bytes() == kept(so_far, cap)
        assert os.listdir(os.path.dirname(path)) == ["16.1.log"]
        assert kept(so_far, cap).endswith(so_far[-rooms(cap)[1] :] if len(so_far) > cap else b"")


@relaxed
@given(output=chunks, cap=caps, is_killed_while_joining=st.booleans())
def test_what_a_killed_writer_left_is_joined_later(
    *, output: list[bytes], cap: int, is_killed_while_joining: bool
) -> None:
    """Nothing that was on disk is lost; joining twice does no harm."""
    with Away() as path:
        kill(written(path, output, cap))
        if is_killed_while_joining and len(log._pieces(path)) > 1:
            Path(f"{path}.new").write_bytes(b"half of it")
        wanted = kept(b"".join(output), cap)
        log.join(path)
        log.join(path)

        assert b"".join(log.read(path)) == wanted
        assert os.listdir(os.path.dirname(path)) == ["16.1.log"]


def test_pieces_that_a_killed_writer_had_joined_are_removed(path: str) -> None:
    """The one file is complete when it has its name."""
    kill(written(path, [b"x" * 1000], 100))
    Path(path).write_bytes(b"complete")
    log.join(path)

    assert b"".join(log.read(path)) == b"complete"
    assert os.listdir(os.path.dirname(path)) == ["16.1.log"]


def test_a_note_is_a_line_of_ours(path: str) -> None:
    """It counts as output."""
    writer = written(path, [b"a\n"], 100)
    writer.note("careful")
    writer.close()

    assert Path(path).read_bytes() == b"a\n[headway: careful]\n"
    assert writer.written == 21


def test_only_the_owner_can_read_it(path: str) -> None:
    """While it grows and afterwards, whatever the umask."""
    before = os.umask(0)
    try:
        writer = written(path, [b"x" * 1000], 100)
        modes = {stat.S_IMODE(os.stat(f"{path}.{start}").st_mode) for start, _ in log._pieces(path)}
        writer.close()
    finally:
        os.umask(before)

    assert modes == {0o600}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_a_log_that_is_not_there_is_empty(path: str) -> None:
    """Also when there is no directory for it; joining and removing it do nothing."""
    assert b"".join(log.read(path)) == b""
    log.join(path)
    log.remove(path)
    assert b"".join(Follower(path).new()) == b""
    assert not os.path.exists(os.path.dirname(path))


@pytest.mark.parametrize("is_closed", [False, True])
def test_removing_takes_one_attempts_output_and_no_other(
    tmp_path: Path, *, is_closed: bool
) -> None:
    """In pieces or joined."""
    paths = [log.path_of(str(tmp_path), *which) for which in ((1, 1), (1, 11), (11, 1), (1, 2))]
    writers = [written(path, [b"x" * 500], 100) for path in paths]
    for writer in writers:
        if is_closed:
            writer.close()
        kill(writer)
    Path(f"{paths[0]}.new").write_bytes(b"half of it")

    log.remove(paths[0])

    assert not [name for name in os.listdir(tmp_path / "logs") if name.startswith("1.1.log")]
    assert all(len(b"".join(log.read(path))) > 100 for path in paths[1:])


def test_who_reads_while_the_pieces_are_joined_reads_everything(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pieces that it saw are gone when it opens them."""
    writer = written(path, [stream(1000)], 100)
    pieces = log._pieces

    def joined_meanwhile(path: str) -> list[tuple[int, str]]:
        found = pieces(path)
        monkeypatch.setattr(log, "_pieces", pieces)
        writer.close()
        return found

    monkeypatch.setattr(log, "_pieces", joined_meanwhile)

    assert b"".join(log.read(path)) == kept(stream(1000), 100)


# -- following -------------------------------------------------------------------------------


class Watcher:
    """A follower whose every byte is checked against what was written and kept."""

    def __init__(self, path: str, cap: int) -> None:
        self._follower, self._cap = Follower(path), cap
        self._place = 0

    def look(self, output: bytes, *, is_over: bool = False) -> None:
        """See everything new that is on disk; only what is not may be marked as cut."""
        found = b"".join(self._follower.rest() if is_over else self._follower.new())
        head, start = rooms(self._cap)[0], tail_start(len(output), self._cap)
        for number, part in enumerate(MARK.split(found)):
            if number % 2 == 0:
                assert part == output[self._place : self._place + len(part)]
                self._place += len(part)
                continue
            cut_to = self._place + int(part)
            assert cut_to == start
            assert self._place >= min(head, len(output))
            self._place = cut_to
        assert self._place == len(output)

    def close(self) -> None:
        self._follower.close()


@relaxed
@given(
    lengths=st.lists(st.integers(0, 60), max_size=40),
    cap=caps,
    looks=st.sets(st.integers(0, 39)),
    is_killed=st.booleans(),
)
def test_a_follower_sees_all_that_was_kept_whenever_it_looks(
    *, lengths: list[int], cap: int, looks: set[int], is_killed: bool
) -> None:
    """In order, once, and to the end; what was pushed out before it came is marked."""
    output = stream(sum(lengths))
    with Away() as path:
        writer, watcher, place = LogWriter(path, cap), Watcher(path, cap), 0
        for number, length in enumerate(lengths):
            writer.write(output[place : place + length])
            place += length
            if number in looks:
                watcher.look(output[:place])
        if is_killed:
            kill(writer)
            log.join(path)
        else:
            writer.close()
        watcher.look(output, is_over=True)
        watcher.close()


def test_a_follower_that_fell_behind_sees_the_end(path: str) -> None:
    """It knows the beginning, and all that it has read later is cut when the end comes."""
    output, watcher = stream(10_000), Watcher(path, 100)
    writer = written(path, [output[:5_000]], 100)
    watcher.look(output[:5_000])
    writer.write(output[5_000:])
    writer.close()

    watcher.look(output, is_over=True)
    watcher.close()


def test_what_comes_between_two_looks_of_a_follower_is_not_skipped(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a piece and a new one appear just when it has read the first to its end."""
    output = stream(60)
    writer, follower = written(path, [output[:20]], 100), Follower(path)
    assert b"".join(follower.new()) == output[:20]
    pieces = log._pieces

    def written_meanwhile(path: str) -> list[tuple[int, str]]:
        monkeypatch.setattr(log, "_pieces", pieces)
        writer.write(output[20:])
        return pieces(path)

    monkeypatch.setattr(log, "_pieces", written_meanwhile)

    assert b"".join(follower.new()) == output[20:]
    follower.close()
    writer.close()


@pytest.mark.parametrize("is_pushed_out", [False, True])
def test_a_piece_that_is_gone_before_it_was_opened_is_no_obstacle(
    path: str, monkeypatch: pytest.MonkeyPatch, *, is_pushed_out: bool
) -> None:
    """Others have come after it, or all became one file."""
    output = stream(2_000)
    writer, watcher = written(path, [output[:60]], 100), Watcher(path, 100)
    pieces = log._pieces

    def gone_meanwhile(path: str) -> list[tuple[int, str]]:
        found = pieces(path)
        if len(found) > 1:
            monkeypatch.setattr(log, "_pieces", pieces)
            writer.write(output[60:])
            if not is_pushed_out:
                writer.close()
        return found

    monkeypatch.setattr(log, "_pieces", gone_meanwhile)
    watcher.look(output, is_over=True)
    watcher.close()
    kill(writer)


# -- a full disk -----------------------------------------------------------------------------


class Disk:
    """A disk that can be full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        disk = self

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                if disk.is_full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data)

        monkeypatch.setattr(log, "_create", lambda path: File(path, "w"))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Where all logs are written."""
    return Disk(monkeypatch)


def test_a_full_disk_is_noted_and_does_no_other_harm(path: str, disk: Disk) -> None:
    """All output is counted, and what could be written is there."""
    writer = written(path, [b"before\n"], 10_000)
    disk.is_full = True
    writer.write(b"x" * 50_000)
    writer.note("a line of ours")
    writer.close()

    assert writer.trouble == "No space left on device"
    assert writer.written > 50_000
    assert b"".join(log.read(path)).startswith(b"before\n")


def test_what_a_full_disk_swallowed_is_marked(path: str, disk: Disk) -> None:
    """When there is room again, the output goes on behind a mark with the true number."""
    writer = written(path, [b"a" * 30], 100)
    disk.is_full = True
    writer.write(b"b" * 20)
    disk.is_full = False
    writer.write(b"c" * 10)
    writer.close()

    assert Path(path).read_bytes() == b"a" * 30 + mark(20) + b"c" * 10


def test_pieces_that_cannot_be_joined_are_read_as_they_are(path: str, disk: Disk) -> None:
    """And joined when there is room."""
    output = stream(1_000)
    writer, watcher = written(path, [output], 100), Watcher(path, 100)
    disk.is_full = True
    writer.close()

    assert not os.path.exists(path)
    assert b"".join(log.read(path)) == kept(output, 100)
    watcher.look(output, is_over=True)
    watcher.close()
    disk.is_full = False
    log.join(path)
    assert Path(path).read_bytes() == kept(output, 100)


def test_who_follows_on_a_full_disk_comes_to_an_end(
    path: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty piece is looked at once, and what was never written is not waited for."""
    writer, follower = written(path, [b"a" * 50], 100), Follower(path)
    disk.is_full = True
    writer.write(b"b" * 60)
    writer.close()
    pieces, looks = log._pieces, []

    def count(path: str) -> list[tuple[int, str]]:
        looks.append(path)
        assert len(looks) < 50, "it goes round in circles"
        return pieces(path)

    monkeypatch.setattr(log, "_pieces", count)

    assert MARK.sub(b"", b"".join(follower.new())) == b"a" * 50
    assert b"".join(follower.rest()) == b""
    follower.close()


def test_a_place_that_cannot_be_written_is_noted(tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "logs").write_text("")
    writer = written(log.path_of(str(tmp_path), 1, 1), [b"x" * 1000], 100)
    writer.close()

    assert writer.trouble
    assert writer.written == 1000
