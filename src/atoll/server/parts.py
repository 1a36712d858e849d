"""The values that the routes of a server are made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from atoll.server.auth.access import Access
from atoll.server.auth.access_log import AccessLog
from atoll.server.e2b.sandbox_lookup import SandboxLookup
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Holds what the functions that make routes need.

    Args:
        settings: The server's settings.
        tokens: Makes and checks clients' tokens for one sandbox or one volume.
        access: Tells which team a request belongs to.
        log: Logs each request; None logs none.
        sandboxes: Finds sandboxes by id and team.
    """

    settings: Settings
    tokens: Tokens
    access: Access
    log: AccessLog | None = None
    sandboxes: SandboxLookup = field(default_factory=SandboxLookup)
