"""``atoll serve``: the E2B REST API and the gateway into sandboxes, for other machines.

The server owns nothing. For everything it does, it asks the supervisor through the SDK.
"""

from __future__ import annotations

from atoll.server.app import make_app
from atoll.server.e2b.answers import Refusal, refusal_of
from atoll.server.settings import Settings
from atoll.server.tokens import Tokens, read_secret

__all__ = ["Refusal", "Settings", "Tokens", "make_app", "read_secret", "refusal_of"]
