"""The lease that a caller asks for, in its short form or as a lifecycle."""

from __future__ import annotations

from atoll.errors import InvalidSpecError
from atoll.types import Lifecycle


def lease_of(lifecycle: Lifecycle | None, ttl_s: float | None) -> Lifecycle:
    """Return the lifecycle of a new sandbox. ``ttl_s`` alone is a lease that ends with killing it.

    Raises:
        InvalidSpecError: Both are given.
    """
    if ttl_s is None:
        return Lifecycle() if lifecycle is None else lifecycle
    if lifecycle is not None:
        raise InvalidSpecError("ttl_s and lifecycle are both given", hint="put ttl_s into the lifecycle")
    return Lifecycle(ttl_s=ttl_s)
