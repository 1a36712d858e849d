"""The files of a checkpoint are flushed while they are written, where the host lets us."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.engines.gvisor.checkpoint_files import NAMES, CheckpointFiles
from atoll.host import syscalls


def _written(into: Path, begun: threading.Event) -> None:
    with CheckpointFiles(into, flushed=True) as files:
        os.write(files.fds[-1], b"page")
        assert begun.wait(10)
        files.sync()


def test_pages_are_flushed_from_the_start(tmp_path: Path) -> None:
    begun = threading.Event()
    begin_flush = syscalls.begin_flush

    def noted(fd: int) -> None:
        begin_flush(fd)
        begun.set()

    with patch.object(syscalls, "begin_flush", noted):
        _written(tmp_path, begun)
    assert (tmp_path / NAMES[-1]).read_bytes() == b"page"


@pytest.mark.parametrize("refused", [errno.ENOSYS, errno.EPERM])
def test_a_host_that_does_not_know_of_early_flushing_flushes_at_the_end(tmp_path: Path, refused: int) -> None:
    begun = threading.Event()

    def refuse(fd: int) -> None:
        begun.set()
        raise OSError(refused, os.strerror(refused))

    with patch.object(syscalls, "begin_flush", refuse):
        _written(tmp_path, begun)


def test_a_disk_that_fails_while_pages_are_written_fails_the_checkpoint(tmp_path: Path) -> None:
    begun = threading.Event()

    def fail(fd: int) -> None:
        begun.set()
        raise OSError(errno.EIO, "broken")

    with patch.object(syscalls, "begin_flush", fail), pytest.raises(OSError, match="broken"):
        _written(tmp_path, begun)
