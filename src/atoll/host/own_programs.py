"""The records of a home's relay and edge, so that a new supervisor or an unplug finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from atoll.errors import HostError
from atoll.host.files import write_atomically
from atoll.host.home import Home
from atoll.host.pids import boot_id, kill_process
from atoll.host.processes import LeftProgram
from atoll.types.internal import from_json


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    start_ticks: int
    boot_id: str


OwnProgram = Literal["relay", "edge"]


def note_program(home: Home, name: OwnProgram, pid: int, start_ticks: int) -> None:
    """Record the process of the home's relay or edge. Call this before any message to the program.

    Raises:
        OSError: The record cannot be written.
    """
    record = _Record(pid=pid, start_ticks=start_ticks, boot_id=boot_id())
    write_atomically(_path(home, name), msgspec.json.encode(record))


def end_program(home: Home, name: OwnProgram) -> None:
    """Kill the home's relay or edge, and no other process. Its connections are reset. Idempotent.

    Raises:
        HostError: The program does not end, or its process cannot be identified.
    """
    record = _recorded(home, name)
    if record is None:
        return
    try:
        ended = kill_process(record.pid, record.start_ticks)
    except OSError as error:
        raise HostError(f"the {name}, process {record.pid}, cannot be killed: {error}") from None
    if not ended:
        raise HostError(f"the {name}, process {record.pid}, does not end", hint="restart the host")


def earlier_program(home: Home, name: OwnProgram) -> LeftProgram | None:
    """Return the home's relay or edge that an earlier supervisor has left; None if none runs.

    Raises:
        HostError: The process cannot be identified.
    """
    record = _recorded(home, name)
    if record is None:
        return None
    try:
        return LeftProgram(record.pid, record.start_ticks)
    except ProcessLookupError:
        return None


def _recorded(home: Home, name: OwnProgram) -> _Record | None:
    """The record of a program of this boot. Without a record no program ran: the record comes first."""
    try:
        record = from_json(_path(home, name).read_bytes(), _Record)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HostError(
            f"nobody can tell which process is the {name}: {_path(home, name)}: {error}",
            hint=f"kill the processes named atoll-{name} by hand",
        ) from None
    return record if record.boot_id == boot_id() else None


def _path(home: Home, name: OwnProgram) -> Path:
    return home.run / f"{name}.json"
