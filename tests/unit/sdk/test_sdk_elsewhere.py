"""The SDK and the command line on a machine that has not what only Linux has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.errors import UnsupportedError

PROGRAM = """
import os, select, signal, socket, sys
import anyio.to_thread, asyncio, click, ssl, subprocess, tempfile

MISSING = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(name)

for name in MISSING:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Finder())
for module, names in (
    (os, ("fork", "geteuid", "getuid", "register_at_fork")),
    (select, ("poll",)),
    (signal, ("SIGHUP",)),
    (socket, ("AF_UNIX", "SOCK_SEQPACKET", "recv_fds")),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

import atoll
import atoll.cli.__main__
import atoll.cli.commands.run

for name in atoll.__all__:
    getattr(atoll, name)
"""


def test_every_name_can_be_imported_without_what_only_linux_has() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_machine_that_runs_no_sandboxes_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ATOLL_URL", raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match="on Linux") as refused:
        list(Sandbox.list())
    assert "atoll login" in str(refused.value.hint)
