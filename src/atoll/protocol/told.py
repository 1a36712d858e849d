"""What clients tell the audit log: programs that they ran and files that they copied; and a check of the log."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from atoll.types import AuditAnchor

# So much of each text is sent. The supervisor keeps less, but has to see where the value of a secret ends.
TOLD_CHARACTERS = 16 << 10
TOLD_LINES_MOST = 200

ANCHORS_MOST = 10_000

ToldAct = Literal["command.started", "code.run", "file.read", "file.written"]


class ToldLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a client did in a sandbox.

    Args:
        act: What it did.
        at: When, in Unix seconds by the client's clock.
        argv: The program and its arguments.
        line: The shell line, or the code.
        path: The path of the file inside.
        bytes: The size of what was copied.
        sha256: The hash of it; None if it was a directory.
        user: Whose rights applied; None is the sandbox's default user.
        trace: The id of the trace that the program was given; None if it was given none. The log has it not.
    """

    act: ToldAct
    at: float
    argv: tuple[str, ...] = ()
    line: str | None = None
    path: str | None = None
    bytes: int | None = None
    sha256: str | None = None
    user: str | None = None
    trace: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")] | None = None


class ToldRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of ``POST /v1/sandboxes/REF/told``. ``dropped`` lines were too many for the client's memory."""

    lines: tuple[ToldLine, ...] = ()
    dropped: int = 0


class AuditCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of ``POST /v1/audit/verify``: earlier heads of the log, 10,000 at most."""

    anchors: tuple[AuditAnchor, ...] = ()
