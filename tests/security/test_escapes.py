"""The ways out of containers, pulled one by one from inside a sandbox as its root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll import NO_LIMIT, Limits, Sandbox

pytestmark = pytest.mark.twice

PROBE = Path(__file__).with_name("escape_probe.py").read_text()
MARK = "atoll-was-here-93c1"
LEVERS = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/kernel/hostname",
]


def values() -> dict[str, str]:
    """What the host's kernel has been told."""
    return {path: Path(path).read_text() for path in LEVERS if Path(path).exists()}


def test_no_lever_moves_anything_outside(module_home: Path) -> None:
    before = values()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with Sandbox.create() as sandbox:
        result = sandbox.exec(["python3", "-c", PROBE, MARK, boot_id], user="root", timeout_s=120)
        assert result.exit_code == 0, result.stderr
        assert json.loads(result.stdout) == []
        assert sandbox.exec(["hostname", "somebody-else"], user="root").exit_code == 0
        assert sandbox.exec(["true"]).exit_code == 0
        sandbox.kill()
    assert values() == before
    assert not Path("/", MARK).exists()


HOSTILE_TREE = """
import os
os.makedirs("/home/user/trap", exist_ok=True)
os.chdir("/home/user/trap")
os.symlink("/etc/shadow", "shadow")
os.symlink("/", "root")
os.symlink("../" * 30 + "etc", "up")
os.mkfifo("pipe")
os.mkdir("locked")
open("locked/inner", "w").close()
os.chmod("locked", 0)
open("name\\nwith\\x1b[2Jescapes", "w").close()
open("setuid", "w").close()
os.chmod("setuid", 0o6777)
with open("sparse", "wb") as file:
    file.truncate(1 << 40)
for number in range(600):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("bottom", "w").close()
"""


def test_a_hostile_disk_is_copied_measured_and_erased_like_any_other(
    module_home: Path, tmp_path: Path
) -> None:
    with Sandbox.create(limits=Limits(disk_mib=NO_LIMIT)) as sandbox:
        made = sandbox.exec(["python3", "-c", HOSTILE_TREE])
        assert made.exit_code == 0, made.stderr
        used = sandbox.stats().disk_bytes
        assert used is not None
        # Holes count as nothing, links as themselves.
        assert used < 64 << 20
        snapshot = sandbox.snapshot()
        assert snapshot.disk_bytes < 64 << 20
        (fork,) = sandbox.fork(1)
        with fork:
            assert fork.exec(["cat", "/home/user/trap/shadow"], user="root").stdout.startswith("root:")
            assert fork.files.stat("/home/user/trap/sparse").size_bytes == 1 << 40
            fork.kill()
        sandbox.rollback(snapshot.snapshot_id)
        assert sandbox.files.stat("/home/user/trap/setuid").mode == 0o6777
        sandbox.kill()
