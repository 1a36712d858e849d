"""The audit log of a home: an append-only chain of lines that shows each later change. Small and without tasks."""

from __future__ import annotations

from atoll.audit.files import log_files
from atoll.audit.head import read_head
from atoll.audit.log import AuditLog
from atoll.audit.reading import mark_of, read_entries, read_newest
from atoll.audit.verifying import verify

__all__ = [
    "AuditLog",
    "log_files",
    "mark_of",
    "read_entries",
    "read_head",
    "read_newest",
    "verify",
]
