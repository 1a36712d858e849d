"""`atoll mcp proxy`: a client that starts servers itself can use a server inside a sandbox."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress

from atoll.errors import AtollError
from atoll.sdk import Sandbox

_CHUNK_BYTES = 65536
_END_S = 5.0


def relay(name: str, command: Sequence[str], *, cwd: str | None, user: str | None) -> int:
    """Start a stdio server inside, copy bytes both ways until it ends, and return its exit code.

    The end of standard input closes the server's input. This kills a server that runs on after that, or when
    this process gets SIGTERM or SIGINT.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Sandbox.connect(name) as sandbox:
        process = sandbox.processes.start(list(command), cwd=cwd, user=user, stdin=True, stream=True)
        ended = threading.Event()

        def feed() -> None:
            with suppress(AtollError, OSError):
                while data := os.read(0, _CHUNK_BYTES):
                    process.write_stdin(data)
                process.close_stdin()
            if not ended.wait(_END_S):
                with suppress(AtollError):
                    process.kill()

        try:
            threading.Thread(target=feed, daemon=True).start()
            for output in process:
                _write(2 if output.stream == "stderr" else 1, output.data)
            return process.wait().exit_code
        except BaseException:
            with suppress(AtollError):  # the server, or its whole sandbox, may have ended meanwhile
                process.kill()
            raise
        finally:
            ended.set()
            process.close()


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
