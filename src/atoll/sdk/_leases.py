"""The lease that a caller asks for, in its short form or as a lifecycle."""

from __future__ import annotations

from atoll.errors import InvalidSpecError
from atoll.types import Lifecycle


def lease_of(lifecycle: Lifecycle | None, timeout_s: float | None) -> Lifecycle:
    """Return the lifecycle of a new sandbox. ``timeout_s`` alone is a lease that ends with killing it.

    Raises:
        InvalidSpecError: Both are given.
    """
    if timeout_s is None:
        return Lifecycle() if lifecycle is None else lifecycle
    if lifecycle is not None:
        raise InvalidSpecError(
            "timeout_s and lifecycle are both given", hint="put timeout_s into the lifecycle"
        )
    return Lifecycle(timeout_s=timeout_s)
