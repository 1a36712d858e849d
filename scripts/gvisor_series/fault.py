"""What stops a command of `scripts/gvisor`."""

from __future__ import annotations


class Fault(Exception):
    """The message says what is wrong, with which patch or file, and what to do."""
