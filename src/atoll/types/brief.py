"""Short representations of long values, for a prompt or a line of a log."""

from __future__ import annotations


def brief(value: object, *names: str) -> str:
    """Return the class of a value with these of its attributes, without those that are None or empty."""
    given = [(name, getattr(value, name)) for name in names]
    shown = ", ".join(f"{name}={item!r}" for name, item in given if item is not None and item != "")
    return f"{type(value).__name__}({shown}, …)"
