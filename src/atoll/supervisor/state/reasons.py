"""Why something failed, as rows keep it."""

from __future__ import annotations

from atoll.errors import AtollError

_MOST = 500


def reason_of(error: AtollError | OSError) -> str:
    """Return the message of an error without its hint, bounded."""
    return (error.message if isinstance(error, AtollError) else str(error))[:_MOST]
