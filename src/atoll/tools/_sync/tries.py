# Made by scripts/unasync.py from tools/_async/tries.py: do not edit.
"""Tries several ways at once, in forks."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.errors import AtollError, ExecTimeoutError
from atoll.sdk import Sandbox
from atoll.tools._io_sync import for_each
from atoll.tools.results import told
from atoll.tools.text import KEPT_BYTES, MOST_CHARACTERS, clipped


def tried(copies: Sequence[Sandbox], commands: Sequence[str], timeout_s: float) -> str:
    """Run a command in each copy, side by side, and return each copy's id and result."""
    answers = [""] * len(copies)

    def attempt(number: int) -> None:
        try:
            result = copies[number].run(
                commands[number], timeout_s=timeout_s, max_output_bytes=KEPT_BYTES
            )
            answers[number] = told(result, MOST_CHARACTERS // len(commands))
        except ExecTimeoutError:
            answers[number] = f"killed after {timeout_s:g} s\n"
        except AtollError as error:
            answers[number] = f"failed: {error.told_to('mcp')} [{error.code}]\n"

    for_each(attempt, [(number,) for number in range(len(copies))])
    return "\n".join(
        f"## {copy.id}: {clipped(command, 200)}\n{answer}"
        for copy, command, answer in zip(copies, commands, answers, strict=True)
    )
