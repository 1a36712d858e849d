"""Has requests refused while the audit log cannot be written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.audit import AuditLog

# A host that is busy for a moment is no disk that hangs.
_GRACE_S = 0.1
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class AuditLateness:
    """Tells whoever judges requests that the audit log is late, and when it has caught up.

    Args:
        audit: The log.
        refuse: Called with whether requests are to be refused from now on; None lets them pass.
    """

    audit: AuditLog
    refuse: Callable[[bool], None] | None
    _is_late: bool = field(default=False, init=False)

    def start(self) -> None:
        """Look at each change from now on. The log tells of them in its own threads."""
        loop = asyncio.get_running_loop()

        def changed() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(loop.call_later, _GRACE_S, self.look)

        self.audit.writer.on_late = changed
        self.look()

    def look(self) -> None:
        """Pass on a change."""
        is_late = self.audit.writer.is_late
        if is_late == self._is_late:
            return
        self._is_late = is_late
        if is_late:
            _log.error("the audit log cannot be written in time: its disk is full, or does not answer")
        else:
            _log.warning("the audit log has caught up")
        if self.refuse is not None:
            self.refuse(is_late)
