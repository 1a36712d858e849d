"""A server for the groups that measure one: `atoll serve` over the bench's home, and its clients' environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from atoll import Images

_START_S = 60.0


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """Have a server that speaks plain http on loopback; the variables that an E2B client needs, set meanwhile."""
    Images.ensure("base")
    with tempfile.TemporaryDirectory(prefix="atoll-bench-") as directory:
        env_file = Path(directory) / "env"
        server = subprocess.Popen(
            [sys.executable, "-m", "atoll.cli", "serve", "--env-file", str(env_file)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + _START_S
            while not env_file.exists():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("bench: the server did not start; `atoll serve` says why")
                time.sleep(0.01)
            variables = dict(line.split("=", 1) for line in env_file.read_text().splitlines())
            os.environ.update(variables)
            yield variables
        finally:
            server.terminate()
            server.wait(_START_S)
            for name in [name for name in os.environ if name.startswith("E2B_")]:
                del os.environ[name]
