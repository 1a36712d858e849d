#!/usr/bin/env python3
"""Check wheels as an index that takes them does, and what their tags promise: wheel_check.py WHEEL…

`scripts/dist` and `scripts/test-offline` run it in an environment with scripts/locks/dist.txt. The tags
`manylinux_2_17` and `musllinux_1_1` say that a wheel runs beside any libc of the last ten years. They are true of a
wheel whose programs are static, for the processor that the tag names: nothing of the host is loaded into them. A wheel
for any machine has no programs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

ANY = "any"
MOST_BYTES = 95 * 1000 * 1000
# The number of a processor in the head of a program, by its name in a tag.
PROCESSORS = {"x86_64": 62, "aarch64": 183}
# PT_DYNAMIC and PT_INTERP: libraries of the host are loaded into the program, by a loader of the host.
_LOADED = {2, 3}
_NEEDED = ("Name", "Version", "Summary", "Requires-Python", "License-Expression", "Author", "Description")


def main() -> int:
    wheels = [Path(name) for name in sys.argv[1:]]
    found = [f"{wheel.name}: {fault}" for wheel in wheels for fault in faults(wheel)]
    if versions := {version_of(wheel) for wheel in wheels}:
        found += [f"the wheels have different versions: {sorted(versions)}"] if len(versions) > 1 else []
    for fault in found:
        print(f"wheel_check: {fault}", file=sys.stderr)
    tools = (["twine", "check", "--strict"], ["check-wheel-contents", "--no-config"])
    failed = [tool for tool in tools if not passes(tool, wheels)]
    return 1 if found or failed else 0


def faults(wheel: Path) -> list[str]:
    """What an index, or a user whose host the tag names, would find wrong with a wheel."""
    found = [f"it has {wheel.stat().st_size} bytes"] if wheel.stat().st_size > MOST_BYTES else []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        found += [f"{name} is there twice" for name in {name for name in names if names.count(name) > 1}]
        about = metadata(archive)
        found += [f"its metadata has no {field}" for field in _NEEDED if not (about[field] or "").strip()]
        machine = machine_of(wheel)
        for name in names:
            with archive.open(name) as file:
                found += program_faults(name, file.read(1 << 16), machine)
    return found


def metadata(archive: zipfile.ZipFile) -> Message:
    name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    about = BytesParser().parsebytes(archive.read(name))
    about["Description"] = str(about.get_payload())
    return about


def version_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return str(metadata(archive)["Version"])


def machine_of(wheel: Path) -> str:
    """The processor of the tags of a wheel's name, which must all name the same one; or ``any``."""
    tags = wheel.stem.split("-")[-1].split(".")
    if tags == [ANY]:
        return ANY
    machines = {
        match[1] for tag in tags if (match := re.fullmatch(r"\w+?linux(?:\d{4}|_\d+_\d+)_(\w+)", tag))
    }
    if len(machines) != 1:
        raise SystemExit(f"wheel_check: {wheel.name}: its tags name the processors {sorted(machines)}")
    return machines.pop()


def program_faults(name: str, head: bytes, machine: str) -> list[str]:
    """Why a file of a wheel does not run on every Linux with that processor; nothing if it is no program."""
    if head[:4] != b"\x7fELF":
        return []
    if machine == ANY:
        return [f"{name} is a program, in a wheel for any machine"]
    number = int.from_bytes(head[18:20], "little")
    found = [] if number == PROCESSORS[machine] else [f"{name} is for another processor: {number}"]
    start, size, count = (
        int.from_bytes(head[at : at + n], "little") for at, n in ((32, 8), (54, 2), (56, 2))
    )
    kinds = {int.from_bytes(head[at : at + 4], "little") for at in range(start, start + size * count, size)}
    return [*found, f"{name} is not static"] if kinds & _LOADED else found


def passes(tool: list[str], wheels: list[Path]) -> bool:
    program = Path(sys.executable).with_name(tool[0])
    done = subprocess.run(
        [program, *tool[1:], *wheels], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
