"""The gateway: what a client asks of a port of a sandbox goes there, and the answer comes back, as they come."""

from __future__ import annotations

from atoll.server.gateway.exchange import CutError
from atoll.server.gateway.front import Gateway

__all__ = ["CutError", "Gateway"]
