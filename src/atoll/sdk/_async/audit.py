"""The audit log of the home: who did what, and whether anybody has changed the log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlencode

from atoll.protocol import AuditCheck
from atoll.sdk._anchors import read_anchors
from atoll.sdk._async.api import LONG_S, AsyncApi, ignored
from atoll.sdk._io_async import in_thread, sleep
from atoll.types import AuditEntry, AuditPage, AuditReport, Progress
from atoll.types.internal import check_number, check_text, local_path

_LOOK_S = 0.5
_PAGE = 1000


class AsyncAudit:
    """Reads the audit log of the home, and checks it. Over a server, it is a log of what concerns your team."""

    @staticmethod
    async def entries(
        *,
        sandbox: str | None = None,
        team: str | None = None,
        act: str | None = None,
        delegation: str | None = None,
        since: float | None = None,
        until: float | None = None,
        newest: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[AuditEntry]:
        """Iterate over entries, oldest first.

        Args:
            sandbox: Only entries about the sandbox with this id, killed or not.
            team: Only entries about this team and its sandboxes.
            act: Only this act, such as ``sandbox.killed``, or every act that begins with it and a dot:
                ``egress``.
            delegation: Only entries about sandboxes that act under the delegation with this uid.
            since: Only entries from this time on, in Unix seconds.
            until: Only entries before this time.
            newest: Only this many of them, the newest ones. They are looked for in the newest 32 MiB of the log.
            follow: Continue with new entries as they are written, without an end.
        """
        named = {"sandbox": sandbox, "team": team, "act": act, "delegation": delegation}
        for name, text in named.items():
            if text is not None:
                check_text(name, text)
        for name, number in (("since", since), ("until", until), ("newest", newest)):
            if number is not None:
                hint = "give None, or a number from 0 on"
                check_number(name, number, least=0, whole=name == "newest", hint=hint)
        wanted = {**named, "since": since, "until": until}
        query = {name: value for name, value in wanted.items() if value is not None}
        begin: dict[str, object] = {"after": 0} if newest is None else {"newest": newest}
        with contextlib.closing(AsyncApi()) as api:
            while True:
                text = urlencode({**query, **begin, "limit": _PAGE})
                page = await api.call("GET", f"/v1/audit?{text}", AuditPage, timeout_s=LONG_S)
                for entry in page.entries:
                    yield entry
                if begin == {"after": page.next}:
                    if not follow:
                        return
                    await sleep(_LOOK_S)
                begin = {"after": page.next}

    @staticmethod
    def ocsf(entry: AuditEntry) -> dict[str, Any]:
        """Return an entry as an event of the Open Cybersecurity Schema Framework, version 1.8.0."""
        from atoll.sdk._ocsf import ocsf_event

        return ocsf_event(entry)

    @staticmethod
    async def verify(
        *,
        anchors: str | os.PathLike[str] | None = None,
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> AuditReport:
        """Check the whole log against its key, and name each place that somebody has changed.

        A million entries take about ten seconds. Only the machine with the sandboxes does this.

        Args:
            anchors: A file with the lines that the command of ``ATOLL_AUDIT_ANCHOR`` got. It shows changes by
                whoever has the key. The result's ``anchored`` says how far it reaches.
            on_progress: Called with how much was read.

        Raises:
            OSError: The file cannot be read.
            InvalidSpecError: A line of the file is no anchor.
        """
        read = () if anchors is None else await in_thread(read_anchors, local_path("anchors", anchors))
        body = AuditCheck(anchors=read)
        with contextlib.closing(AsyncApi()) as api:
            return await api.long_call(
                "POST", "/v1/audit/verify", AuditReport, body, on_progress=on_progress or ignored
            )
