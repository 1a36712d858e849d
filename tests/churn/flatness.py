"""Whether what a home holds has grown."""

from __future__ import annotations

from tests.churn.reading import Reading

_MIB = 1 << 20
# The supervisor's heap has holes; its pool of threads grows to a bound; its database and log have bounds of their own.
_MEMORY_BYTES = 12 * _MIB
_LOOSE_BYTES = 24 * _MIB
_DESCRIPTORS = 4
_THREADS = 32


def grown(before: list[Reading], after: list[Reading], elders: int) -> list[str]:
    """Say what has grown, and by how much.

    What is compared is the most of the readings before with the least of those after, so that a moment does not count.

    Args:
        before: Readings after the warm-up.
        after: Readings at the end.
        elders: How many sandboxes were there at each reading; each may have changed within bounds.
    """
    told = []
    for name in sorted(set().union(*before, *after) - {"pid"}):
        most = max(reading.get(name, 0.0) for reading in before)
        least = min(reading.get(name, 0.0) for reading in after)
        allowed = slack(name, elders)
        if least - most > allowed:
            told.append(
                f"{name}: {said(name, most)} after the warm-up, {said(name, least)} at the end: "
                f"grown by {said(name, least - most)}, allowed are {said(name, allowed)}"
            )
    return told


def said(name: str, value: float) -> str:
    """A number as people read it."""
    if name == "memory" or name.startswith("bytes"):
        return f"{value / _MIB:.1f} MiB"
    return f"{value:.0f}"


def slack(name: str, elders: int) -> float:
    """By how much something may grow."""
    if name.startswith("bytes of"):
        return _LOOSE_BYTES
    if name.startswith("bytes in"):
        return elders * 32 * _MIB
    if name.startswith("files in"):
        return elders * 100
    if name in ("rows of snapshots", "rows of layers"):
        return elders * 4
    return {"memory": _MEMORY_BYTES, "descriptors": _DESCRIPTORS, "threads": _THREADS}.get(name, 0.0)
