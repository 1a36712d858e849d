"""What a failing disk does to the files of a home."""

import os
import subprocess
import sys
from pathlib import Path

from atoll.host import Home, find_holder

_FLIP = """
import os, sys
path, at = sys.argv[1], int(sys.argv[2])
times = os.stat(path)
with open(path, "r+b") as file:
    file.seek(at)
    byte = file.read(1)
    file.seek(at)
    file.write(bytes([byte[0] ^ 1]))
os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
"""


def flip(home: Path, path: Path, at: int) -> None:
    """Change one bit of a file in a layer or an image, as who owns it: size and times stay."""
    holder = find_holder(Home(home))
    assert holder is not None
    enter = ["nsenter", "-U", "-m", "--preserve-credentials"] if os.getuid() else ["nsenter", "-m"]
    subprocess.run(
        [*enter, "-t", str(holder.pid), sys.executable, "-c", _FLIP, str(path), str(at)], check=True
    )
