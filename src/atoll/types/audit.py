"""Values of the audit log."""

from __future__ import annotations

from typing import Literal

import msgspec

AuditSource = Literal["supervisor", "client"]
AuditFaultKind = Literal["changed", "missing", "misplaced", "cut", "no head", "unreadable", "unlike anchor"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True, omit_defaults=True):
    """One act, as the audit log has it.

    Args:
        sequence: Its number in the home: 1 is the first one, and none is left out.
        at: When it was noted, in Unix seconds. For a decision that was made while no supervisor ran: when it was made.
        act: A noun and a verb, such as ``sandbox.suspended`` or ``secrets.create``.
        source: ``client`` is only what a client says that it did; atoll itself noted all else.
        sandbox_id: The sandbox that it concerns, if any.
        team: The team of that sandbox, or the team that is named; None means no team.
        caller: The client that asked for it, as that client or the server says; None means atoll itself.
        delegation: The uid of the delegation that the sandbox acts under.
        outcome: ``ok``, or the code of the error that refused it.
        details: Further facts by name. No value of a secret and no body of a request is among them.
    """

    sequence: int
    at: float
    act: str
    source: AuditSource = "supervisor"
    sandbox_id: str | None = None
    team: str | None = None
    caller: str | None = None
    delegation: str | None = None
    outcome: str = "ok"
    details: dict[str, str | int | float | None] = {}


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries in the order of the log. ``next`` is the sequence after which the next page begins."""

    entries: list[AuditEntry]
    next: int


class AuditAnchor(msgspec.Struct, frozen=True):
    """The head of the log at a time, as it was given to the command of ``ATOLL_AUDIT_ANCHOR``.

    Args:
        sequence: The number of the newest entry.
        digest: The hash of its line, on which all entries until then have an influence.
        mac: A code of both, which only the holder of the log's key can make.
    """

    sequence: int
    digest: str
    mac: str


class AuditFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place where the log is not as it was written.

    Args:
        kind: ``changed``: the entry's own code does not fit it. ``missing``: entries before it, or a whole file,
            are gone. ``misplaced``: it stands behind a later one, or twice, or follows another log. ``cut``: the
            newest entries are gone. ``no head``: the record of the newest entry is gone or changed.
            ``unreadable``: the line is none of the log's. ``unlike anchor``: an anchor says that these entries
            were others, so whoever changed them had the key.
        file: The name of the file.
        line: The number of the line in it; 0 is the file as a whole.
        first: The sequence of the first entry that is concerned, as far as it is known.
        last: The same of the last one.
    """

    kind: AuditFaultKind
    file: str
    line: int = 0
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        if self.first is None:
            return f"{place}: {self.kind}"
        entries = (
            f"entry {self.first}"
            if self.last in (None, self.first)
            else f"entries {self.first} to {self.last}"
        )
        return f"{place}: {entries} {self.kind}"


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of the whole log has found.

    Args:
        entries: How many entries are as they were written.
        first: The sequence of the first one there is; older ones were removed because the log had its full size.
        last: The sequence of the last one.
        faults: Where the log is not as it was written, in its order.
        anchored: The sequence of the last entry that a given anchor vouches for, with all before it; None if there
            is none.
    """

    entries: int
    first: int
    last: int
    faults: list[AuditFault]
    anchored: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the log is as it was written."""
        return not self.faults
