"""Writes or checks the checksum file of a tree in its own process.

The work takes long, and a tree may be of any size.

Run as `python -P -m atoll.host.trees.checksum_program write|check TREE CHECKSUMS BYTES_S`; a rate of 0 is no limit.
From time to time it writes a line of JSON, `{"done": BYTES}`, to standard error, and the result to standard
output. The exit code is 3 if the disk is full.
"""

import errno
import os
import signal
import sys
from pathlib import Path

import msgspec

from atoll.host import syscalls
from atoll.host.trees.checksums import BrokenChecksumsError, CheckedTree, verify_checksums, write_checksums
from atoll.host.trees.facts import Pace
from atoll.types import Damage

# Enough to give way to others. A much higher value would take for ever on a busy machine.
_NICENESS = 10
DISK_FULL = 3


def _main(step: str, tree: Path, checksums: Path, bytes_s: float) -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICENESS)
    pace = Pace(bytes_s or None, _tell)
    try:
        result = (write_checksums if step == "write" else verify_checksums)(tree, checksums, pace)
    except BrokenChecksumsError as error:
        result = CheckedTree(
            0, 0, [Damage(path=str(checksums), what=f"the file of checksums itself is damaged: {error}")], 1
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sys.exit(DISK_FULL)
        where = os.fsencode(str(error.filename or tree)).decode("utf-8", "backslashreplace")
        damage = Damage(path=where, what=f"it cannot be read: {error.strerror or error}")
        result = CheckedTree(0, pace.read_bytes, [damage], 1)
    sys.stdout.buffer.write(msgspec.json.encode(result))


def _tell(done: int) -> None:
    sys.stderr.write(f'{{"done": {done}}}\n')
    sys.stderr.flush()


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
