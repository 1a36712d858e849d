"""A disk that fills up in the middle of any operation: a clear error, nothing lost, and room can be made."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from atoll import NO_LIMIT, Limits, Sandbox, Snapshots, Supervisor, Teams
from atoll.errors import AtollError, NoSpaceError
from atoll.host import Home, disk_usage, free_bytes
from tests import homes
from tests.crash.ledger import begin, look
from tests.crash.victims import kill_supervisor
from tests.e2e.server import serving
from tests.e2e.test_server_tenants import asking
from tests.waiting import until

_DISK_BYTES = 160 << 20
_FREE_BYTES = 32 << 20
_LEFT_BYTES = (0, 12 << 10, 3 << 20)


@pytest.fixture
def small_home() -> Iterator[Path]:
    """A home on a disk of 160 MiB of its own."""
    images = homes.shared_images()
    top = Path(tempfile.mkdtemp(prefix="af-"))
    path, disk = top / "h", top / "disk"
    path.mkdir()
    with disk.open("wb") as file:
        file.truncate(_DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", disk], check=True)
    subprocess.run(["mount", "-o", "loop", disk, path], check=True)
    try:
        (path / "images").symlink_to(images)
        with homes.entered(path):
            try:
                yield path
            finally:
                (path / "filler").unlink(missing_ok=True)
                homes.empty(path)
                homes.end(path)
        (path / "images").unlink()
        left = [
            entry.name for part in ("sandboxes", "snapshots", "layers") for entry in homes.listed(path / part)
        ]
        assert left == []
        assert homes.processes_of(Home(path)) == []
        assert "Traceback" not in Home(path).log.read_text()
    finally:
        subprocess.run(["umount", path], check=True)
        disk.unlink()
        path.rmdir()
        top.rmdir()


def fill(home: Path, left_bytes: int) -> None:
    """Leave only so much of the home's disk free."""
    # What an earlier operation used comes back in the background, and ext4 gives freed blocks out again only when
    # they are in its journal. What does not come back is a leak.
    until(lambda: free_bytes(home) > _FREE_BYTES)
    os.sync()
    with (home / "filler").open("ab") as file:
        try:
            while free_bytes(home) > left_bytes:
                file.write(bytes(min(1 << 20, max(4096, free_bytes(home) - left_bytes))))
                file.flush()
        except OSError:
            os.ftruncate(file.fileno(), os.fstat(file.fileno()).st_size)
    os.sync()


def test_a_tenth_of_the_host_s_disk_stays_free_unless_a_sandbox_has_a_limit_of_its_own(
    small_home: Path,
) -> None:
    def left_mib() -> int:
        return (free_bytes(small_home) - disk_usage(small_home).total // 10) >> 20

    with Sandbox.create() as sandbox, Sandbox.create() as other:
        filled = sandbox.run("head -c 1G /dev/zero >big")
        assert "No space left" in filled.stderr
        # The host is asked again each time that as much was written as would not matter.
        assert -1 <= left_mib() < 20
        assert other.run("df -m --output=size,avail / | tail -1").stdout.split()[0] == str(
            other.info().limits_in_force.disk_mib
        )
        assert int(other.run("df -m --output=avail / | tail -1").stdout) < 20
        assert other.run("head -c 30M /dev/zero >more").exit_code == 1
        other.set_limits(Limits(disk_mib=NO_LIMIT))
        assert other.run("head -c 8M /dev/zero >more && echo fits").stdout == "fits\n"
        sandbox.run("rm big").check()


def test_no_operation_on_a_full_disk_loses_anything_and_a_kill_makes_room(small_home: Path) -> None:
    with Sandbox.create(name="kept", keep=True) as sandbox, Sandbox.create(name="other", keep=True) as other:
        begin(sandbox)
        before = look(sandbox)
        other.files.write("/home/user/much", b"x" * (8 << 20))
        operations = (
            sandbox.snapshot,
            sandbox.suspend,
            lambda: [copy.close() for copy in sandbox.fork(1)],
            lambda: Sandbox.create(name="more", keep=True).close(),
            sandbox.pause,
        )
        for left_bytes in _LEFT_BYTES:
            for operation in operations:
                fill(small_home, left_bytes)
                try:
                    operation()
                except AtollError as error:
                    assert error.code in ("no_space", "engine_failed"), repr(error)
                (small_home / "filler").unlink()
                for made in list(Sandbox.list()):
                    if made.name not in ("kept", "other"):
                        with Sandbox.connect(made.sandbox_id, wake=False) as extra:
                            extra.kill()
                for snapshot in list(Snapshots.list()):
                    Snapshots.delete(snapshot.snapshot_id)
                assert look(sandbox).run == before.run, operation
        fill(small_home, 0)
        other.kill()
        assert free_bytes(small_home) > 4 << 20
        assert look(sandbox).run == before.run
        sandbox.kill()
    assert Supervisor.leftovers() == []


def test_a_supervisor_that_dies_on_a_full_disk_comes_back_and_room_can_be_made(small_home: Path) -> None:
    with Sandbox.create(name="kept", keep=True) as sandbox, Sandbox.create(name="other", keep=True) as other:
        begin(sandbox)
        before = look(sandbox)
        other.files.write("/home/user/much", b"x" * (8 << 20))
        fill(small_home, 0)
        kill_supervisor(Home(small_home))
        other.kill()
        assert free_bytes(small_home) > 4 << 20
        assert look(sandbox).run == before.run
        sandbox.kill()
    assert Supervisor.leftovers() == []


def test_a_server_on_a_full_disk_says_so_and_goes_on(small_home: Path) -> None:
    with serving() as server, asking(server, server.key) as client:
        made = client.post("/v3/templates", json={"name": "one"}).json()
        fill(small_home, 0)
        upload = client.get(f"/templates/{made['templateID']}/files/{'0' * 64}").json()["url"]
        # on a connection of its own, which ends where a body is not read to its end
        for answer in (
            httpx.put(upload, content=bytes(1 << 20)),
            client.post("/v3/templates", json={"name": "two"}),
        ):
            assert (answer.status_code, "no space is left" in answer.json()["message"]) == (507, True)
        with pytest.raises(NoSpaceError):
            Teams.create("three")
        (small_home / "filler").unlink()
        assert httpx.put(upload, content=b"x").status_code == 200
        assert "Traceback" not in server.log.read_text()
