"""What runsc says when it fails, what is written down of a machine, and which engines there are."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.engines import engine_kind
from atoll.engines.gvisor.engine import _processes
from atoll.engines.gvisor.launch import Bounds, last_words, launch
from atoll.engines.gvisor.machine_paths import MachinePaths
from atoll.engines.gvisor.record import MachineRecord, decode_record
from atoll.errors import EngineError, NoSpaceError, UnsupportedError
from atoll.types import Limits


def test_the_newest_error_of_a_log_is_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "runsc.log"
    log.write_text(
        '{"msg":"old","level":"error"}\n{"msg":"newest","level":"error"}\n{"msg":"fine","level":"warning"}\nnoise\n'
    )
    assert last_words(log) == "newest"


def test_a_missing_log_has_no_words(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none") == "it left no message"


@pytest.mark.parametrize(
    ("words", "kind"),
    [("writing json: No space left on device", NoSpaceError), ("no such file", EngineError)],
)
def test_a_full_disk_is_told_as_such(tmp_path: Path, words: str, kind: type[Exception]) -> None:
    argv = ["/bin/sh", "-c", f'echo \'{{"msg":"{words}","level":"error"}}\' >{tmp_path}/runsc.log; exit 128']
    paths = MachinePaths(tmp_path)
    paths.make()
    with pytest.raises(kind, match=words):
        asyncio.run(launch(argv, paths, (), Bounds(Limits(), None)))


def test_a_record_comes_back_as_it_was() -> None:
    record = MachineRecord(
        machine_id="m1", state_dir="/s", sentry_pid=7, sentry_started=70, gofer_pid=8, gofer_started=80
    )
    assert decode_record(record.encode()) == record


def test_a_text_that_is_no_record_is_refused() -> None:
    with pytest.raises(EngineError, match="not a machine.s record"):
        decode_record(b"{}")


def test_an_unknown_engine_is_refused_with_the_names_of_the_known() -> None:
    with pytest.raises(UnsupportedError, match="gvisor"):
        engine_kind("warp")


def test_a_machine_that_ends_at_once_leaves_no_descriptor_open(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    MachinePaths(tmp_path).make()
    state = {"sandbox": {"pid": os.getpid()}, "goferPid": ended.pid}
    (tmp_path / "runsc" / "m1_sandbox:m1.state").write_text(json.dumps(state))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(EngineError, match="ended as soon"):
        _processes("m1", MachinePaths(tmp_path))
    assert set(os.listdir("/proc/self/fd")) <= before
