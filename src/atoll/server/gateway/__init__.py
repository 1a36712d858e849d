"""The gateway: it streams clients' requests to ports of sandboxes, and the answers back."""

from __future__ import annotations

from atoll.server.gateway.exchange import CutError
from atoll.server.gateway.gateway import Gateway

__all__ = ["CutError", "Gateway"]
