"""Reads the consoles of sandboxes, and writes the supervisor's own log."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

from atoll.host import read_log
from atoll.protocol import LogsPage

_PAGE_BYTES = 256 * 1024
_NEWEST_BYTES = 16 << 20
_LOG_BYTES = 4 << 20
_LOGS_KEPT = 2


def read_page(path: Path, offset: int) -> LogsPage:
    """The stored text from a byte offset on, at most 256 KiB.

    A character complete in the file is never split.

    This skips text more than 16 MiB before the end. It will be dropped soon, and a guest that floods its log
    must not keep readers busy.
    """
    end = path.lstat().st_size if path.exists() else 0
    newest = end - _NEWEST_BYTES
    data, start = read_log(path, max(offset, newest), _PAGE_BYTES)
    if start == newest > offset:
        cut = data.find(b"\n") + 1
        data, start = data[cut:], start + cut
    data = _whole_characters(data)
    return LogsPage(text=data.decode("utf-8", "replace"), offset=start + len(data), end=end)


def start_logging(path: Path, level: str) -> None:
    """Write this process's log to a file that is rotated at 4 MiB, keeping two older files."""
    # Logging errors would go to standard error, which is the same file. Clients hear of a full disk anyway.
    logging.raiseExceptions = False
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOGS_KEPT)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    for chatty in ("asyncio", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _whole_characters(data: bytes) -> bytes:
    """Cut off an incomplete character at the end, whose rest may still come.

    The result is never empty for data.
    """
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 1 if byte > 0xF4 else 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if length > back and back < len(data) else data
    return data
