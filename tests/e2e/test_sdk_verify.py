"""Stored states on a disk that fails: what a guest left in its layers is read again and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.command_line import atoll
from tests.e2e.failing_disk import flip

from atoll import Sandbox, Snapshots
from atoll.types import VerifyReport

# Something of each kind, on top of the image: removed and replaced directories too.
LEAVES = r"""
mkdir -p deep/deeper && head -c 3000000 /dev/urandom >deep/deeper/random && echo one >one && ln one two
mkfifo fifo && ln -s ../nowhere link && truncate -s 3G sparse && echo end >>sparse && touch empty
echo hidden >locked && chmod 0 locked && mkdir shut && touch shut/in && chmod 0 shut
python3 -c '
import os, socket
open(b"new\nline\xff", "w").write("odd")
socket.socket(socket.AF_UNIX).bind("socket")
os.setxattr("one", "user.note", b"kept")
'
rm -r /usr/share/doc && mkdir /usr/share/doc && touch /usr/share/doc/mine && rm /etc/motd; chown 1000:7 empty
"""


@pytest.fixture
def forget(module_home: Path) -> object:
    """Deletes a test's snapshots at its end."""
    yield
    for snapshot in sorted(Snapshots.list(), key=lambda each: each.created_at, reverse=True):
        Snapshots.delete(snapshot.snapshot_id)


def states(report: VerifyReport) -> list[tuple[str, str]]:
    return [(part.kind, part.state) for part in report.parts]


@pytest.mark.usefixtures("forget")
def test_one_flipped_byte_in_a_layer_is_found_whatever_a_guest_left_there(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.run(LEAVES, user="root", cwd="/home/user").check()
        sandbox.snapshot(name="kept")
        assert states(Snapshots.verify("kept")) == [("memory", "whole"), ("layer", "recorded")]
        (copy,) = sandbox.fork(1)
        with copy:
            copy.run("rm -r deep two; echo more >>one", user="root", cwd="/home/user").check()
        sandbox.rollback("kept")
        sandbox.run("rm -r deep two; echo more >>one", user="root", cwd="/home/user").check()
        report = Snapshots.verify("kept")
        assert states(report) == [("memory", "whole"), ("layer", "whole")], report
        memory, layer = report.parts
        assert layer.files > 15
        assert layer.size_bytes >= 3_000_000
        flip(module_home, Path(layer.path) / "home/user/deep/deeper/random", 2_000_000)
        shown = atoll("snapshot", "verify", "kept")
        assert shown.returncode == 1
        found = f"damaged: {layer.path}: home/user/deep/deeper/random: its content has changed"
        assert shown.stdout.decode().splitlines()[-1] == found
        assert sandbox.run("echo unhurt").stdout == "unhurt\n"
        flip(module_home, next(Path(memory.path).glob("*pages*")), 2_000_000)
        assert [part.state for part in Snapshots.verify("kept").parts] == ["damaged", "damaged"]
        sandbox.kill()


@pytest.mark.usefixtures("forget")
def test_one_command_examines_all_that_a_home_keeps_and_each_layer_once(module_home: Path) -> None:
    with Sandbox.create(name="first") as sandbox:
        sandbox.run("echo one >one").check()
        sandbox.snapshot(name="older")
        sandbox.run("echo two >two").check()
        sandbox.snapshot(name="newer")
        sandbox.suspend()
        steps: list[str] = []
        for _ in range(2):
            report = Snapshots.verify(on_progress=lambda progress: steps.append(progress.step))
        assert report.whole
        names = [part.name for part in report.parts]
        assert len(set(names)) == len(names)
        assert {("memory", "older"), ("memory", "newer"), ("memory", "first")} < {
            (part.kind, part.name) for part in report.parts
        }
        assert all(part.state == "whole" for part in report.parts), report
        assert "reading the memory of older" in steps
        sandbox.kill()
