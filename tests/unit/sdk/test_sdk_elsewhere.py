"""The SDK and the command line on a machine that has not what only Linux has."""

from __future__ import annotations

import subprocess
import sys

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
