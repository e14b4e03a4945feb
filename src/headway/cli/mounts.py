"""Which file system a path is on, and whether its locks can be trusted."""

from __future__ import annotations

import os
import re
import subprocess
import sys

_MOUNTINFO = "/proc/self/mountinfo"
# Locks there may not reach the other machine, or may not exist at all.
_SHARED = {
    "9p": "shared with another system",
    "afpfs": "on the network",
    "afs": "on the network",
    "beegfs": "on the network",
    "ceph": "on the network",
    "cifs": "on the network",
    "davfs": "on the network",
    "glusterfs": "on the network",
    "gpfs": "on the network",
    "lustre": "on the network",
    "nfs": "on the network",
    "nfs4": "on the network",
    "prl_fs": "shared with another system",
    "smb2": "on the network",
    "smb3": "on the network",
    "smbfs": "on the network",
    "vboxsf": "shared with another system",
    "virtiofs": "shared with another system",
    "webdav": "on the network",
}
# Reads lines such as: /dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled).
_MOUNT_LINE = re.compile(r"^.*? on (?P<place>/.*?) \((?P<kind>[^,)]+)")


def kind_at(path: str) -> str:
    """The kind of file system that a path is on; empty where that cannot be found out."""
    path = os.path.realpath(path)
    try:
        return _innermost(path, _mounts())
    except (OSError, subprocess.SubprocessError):
        return ""


def doubt(kind: str) -> str:
    """Why locks on this kind of file system are not reliable; empty if they are."""
    if kind in _SHARED:
        return f"{kind}, {_SHARED[kind]}"
    if kind.startswith("fuse."):
        return f"{kind}, run by a program of its own"
    return ""


def parse_mountinfo(text: str) -> list[tuple[str, str]]:
    """Places and kinds, as Linux tells them."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        mounts.append((_unescaped(before.split()[4]), after.split()[0]))
    return mounts


def parse_mount(text: str) -> list[tuple[str, str]]:
    """Places and kinds, as ``mount`` prints them on macOS."""
    found = (_MOUNT_LINE.match(line) for line in text.splitlines())
    return [(match["place"], match["kind"]) for match in found if match]


def _mounts() -> list[tuple[str, str]]:
    if sys.platform == "linux":
        with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
            return parse_mountinfo(file.read())
    answer = subprocess.run(["mount"], capture_output=True, text=True, timeout=10, check=True)
    return parse_mount(answer.stdout)


def _innermost(path: str, mounts: list[tuple[str, str]]) -> str:
    """The last mount of those with the longest place: it covers the others."""
    best, kind = -1, ""
    for place, its_kind in mounts:
        inside = place in {"/", path} or path.startswith(place + "/")
        if inside and len(place) >= best:
            best, kind = len(place), its_kind
    return kind


def _unescaped(place: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place)
