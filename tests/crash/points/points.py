"""Where a supervisor can die: every step by which it changes what the next one finds, counted by ``shim.c``."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent
# As in shim.c.
_HEAD = struct.Struct("=IIII")
_STEPS_MOST, _STEP_BYTES = 4096, 240
_SIZE = _HEAD.size + _STEPS_MOST * _STEP_BYTES
_ARMED, _LIMIT, _COUNT, _FIRED = 0, 4, 8, 12
# What the supervisor does for an operation comes in a row; then it looks at timers only.
_QUIET_S, _QUIET_MOST_S = 0.4, 30.0
_ID = re.compile(r"\b[a-z0-9]{20}\b")
_NUMBER = re.compile(r"\d+")
_ASIDE = re.compile(r"\.(\w+\.json)\.\w+$")


class Points:
    """The steps of the supervisors of one home; see ``watched``."""

    def __init__(self, memory: mmap.mmap, home: Path) -> None:
        self._memory = memory
        self._home = str(home)

    def arm(self, limit: int = 0) -> None:
        """Count steps from now on; the supervisor dies right before step ``limit``, by default before none."""
        self._memory[: _HEAD.size] = _HEAD.pack(0, limit, 0, 0)
        self._put(_ARMED, 1)

    def disarm(self) -> None:
        """Count no more."""
        self._put(_ARMED, 0)

    @property
    def has_fired(self) -> bool:
        """Whether the supervisor has died at its step."""
        return self._get(_FIRED) == 1

    def settle(self) -> None:
        """Wait until the supervisor has died or counts nothing more: an operation leaves something after its answer."""
        end_s = time.monotonic() + _QUIET_MOST_S
        seen, since_s = -1, time.monotonic()
        while not self.has_fired and (now_s := time.monotonic()) < end_s:
            if (count := self._get(_COUNT)) != seen:
                seen, since_s = count, now_s
            elif now_s - since_s > _QUIET_S:
                break
            time.sleep(0.02)
        self.disarm()

    def steps(self) -> list[str]:
        """What was counted since ``arm``, without ids and numbers, so that the steps of two runs can be compared."""
        told = []
        for number in range(min(self._get(_COUNT), _STEPS_MOST)):
            begin = _HEAD.size + number * _STEP_BYTES
            text = self._memory[begin : begin + _STEP_BYTES].split(b"\0", 1)[0].decode(errors="replace")
            told.append(self._kind(text))
        return told

    def _kind(self, text: str) -> str:
        text = _ASIDE.sub(r".\1.*", text.replace(self._home, "~"))
        return _NUMBER.sub("#", _ID.sub("*", text))

    def _get(self, at: int) -> int:
        (value,) = struct.unpack_from("=I", self._memory, at)
        return int(value)

    def _put(self, at: int, value: int) -> None:
        struct.pack_into("=I", self._memory, at, value)


@contextlib.contextmanager
def watched(home: Path, scratch: Path) -> Iterator[Points]:
    """Have every supervisor that is started meanwhile count its steps.

    Args:
        home: Whose supervisors they are.
        scratch: A directory for the shim, which is compiled there.
    """
    shim, shared = scratch / "shim.so", scratch / "points"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, _HERE / "shim.c", "-ldl"], check=True)
    shared.write_bytes(bytes(_SIZE))
    variables = {
        "ATOLL_KILL_POINTS": str(shared),
        "ATOLL_KILL_SHIM": str(shim),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_HERE / "site"), os.environ.get("PYTHONPATH")])),
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        with shared.open("r+b") as file, mmap.mmap(file.fileno(), _SIZE) as memory:
            yield Points(memory, home)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
