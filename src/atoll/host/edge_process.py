"""The record of a home's edge, so that whoever unplugs without the supervisor can end it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.errors import HostError
from atoll.host.files import write_atomically
from atoll.host.home import Home
from atoll.host.pids import boot_id, kill_process
from atoll.types import from_json


class _EdgeRecord(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    start_ticks: int
    boot_id: str


def note_edge(home: Home, pid: int, start_ticks: int) -> None:
    """Record which process is the home's edge. Call it before the edge is told anything.

    Raises:
        OSError: The record cannot be written.
    """
    record = _EdgeRecord(pid=pid, start_ticks=start_ticks, boot_id=boot_id())
    write_atomically(_path(home), msgspec.json.encode(record))


def end_edge(home: Home) -> None:
    """Kill the home's edge, and no other process. Its connections are reset. Idempotent.

    Raises:
        HostError: It does not end, or nobody can tell which process it is.
    """
    try:
        record = from_json(_path(home).read_bytes(), _EdgeRecord)
    except FileNotFoundError:
        return  # there was none: it is recorded before it is told anything
    except (OSError, ValueError) as error:
        raise HostError(
            f"nobody can tell which process is the edge: {_path(home)}: {error}",
            hint="kill the processes named atoll-edge by hand",
        ) from None
    try:
        ended = record.boot_id != boot_id() or kill_process(record.pid, record.start_ticks)
    except OSError as error:
        raise HostError(f"the edge, process {record.pid}, cannot be killed: {error}") from None
    if not ended:
        raise HostError(f"the edge, process {record.pid}, does not end", hint="restart the host")


def _path(home: Home) -> Path:
    return home.run / "edge.json"
