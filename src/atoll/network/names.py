"""The names that one guest has asked for, and the addresses that it got for them.

A guest whose policy has rules by name does not get the real addresses of a name. It gets one that stands for
the name, so that the relay knows the name of each connection, whatever protocol is spoken on it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

SYNTHETIC = IPv4Network("198.18.0.0/15")
"""Reserved for benchmarks, so no server has such an address."""

MOST_NAMES = 8192
# A program may keep an address for long. A name that was used within this time keeps its address.
KEPT_S = 3600.0
_LINES_KEPT = 4 * MOST_NAMES


class NameTable:
    """Maps names to synthetic addresses and back. The file keeps it when this process dies.

    An address that stood for a name stands for no other one until all 131,070 have been used.

    Args:
        path: The file. It is read now if it exists.
        clock: Returns seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        # The least recently used name first.
        self._used: OrderedDict[str, float] = OrderedDict()
        self._addresses: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._last = 0
        self._lines = 0
        self._load()

    def address_of(self, name: str) -> str | None:
        """Return the address that stands for a name, given one now if it has none; None if all are in use."""
        offset = self._addresses.get(name)
        if offset is None:
            if len(self._names) >= MOST_NAMES and not self._forget_oldest():
                return None
            offset = self._free()
            self._set(offset, name)
            self._append(offset, name)
        self._touch(name)
        return str(SYNTHETIC.network_address + offset)

    def name_at(self, address: str) -> str | None:
        """Return the name for which an address stands; None if it stands for none."""
        name = self._names.get(_offset(address) or 0)
        if name is not None:
            self._touch(name)
        return name

    def all(self) -> dict[str, str]:
        """Return the name of each address, the least recently used first."""
        return {str(SYNTHETIC.network_address + self._addresses[name]): name for name in self._used}

    def take_over(self, names: Mapping[str, str]) -> None:
        """Hold exactly these names of addresses, which a guest knows that was restored."""
        self._used.clear()
        self._addresses.clear()
        self._names.clear()
        for address, name in list(names.items())[-MOST_NAMES:]:
            if offset := _offset(address):
                self._set(offset, name)
        self._rewrite()

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)

    def _free(self) -> int:
        while True:
            self._last = self._last % (SYNTHETIC.num_addresses - 2) + 1
            if self._last not in self._names:
                return self._last

    def _forget_oldest(self) -> bool:
        name, used_s = next(iter(self._used.items()))
        if self._clock() - used_s < KEPT_S:
            return False
        self._forget(name)
        return True

    def _forget(self, name: str) -> None:
        del self._used[name]
        del self._names[self._addresses.pop(name)]

    def _set(self, offset: int, name: str) -> None:
        if (other := self._names.pop(offset, None)) is not None:
            self._addresses.pop(other, None)
            self._used.pop(other, None)
        self._addresses[name] = offset
        self._names[offset] = name
        self._last = offset
        self._touch(name)

    def _touch(self, name: str) -> None:
        self._used[name] = self._clock()
        self._used.move_to_end(name)

    def _load(self) -> None:
        text = ""
        with contextlib.suppress(FileNotFoundError):
            text = self._path.read_text("utf-8", errors="replace")
        # Without its end, the last line may be half a name: this process's predecessor died while it wrote.
        for line in text[: text.rfind("\n") + 1].splitlines():
            offset, _, name = line.partition(" ")
            if offset.isdecimal() and 0 < int(offset) < SYNTHETIC.num_addresses - 1 and name:
                self._set(int(offset), name)
                self._lines += 1
        # The file still has the names that were forgotten.
        while len(self._used) > MOST_NAMES:
            self._forget(next(iter(self._used)))
        if text and not text.endswith("\n"):
            self._rewrite()

    def _append(self, offset: int, name: str) -> None:
        if self._lines >= _LINES_KEPT:
            return self._rewrite()
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{offset} {name}\n")
        self._lines += 1
        return None

    def _rewrite(self) -> None:
        aside = self._path.with_name(f"{self._path.name}.new")
        lines = [f"{self._addresses[name]} {name}\n" for name in self._used]
        aside.write_text("".join(lines), encoding="utf-8")
        os.replace(aside, self._path)
        self._lines = len(lines)


def _offset(address: str) -> int | None:
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, IPv4Address) and parsed in SYNTHETIC:
        return int(parsed) - int(SYNTHETIC.network_address)
    return None


def is_synthetic(address: str) -> bool:
    """Whether an address is one of those that stand for names."""
    return _offset(address) is not None
