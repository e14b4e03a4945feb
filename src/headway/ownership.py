"""Whose files these are: which ones are trusted, and to whom new ones belong.

``config.toml`` can run commands (``jobs.notify_command``) and ``jobs.db`` is a list of commands.
Both are used only if nobody but this user and root could have written them.
"""

from __future__ import annotations

import os

from headway.errors import ConfigError

TRUST_VARIABLE = "HEADWAY_TRUST_HOME"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # Why a file is not trusted, and what mends that.
    Doubt: TypeAlias = tuple[str, str]

_ROOT = 0
_GROUP_MAY_WRITE, _OTHERS_MAY_WRITE, _STICKY = 0o020, 0o002, 0o1000
_OTHERS_MAY_ENTER = 0o011


# -- which files are trusted ------------------------------------------------------------


def refuse_foreign(path: str, found: os.stat_result | None, danger: str) -> None:
    """Raise ``ConfigError`` if somebody else could write this file; ``found`` unless it is new.

    ``danger`` says what they could do with it. ``HEADWAY_TRUST_HOME=1`` lets every file pass: a
    variable, because a setting in an untrusted file could not be believed.
    """
    if os.environ.get(TRUST_VARIABLE) == "1":
        return
    directories = [os.path.dirname(path) or "."]
    if os.path.islink(path):
        directories.append(os.path.dirname(os.path.realpath(path)))
    doubt = None if found is None else _doubt_of_file(path, found, directories[-1])
    doubt = doubt or next(filter(None, map(_doubt_of_directory, directories)), None)
    if doubt is not None:
        problem, fix = doubt
        raise ConfigError(
            f"{problem}, {danger}; {fix}, or set {TRUST_VARIABLE}=1 to use it all the same"
        )


def is_private(found: os.stat_result) -> bool:
    """Whether nobody but this user and root can write a file, as its owner and mode tell."""
    return _is_trusted(found.st_uid) and not _others_may_write(found)


def _doubt_of_file(path: str, found: os.stat_result, directory: str) -> Doubt | None:
    """Why a file is not trusted, and what mends that."""
    if not _is_trusted(found.st_uid):
        return _belongs_to_another(path, found.st_uid)
    # Where nobody else can enter its directory, the mode of a file opens it to nobody.
    if _others_may_write(found) and os.stat(directory).st_mode & _OTHERS_MAY_ENTER:
        return _is_open_to_others(path, found)
    return None


def _doubt_of_directory(directory: str) -> Doubt | None:
    """The same for a directory: others who can write there can replace its files."""
    found = os.stat(directory)
    if not _is_trusted(found.st_uid):
        return _belongs_to_another(directory, found.st_uid)
    # In a sticky directory such as /tmp nobody can replace the file of another.
    if _others_may_write(found) and not found.st_mode & _STICKY:
        return _is_open_to_others(directory, found)
    return None


def _belongs_to_another(path: str, uid: int) -> Doubt:
    other, me = _person(uid), _person(os.geteuid())
    problem = f"{path} belongs to {other}, not to you ({me})"
    if os.geteuid() == _ROOT:  # who would take it from its user
        return problem, f"run headway as {other}"
    return problem, f"run headway as {other}, make it yours (sudo chown {me} {path})"


def _is_open_to_others(path: str, found: os.stat_result) -> Doubt:
    mode = found.st_mode & 0o7777
    return f"{path} has mode {mode:04o}: others can write it", f"run chmod go-w {path}"


def _is_trusted(uid: int) -> bool:
    """Root can do anything anyway; in containers most files are root's."""
    return uid in (_ROOT, os.geteuid())


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & _OTHERS_MAY_WRITE:
        return True
    return bool(found.st_mode & _GROUP_MAY_WRITE) and not _is_own_group(found.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether a group is root's, or has this user alone: many systems give each user one.

    Such a group has the user's name and no further members.
    """
    if gid == _ROOT:
        return True
    import grp  # noqa: PLC0415 - only where a file is open to its group

    user = _person(os.geteuid())
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _person(uid: int) -> str:
    import pwd  # noqa: PLC0415 - only where something is wrong

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


# -- to whom new files belong -----------------------------------------------------------
#
# A root process in a home of another user (sudo) would otherwise leave files there that
# lock the user out of their own home.


def create(path: str, flags: int, *, dir_fd: int | None = None) -> int:
    """Open a file, made if need be, for its owner alone: that of its directory if we are root.

    A link is not followed: where others can write, it may lead to any file of ours.
    """
    flags |= os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600, dir_fd=dir_fd)
    heir = _heir(os.path.dirname(path) or "." if dir_fd is None else dir_fd)
    if heir is not None and os.fstat(descriptor).st_uid == _ROOT:
        os.fchown(descriptor, *heir)
    return descriptor


def make_directory(path: str) -> None:
    """Make a directory of a home unless it is there, for the owner of the home alone."""
    if os.geteuid() != _ROOT or os.path.isdir(path):
        os.makedirs(path, mode=0o700, exist_ok=True)
        return
    os.makedirs(path, mode=0o700, exist_ok=True)
    heir = _heir(os.path.dirname(path))
    if heir is not None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(descriptor, *heir)
        finally:
            os.close(descriptor)


def make_home(path: str) -> None:
    """Make a home unless it is there: ``~/.headway`` for the owner of ``~``."""
    if os.path.dirname(path) == os.path.expanduser("~"):
        make_directory(path)
    else:
        os.makedirs(path, mode=0o700, exist_ok=True)


def hand_over(path: str, *, directory: str | int) -> None:
    """Give what is no regular file (a socket, a pipe, a link) to the owner of its directory."""
    heir = _heir(directory)
    if heir is not None:
        os.chown(path, *heir, follow_symlinks=False)


def keep_owner(descriptor: int, replaced: os.stat_result) -> None:
    """Give a new file the owner, the group and the mode of the one that it replaces."""
    mode = replaced.st_mode & 0o777
    try:
        if os.geteuid() == _ROOT:
            os.fchown(descriptor, replaced.st_uid, replaced.st_gid)
        elif os.fstat(descriptor).st_gid != replaced.st_gid:
            os.fchown(descriptor, -1, replaced.st_gid)
    except PermissionError:
        mode &= ~0o070  # what its group was allowed is not for another group
    os.fchmod(descriptor, mode)


def _heir(directory: str | int) -> tuple[int, int] | None:
    """The user and group that root makes files for in a directory of another user."""
    if os.geteuid() != _ROOT:
        return None
    found = os.stat(directory)
    return None if found.st_uid == _ROOT else (found.st_uid, found.st_gid)
