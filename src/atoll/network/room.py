"""How much of a guest's data the relay may hold at once, for all its connections together."""

from __future__ import annotations

# Shared by all connections of one guest, and what each of them may hold in addition.
SHARED_BYTES = 16 << 20
LEAST_BYTES = 4 << 10


class Room:
    """What is left of it. Each connection may hold a little even if others have used everything."""

    def __init__(self, shared_bytes: int = SHARED_BYTES) -> None:
        self._left_bytes = shared_bytes

    def piece(self, most_bytes: int) -> int:
        """Return how much may be read now if none of it can be sent on."""
        if self._left_bytes >= most_bytes:  # as nearly always, and this is asked for each piece
            return most_bytes
        return max(LEAST_BYTES, self._left_bytes)

    def take(self, size_bytes: int) -> None:
        """Count bytes that are now held."""
        self._left_bytes -= size_bytes

    def give(self, size_bytes: int) -> None:
        """Count bytes that were sent on or given up."""
        self._left_bytes += size_bytes
