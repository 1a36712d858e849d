"""What `make dist` and CI find wrong with wheels."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from wheel_check import faults, machine_of

TAG = "py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64"
FIELDS = {
    "Name": "reef",
    "Version": "1",
    "Summary": "A reef.",
    "Requires-Python": ">=3.11",
    "License-Expression": "Apache-2.0",
    "Author": "Coral",
}


def program(processor: int, *segments: int) -> bytes:
    """The head of an ELF program with segments of these kinds."""
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, processor, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    return head + b"".join(struct.pack("<I52x", kind) for kind in segments)


def wheel(place: Path, *, without: str = "", program: bytes = b"", tag: str = TAG) -> Path:
    path = place / f"reef-1-{tag}.whl"
    about = "".join(f"{field}: {value}\n" for field, value in FIELDS.items() if field != without)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("reef-1.dist-info/METADATA", f"{about}\n# reef\n")
        archive.writestr("reef/_bin/reef", program)
    return path


def test_a_wheel_with_a_static_program_and_all_metadata_has_no_fault(tmp_path: Path) -> None:
    assert faults(wheel(tmp_path, program=program(62, 1, 4))) == []


@pytest.mark.parametrize("kind", [2, 3])
def test_a_program_that_loads_libraries_of_the_host_is_a_fault(tmp_path: Path, kind: int) -> None:
    assert faults(wheel(tmp_path, program=program(62, 1, kind))) == ["reef/_bin/reef is not static"]


def test_a_program_for_another_processor_than_the_tag_names_is_a_fault(tmp_path: Path) -> None:
    assert faults(wheel(tmp_path, program=program(183, 1))) == [
        "reef/_bin/reef is for another processor: 183"
    ]


def test_a_wheel_for_any_machine_has_no_programs(tmp_path: Path) -> None:
    assert faults(wheel(tmp_path, tag="py3-none-any")) == []
    assert faults(wheel(tmp_path, tag="py3-none-any", program=program(62, 1))) == [
        "reef/_bin/reef is a program, in a wheel for any machine"
    ]


def test_a_missing_field_is_a_fault(tmp_path: Path) -> None:
    assert faults(wheel(tmp_path, without="Summary")) == ["its metadata has no Summary"]


def test_tags_of_two_processors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="aarch64"):
        machine_of(wheel(tmp_path, tag="py3-none-manylinux_2_17_x86_64.manylinux2014_aarch64"))
