"""The files of a checkpoint appear in another directory, also where no further link is possible."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from atoll.supervisor.lifecycle.checkpoint_files import link_files


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    made, target = tmp_path / "checkpoint", tmp_path / "target"
    made.mkdir()
    target.mkdir()
    (made / "pages.img").write_bytes(b"page" * 4096)
    (made / "pages-1.img").write_bytes(b"earlier")
    return made


def test_they_are_linked(checkpoint: Path, tmp_path: Path) -> None:
    link_files(checkpoint, tmp_path / "target")
    for name in ("pages.img", "pages-1.img"):
        assert (tmp_path / "target" / name).samefile(checkpoint / name)


@pytest.mark.parametrize("full", [errno.EMLINK, errno.EPERM])
def test_one_with_too_many_links_is_copied_and_other_failures_are_told(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int
) -> None:
    link = os.link

    def linked(source: Path, target: Path, **options: Any) -> None:
        if source.name == "pages-1.img":
            raise OSError(full, os.strerror(full))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", linked)
    if full == errno.EPERM:
        with pytest.raises(PermissionError):
            link_files(checkpoint, tmp_path / "target")
        return
    link_files(checkpoint, tmp_path / "target")
    copy = tmp_path / "target/pages-1.img"
    assert copy.read_bytes() == b"earlier"
    assert not copy.samefile(checkpoint / "pages-1.img")
    assert (tmp_path / "target/pages.img").samefile(checkpoint / "pages.img")
