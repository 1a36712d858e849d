"""Programs that take all they can get, for a sandbox to run beside others."""

from __future__ import annotations

FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
# In a shell, so that each process runs a program of its own: with the default limits it hurts most.
SHELL_BOMB = "b(){ b|b& }; b; sleep 300"
MEMORY_HOG = """
import os
while True:
    if os.fork() == 0:
        held = []
        while True:
            held.append(b"x" * (1 << 20))
    os.wait()
"""
DISK_FILLER = """
import os
number = 0
while True:
    try:
        with open(f"f{number % 7}", "ab") as file:
            file.write(bytes(1 << 20))
    except OSError:
        os.unlink(f"f{number % 7}")
    number += 1
"""
INODE_FILLER = """
import os
number = 0
while True:
    try:
        os.makedirs(f"d{number // 100}", exist_ok=True)
        open(f"d{number // 100}/{number}", "w").close()
        os.symlink("x", f"d{number // 100}/{number}.link")
    except OSError:
        pass
    number += 1
"""
CONNECTION_FLOOD = """
import socket
held = []
while True:
    try:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("1.1.1.1", 80 + len(held) % 50))
        held.append(one)
    except OSError:
        held = held[500:]
"""
HOGS = {
    "fork bomb": FORK_BOMB,
    "memory hog": MEMORY_HOG,
    "disk filler": DISK_FILLER,
    "inode filler": INODE_FILLER,
    "connection flood": CONNECTION_FLOOD,
}
