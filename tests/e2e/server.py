"""Servers for tests: `atoll serve` over a test's home, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START_S = 120.0


@dataclass(frozen=True)
class Server:
    """A server that runs, and what its clients need."""

    process: subprocess.Popen[bytes]
    variables: dict[str, str]
    log: Path

    @property
    def key(self) -> str:
        return self.variables["E2B_API_KEY"]

    @property
    def url(self) -> str:
        return self.variables["E2B_API_URL"]

    @property
    def port(self) -> int:
        return int(self.variables.get("E2B_API_URL", self.variables.get("E2B_DOMAIN", "")).rpartition(":")[2])


@contextlib.contextmanager
def serving(*arguments: str, clear: Sequence[str] = ("E2B_DEBUG",)) -> Iterator[Server]:
    """Run `atoll serve ARGUMENTS` over the home that ATOLL_HOME names until the context ends."""
    with tempfile.TemporaryDirectory(prefix="as-") as directory:
        env_file, log = Path(directory, "env"), Path(directory, "log")
        argv = [sys.executable, "-m", "atoll.cli", "serve", "--env-file", str(env_file), *arguments]
        environ = {name: value for name, value in os.environ.items() if name not in clear}
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ
            )
        try:
            _wait_for(env_file, process, log)
            pairs = (line.partition("=") for line in env_file.read_text().splitlines())
            yield Server(process, {name: value for name, _, value in pairs}, log)
        finally:
            process.terminate()
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


def _wait_for(env_file: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not env_file.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
