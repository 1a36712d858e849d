"""What a program's end looks like to a model."""

from __future__ import annotations

from atoll.mcp.text import MOST_CHARACTERS, section
from atoll.types import ExecResult

KEPT_BYTES = 1_000_000


def told(result: ExecResult, most: int = MOST_CHARACTERS) -> str:
    """Return the exit code and what the program wrote."""
    parts = [f"exit code: {result.exit_code}\n"]
    if result.memory_kill is not None:
        parts.append(f"{result.memory_kill}\n")
    if result.truncated:
        parts.append(f"only the last {KEPT_BYTES:,} bytes of a stream are kept\n")
    parts.append(section("stdout", result.stdout, most))
    parts.append(section("stderr", result.stderr, most // 2))
    return "".join(parts)
