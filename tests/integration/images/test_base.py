"""What is in the image ``base``."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atoll.host import Mounts, is_host_root, remove_tree
from atoll.images import Image, Images
from atoll.types import Progress

LONGEST_S = 120
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def base(shared: Path) -> Image:
    image = Images(shared).get("base")
    assert image
    return image


@contextmanager
def entered(image: Image) -> Iterator[Path]:
    """A writable root over the image, with the few devices that programs need; the image stays as it is."""
    top = Path(tempfile.mkdtemp(prefix="atoll-base-", dir=image.lowers[0].parents[2]))
    for name in ("upper", "work", "root"):
        (top / name).mkdir()
    root = top / "root"
    Mounts.overlay([image.lowers[0]], top / "upper", top / "work", root, complete=is_host_root())
    try:
        for name in ("null", "urandom"):
            (root / "dev" / name).touch()
            Mounts.bind(Path("/dev", name), root / "dev" / name, read_only=False)
        yield root
    finally:
        for name in ("dev/null", "dev/urandom", ""):
            Mounts.unmount(root / name)
        remove_tree(top)


def run(root: Path, *argv: str) -> str:
    """What a program in the image prints, as uid 0 with the image's own environment."""
    result = subprocess.run(
        ["chroot", str(root), *argv],
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert not result.returncode, result.stdout
    return result.stdout


def as_user(root: Path, line: str) -> str:
    return run(root, "su", "-", "user", "-c", line)


def test_the_image_is_described(shared: Path) -> None:
    info = base(shared).info
    assert (info.name, info.user, info.cwd) == ("base", "user", "/home/user")
    assert re.fullmatch("sha256-[0-9a-f]{64}", info.digest)
    assert 100 << 20 < info.size_bytes < 500 << 20
    assert Images(shared).list() == [info]
    assert Images(shared).get(info.digest) == base(shared)


async def test_a_second_ensure_builds_nothing(shared: Path) -> None:
    reports: list[Progress] = []
    assert await Images(shared).ensure("base", reports.append) == base(shared)
    assert reports == []


def test_the_build_told_how_far_it_was(shared: Path) -> None:
    told = shared.parent / "progress.json"
    if not told.exists():
        return  # another test run built it
    reports = msgspec.json.decode(told.read_bytes(), type=list[Progress])
    assert {"downloading the first packages", "installing the other packages", "finishing"} <= {
        each.step for each in reports
    }
    assert all(each.done <= each.total for each in reports if each.total)
    wholes: list[Any] = [each.whole for each in reports]
    assert wholes == sorted(wholes) and wholes[-1] == 0.97


def test_the_user_is_there_and_may_do_everything(shared: Path) -> None:
    root = base(shared).lowers[0]
    passwd = (root / "etc/passwd").read_text()
    assert "user:x:1000:1000::/home/user:/bin/bash\n" in passwd
    assert re.search("^sudo:x:[0-9]+:user$", (root / "etc/group").read_text(), re.MULTILINE)
    sudoers = root / "etc/sudoers.d/user"
    assert sudoers.read_text() == "user ALL=(ALL:ALL) NOPASSWD: ALL\n"
    assert stat.S_IMODE(sudoers.stat().st_mode) == 0o440
    assert (root / "usr/bin/sudo").stat().st_mode & stat.S_ISUID
    for path in ("home/user", "home/user/.bashrc", "workspace"):
        assert (root / path).stat().st_uid == 1000


def test_nothing_of_the_building_host_is_in_it(shared: Path) -> None:
    root = base(shared).lowers[0]
    assert (root / "etc/machine-id").read_bytes() == b""
    assert (root / "etc/resolv.conf").read_bytes() == b""
    assert (root / "etc/hostname").read_text() == "atoll\n"
    assert socket.gethostname() not in (root / "etc/hosts").read_text()
    apt = "".join(path.read_text() for path in (root / "etc/apt").rglob("*.conf"))
    apt += "".join(path.read_text() for path in (root / "etc/apt/apt.conf.d").iterdir())
    assert "Proxy" not in apt
    assert "netrc" not in apt
    assert not (root / "etc/apt/auth.conf").exists()


def test_it_carries_no_ballast(shared: Path) -> None:
    root = base(shared).lowers[0]
    assert list((root / "dev").iterdir()) == []
    for directory in (
        "var/lib/apt/lists",
        "var/cache/apt",
        "var/log",
        "tmp",
        "usr/share/man",
        "usr/share/info",
    ):
        assert [
            path for path in (root / directory).rglob("*") if path.is_file() and path.name != "lock"
        ] == []
    assert {path.name for path in (root / "usr/share/doc").rglob("*") if path.is_file()} == {"copyright"}
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777


@pytest.mark.parametrize(
    "program",
    [
        "bash",
        "python",
        "python3",
        "pip",
        "git",
        "curl",
        "jq",
        "rg",
        "less",
        "nano",
        "unzip",
        "sudo",
        "file",
        "xz",
        "ssh",
        "ps",
        "pgrep",
        "ip",
        "ss",
        "tput",
        "tar",
        "perl",
    ],
)
def test_a_program_that_agents_expect_is_there(shared: Path, program: str) -> None:
    root = base(shared).lowers[0]
    found = [root / place / program for place in ("usr/bin", "usr/sbin") if (root / place / program).exists()]
    assert found
    assert os.access(found[0], os.X_OK)


def test_its_programs_run(shared: Path) -> None:
    lines = (
        "python --version",
        "pip --version",
        "git --version",
        "curl --version",
        "rg --version",
        "jq --version",
        "ss --version",
        "tput -T xterm cols",
        "date +%Z",
    )
    with entered(base(shared)) as root:
        told = as_user(root, " && ".join(lines))
        assert re.search(r"^Python 3\.", told)
        assert told.endswith("UTC\n")
        assert "parsed OK" in run(root, "visudo", "-c")
        assert (root / "usr/lib/git-core/git-daemon").exists()


def test_a_login_shell_finds_everything(shared: Path) -> None:
    with entered(base(shared)) as root:
        path = as_user(root, "echo $PATH").strip().split(":")
        assert path[0] == "/home/user/.local/bin"
        assert {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} <= set(path)
        assert as_user(root, "locale charmap").strip() == "UTF-8"
        assert base(shared).info.env["PATH"].startswith("/home/user/.local/bin:/usr/local/sbin:")


def test_pip_installs_for_the_user_as_it_is(shared: Path) -> None:
    with entered(base(shared)) as root:
        with zipfile.ZipFile(root / "home/user/island-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("island.py", "def main():\n    print('ashore')\n")
            wheel.writestr(
                "island-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: island\nVersion: 1.0\n"
            )
            wheel.writestr("island-1.0.dist-info/WHEEL", WHEEL)
            wheel.writestr(
                "island-1.0.dist-info/entry_points.txt", "[console_scripts]\nisland = island:main\n"
            )
            wheel.writestr("island-1.0.dist-info/RECORD", "")
        told = as_user(root, "pip install --no-index ./island-1.0-py3-none-any.whl && island")
        assert told.endswith("ashore\n")
        assert "WARNING" not in told


def test_a_virtual_environment_can_be_made(shared: Path) -> None:
    with entered(base(shared)) as root:
        assert "pip" in as_user(root, "python -m venv v && v/bin/python -m pip --version")
