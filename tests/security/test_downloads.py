"""What a guest has laid out for whoever downloads it, by SDK and by command line."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import NO_LIMIT, Limits, Sandbox
from atoll.errors import FileError
from tests.e2e.command_line import atoll

pytestmark = pytest.mark.twice

LAY_OUT = """
import os
os.makedirs("/home/user/bait")
os.chdir("/home/user/bait")
os.symlink("/etc/passwd", "link")
os.symlink("..", "up")
os.mkfifo("pipe")
open("empty", "w").close()
with open("odd\\nname\\x1b]0;owned\\x07", "w") as file:
    file.write("odd")
with open("setuid", "w") as file:
    file.write("#!/bin/sh\\n")
os.chmod("setuid", 0o7777)
os.link("setuid", "twin")
os.mkdir("closed", 0o000)
with open("/home/user/bomb", "wb") as file:
    file.truncate(1 << 40)
os.makedirs("/home/user/crowd")
for number in range(300):
    open(f"/home/user/crowd/{number}", "w").close()
os.mkdir("/home/user/\\x1b]0;owned\\x07")
"""


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create(network="none", limits=Limits(disk_mib=NO_LIMIT)) as made:
        laid = made.exec(["python3", "-c", LAY_OUT])
        assert laid.exit_code == 0, laid.stderr
        yield made
        made.kill()


def test_a_tree_of_traps_arrives_as_plain_files(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.files.download("/home/user/bait", tmp_path / "bait", user="root")
    names = set(os.listdir(tmp_path / "bait"))
    assert names == {"link", "up", "empty", "odd\nname\x1b]0;owned\x07", "setuid", "twin", "closed"}
    modes = {path.name: path.lstat().st_mode for path in (tmp_path / "bait").iterdir()}
    assert all(mode & 0o7000 == 0 for mode in modes.values())
    assert stat.S_ISLNK(modes["link"]) and stat.S_ISLNK(modes["up"])
    assert (tmp_path / "bait/setuid").samefile(tmp_path / "bait/twin")
    sandbox.files.download("/home/user/bait", tmp_path / "inside", user="root", outside_links=False)
    assert names - set(os.listdir(tmp_path / "inside")) == {"link", "up"}


def test_a_file_of_holes_and_a_crowd_of_empty_ones_stop_at_their_bounds(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match="max_bytes"):
        sandbox.files.download("/home/user/bomb", tmp_path / "bomb", max_bytes=16 << 20)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileError, match="max_entries"):
        sandbox.files.download("/home/user/crowd", tmp_path / "crowd", max_entries=100)
    assert len(os.listdir(tmp_path / "crowd")) == 100


def test_the_command_line_says_no_name_of_a_guest_as_it_is(sandbox: Sandbox, tmp_path: Path) -> None:
    odd = "/home/user/\x1b]0;owned\x07"
    for arguments in (
        ("cp", f"{sandbox.id}:{odd}", str(tmp_path / "copy")),
        ("cp", f"{sandbox.id}:{odd}/missing", str(tmp_path / "missing")),
        ("cp", "--json", f"{sandbox.id}:{odd}/missing", str(tmp_path / "missing")),
        ("exec", "--cwd", f"{odd}/missing", sandbox.id, "--", "true"),
        ("logs", sandbox.id),
        ("logs", "--json", sandbox.id),
        ("info", sandbox.id),
    ):
        done = atoll(*arguments)
        assert b"\x1b" not in done.stdout + done.stderr, arguments
        assert b"\x07" not in done.stdout + done.stderr, arguments
