"""CheckpointChecksums of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import DamagedError
from atoll.supervisor.integrity.checksums import CheckpointChecksums

MIB = 1 << 20


@pytest.mark.parametrize("at", [0, 5 * MIB + 7, 9 * MIB - 1])
def test_one_changed_byte_anywhere_in_the_pages_is_found(tmp_path: Path, at: int) -> None:
    pages = tmp_path / "pages.img"
    pages.write_bytes(bytes(9 * MIB))
    CheckpointChecksums().write(tmp_path)
    CheckpointChecksums().check(tmp_path, small=False)
    with pages.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    CheckpointChecksums().check(tmp_path, small=True)
    with pytest.raises(DamagedError, match="content has changed"):
        CheckpointChecksums().check(tmp_path, small=False)


def test_damaged_checksums_are_no_licence(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.img").write_bytes(b"state")
    CheckpointChecksums().write(tmp_path)
    (tmp_path / "checksums.json").write_bytes(b"{")
    with pytest.raises(DamagedError):
        CheckpointChecksums().check(tmp_path, small=True)


def test_what_a_file_was_when_it_was_recorded_counts_not_what_it_is_when_recorded_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "checkpoint.img").write_bytes(b"state")
    checksums = CheckpointChecksums()
    checksums.write(tmp_path)
    checksums.check(tmp_path, small=True)
    (tmp_path / "checkpoint.img").write_bytes(b"other")
    checksums.write(tmp_path)
    with pytest.raises(DamagedError):
        checksums.check(tmp_path, small=True)
