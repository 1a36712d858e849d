from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.host import write_atomically


def test_a_file_is_replaced_at_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "record"
    write_atomically(path, b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "taken", b"data")
    assert os.listdir(tmp_path) == ["taken"]
