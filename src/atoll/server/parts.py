"""What the routes of a server are made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from atoll.server.auth.access import Access
from atoll.server.auth.access_log import AccessLog
from atoll.server.e2b.owned import OwnedSandboxes
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Given to whatever makes routes.

    Args:
        settings: What the server was started with.
        tokens: Makes and checks the tokens that clients hold for one sandbox or one volume.
        access: Tells whose a request is.
        log: Where each request is noted; None notes none.
        owned: Sandboxes by id and team.
    """

    settings: Settings
    tokens: Tokens
    access: Access
    log: AccessLog | None = None
    owned: OwnedSandboxes = field(default_factory=OwnedSandboxes)
