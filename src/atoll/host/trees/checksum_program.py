"""Seals a tree or compares it with its seal, in a process of its own: it takes long, and the tree may be of any size.

Run as `python -P -m atoll.host.trees.checksum_program seal|check TREE SEAL BYTES_S`; a rate of 0 is none. Standard
error gets a line of JSON now and then, `{"done": BYTES}`, standard output what came out. The exit code is 3 when the
disk is full.
"""

import errno
import os
import signal
import sys
from pathlib import Path

import msgspec

from atoll.host import syscalls
from atoll.host.trees.checksums import BrokenSealError, SealedTree, check_seal, write_seal
from atoll.host.trees.facts import Pace
from atoll.types import Damage

# Enough to give way; much more would be for ever on a busy machine.
_NICENESS = 10
DISK_FULL = 3


def _main(step: str, tree: Path, seal: Path, bytes_s: float) -> None:
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(_NICENESS)
    pace = Pace(bytes_s or None, _tell)
    try:
        result = (write_seal if step == "seal" else check_seal)(tree, seal, pace)
    except BrokenSealError as error:
        result = SealedTree(0, 0, [Damage(path=str(seal), what=f"the seal itself is damaged: {error}")], 1)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            sys.exit(DISK_FULL)
        where = os.fsencode(str(error.filename or tree)).decode("utf-8", "backslashreplace")
        damage = Damage(path=where, what=f"it cannot be read: {error.strerror or error}")
        result = SealedTree(0, pace.read_bytes, [damage], 1)
    sys.stdout.buffer.write(msgspec.json.encode(result))


def _tell(done: int) -> None:
    sys.stderr.write(f'{{"done": {done}}}\n')
    sys.stderr.flush()


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
