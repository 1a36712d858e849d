"""User namespaces: finds which ids of the host a user may give to sandboxes, and maps them."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import msgspec

from atoll.errors import HostError

_MOST_IDS = 65535
_WHOLE_RANGE = 4294967295
_SUBUID = Path("/etc/subuid")
_SUBGID = Path("/etc/subgid")
# the usual grant of a distribution: 65536 ids for each user, from 100000 on
_FIRST_SUBORDINATE = 100000
_IDS_OF_A_USER = 65536


class IdRange(msgspec.Struct, frozen=True):
    """A range of user or group ids of the host that a user may use."""

    first: int
    count: int


def is_host_root() -> bool:
    """Whether this process is root of the host itself, not of a user namespace."""
    return os.geteuid() == 0 and _id_map("uid_map") == ["0", "0", str(_WHOLE_RANGE)]


def one_id() -> bool:
    """Whether root is the only user and group that this process can give files to."""
    return any(_id_map(table)[2:] == ["1"] for table in ("uid_map", "gid_map"))


def is_mapped(number: int) -> bool:
    """Whether this user namespace has a user and a group with this number."""
    for table in ("uid_map", "gid_map"):
        lines = Path("/proc/self", table).read_text().splitlines()
        ranges = [(int(first), int(count)) for first, _, count in map(str.split, lines)]
        if not any(first <= number < first + count for first, count in ranges):
            return False
    return True


def _id_map(table: str) -> list[str]:
    return Path("/proc/self", table).read_text().split()


def subordinate_range(table: Path, name: str, number: int) -> IdRange | None:
    """Return the first range that /etc/subuid or /etc/subgid gives to a user; None if there is none.

    Args:
        table: The file.
        name: The user's name.
        number: The user's id, which the file may have in place of the name.
    """
    mine = (found for owner, found in _ranges_of(table) if owner in (name, str(number)))
    return next(mine, None)


def free_range(*tables: Path) -> IdRange:
    """Return the first range of ids after all ranges in /etc/subuid and /etc/subgid."""
    ends = [given.first + given.count for table in tables for _, given in _ranges_of(table)]
    return IdRange(max([_FIRST_SUBORDINATE, *ends]), _IDS_OF_A_USER)


def _ranges_of(table: Path) -> list[tuple[str, IdRange]]:
    """Return the ranges in a file, each with its owner: a name or an id. Other lines are left out."""
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        owner, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if first.isdecimal() and count.strip().isdecimal() and int(count):
            found.append((owner, IdRange(int(first), int(count))))
    return found


def own_ranges() -> tuple[IdRange, IdRange]:
    """Return the ranges of user and group ids that this user may give to sandboxes.

    Raises:
        HostError: The host gives this user none.
    """
    name, number = user_name(), os.geteuid()
    users = subordinate_range(_SUBUID, name, number)
    groups = subordinate_range(_SUBGID, name, number)
    if users is None or groups is None:
        missing = "/etc/subuid" if users is None else "/etc/subgid"
        raise HostError(f"{missing} gives the user {name} no ids for sandboxes", hint=range_remedy(name))
    return users, groups


def range_remedy(name: str) -> str:
    """Return the command that gives a user its ranges."""
    free = free_range(_SUBUID, _SUBGID)
    ids = f"{free.first}-{free.first + free.count - 1}"
    return f"run: sudo usermod --add-subuids {ids} --add-subgids {ids} {name}"


def user_name() -> str:
    """Return the name of this process's user, or its id if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def map_ids(pid: int) -> HostError | None:
    """Map the ids of a process's new user namespace.

    Root inside is this user, and the ids from 1 on are this user's ranges. If the host gives no ranges, or
    newuidmap is missing or refuses, root is the only id inside. Returns the error that says so.

    Raises:
        HostError: Even that is impossible.
    """
    try:
        users, groups = own_ranges()
        _map("newuidmap", pid, os.geteuid(), users)
        _map("newgidmap", pid, os.getegid(), groups)
    except HostError as error:
        _map_one(pid)
        return error
    return None


def _map_one(pid: int) -> None:
    process = Path("/proc", str(pid))
    try:
        (process / "setgroups").write_text("deny")
        for table, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
            if not (process / table).read_text():
                (process / table).write_text(f"0 {own} 1")
    except OSError as error:
        raise HostError(
            f"the ids of process {pid} cannot be mapped: {error.strerror}", hint="see `atoll doctor`"
        ) from error


def _map(program: str, pid: int, own: int, given: IdRange) -> None:
    count = min(given.count, _MOST_IDS)
    argv = [program, str(pid), "0", str(own), "1", "1", str(given.first), str(count)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=30, check=False, cwd="/")
    except FileNotFoundError:
        raise HostError(f"the program {program} is missing", hint="run: sudo apt install uidmap") from None
    except subprocess.TimeoutExpired:
        raise HostError(f"{program} did not end within 30 s", hint="try again") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise HostError(f"{' '.join(argv)} failed: {said}", hint=range_remedy(user_name()))
