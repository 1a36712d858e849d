"""Waits for Ctrl-C, or for the end of a sandbox."""

from __future__ import annotations

import time
from typing import NoReturn, Protocol

from atoll.errors import AtollError, SandboxNotFoundError

_EVERY_S = 2.0


class Living(Protocol):
    """A sandbox whose end can be noticed."""

    def info(self) -> object:
        """Return what is known of it. This does not wake it."""


def wait_while_it_lives(sandbox: Living, ref: str, port: int, *, every_s: float = _EVERY_S) -> NoReturn:
    """Wait until Ctrl-C, a signal or the sandbox's end ends this process.

    Args:
        sandbox: It is asked again and again. A passing error, like that of a starting supervisor, does not
            count.
        ref: How the user calls it.
        port: The port of it that is forwarded.
        every_s: Seconds between two looks.

    Raises:
        SandboxNotFoundError: It was killed.
    """
    while True:
        time.sleep(every_s)
        try:
            sandbox.info()
        except SandboxNotFoundError as error:
            raise SandboxNotFoundError(
                f"sandbox {ref} was killed, so its port {port} is no longer forwarded",
                hint="`atoll ls` lists those that are left",
                sandbox_id=error.sandbox_id,
            ) from error
        except AtollError as error:
            if not error.retryable:
                raise
