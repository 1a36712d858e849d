"""Records in the home that a server runs, so that this user's programs find the addresses of ports."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atoll.host import process_alive, start_ticks
from atoll.protocol import SERVER_RECORDS, ServerRecord, record_name
from atoll.server.settings import Settings
from atoll.types.internal import as_json, from_json


@contextlib.contextmanager
def announced(settings: Settings, directory: Path) -> Iterator[None]:
    """Keep a record of this process while the context lasts, and remove the records of dead servers."""
    _sweep(directory)
    record = ServerRecord(
        pid=os.getpid(),
        started_ticks=start_ticks(os.getpid()) or 0,
        scheme=settings.scheme,
        names=settings.public_domain or (f"localhost:{settings.port}" if settings.on_loopback else None),
    )
    path = directory / record_name(record.pid)
    aside = path.with_name(f".{path.name}")
    aside.write_bytes(as_json(record))
    aside.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _sweep(directory: Path) -> None:
    for path in directory.glob(SERVER_RECORDS):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            record = from_json(path.read_bytes(), ServerRecord)
            if not process_alive(record.pid, record.started_ticks):
                path.unlink()
