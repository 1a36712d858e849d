"""What the processes of a home may do on the host, and who may look at them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox, Supervisor
from atoll.host import Home
from tests.homes import processes_of

pytestmark = pytest.mark.twice

# What a supervisor never needs; see atoll.host.rights.
GIVEN_AWAY = {"sys_module": 16, "sys_rawio": 17, "sys_boot": 22, "sys_time": 25, "bpf": 39}
_CORE_FILES = 4  # RLIMIT_CORE


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_POOL_SIZE", "0")
        # Secrets of the host's user; they must not travel.
        patch.setenv("AWS_SECRET_ACCESS_KEY", "host-secret-1")
        patch.setenv("GITHUB_TOKEN", "host-secret-2")
        with Sandbox.create() as made:
            yield made
            made.kill()


def pids(home: Path, word: str) -> list[int]:
    return [int(line.partition(":")[0]) for line in processes_of(Home(home)) if word in line]


def status(pid: int) -> dict[str, str]:
    return status_of(Path(f"/proc/{pid}"))


def status_of(directory: Path) -> dict[str, str]:
    lines = (directory / "status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def of_threads(pid: int) -> list[dict[str, str]]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.append(status_of(thread))
    return found


def environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except PermissionError:  # nor may we look, who are the same user
        return b""


def test_the_supervisor_has_given_its_needless_rights_away(sandbox: Sandbox) -> None:
    told = Supervisor.hello()
    assert told is not None
    facts = status(told.pid)
    assert facts["NoNewPrivs"] == "1"
    for kind in ("CapEff", "CapPrm", "CapBnd"):
        assert [name for name, bit in GIVEN_AWAY.items() if int(facts[kind], 16) >> bit & 1] == []
    limits = Path(f"/proc/{told.pid}/limits").read_text().splitlines()
    (core,) = (line.split()[_CORE_FILES:6] for line in limits if line.startswith("Max core file size"))
    assert core == ["0", "0"]


def test_the_memory_of_the_supervisor_is_closed_to_other_programs_of_its_user(sandbox: Sandbox) -> None:
    told = Supervisor.hello()
    assert told is not None
    if os.geteuid() == 0:
        # Root may look at everything; what tells is who the files of the process belong to.
        assert os.stat(f"/proc/{told.pid}/environ").st_uid == 0
    else:
        with pytest.raises(PermissionError):
            Path(f"/proc/{told.pid}/environ").read_bytes()


def test_the_guests_kernel_runs_filtered_and_with_few_rights(sandbox: Sandbox, module_home: Path) -> None:
    found = pids(module_home, "runsc")
    assert len(found) >= 2
    for facts in (facts for pid in found for facts in of_threads(pid)):
        assert facts["NoNewPrivs"] == "1"
        assert facts["Seccomp"] == "2"
        # chown, dac_override, dac_read_search, fowner, fsetid; sys_chroot or sys_ptrace of its own children
        assert int(facts["CapEff"], 16) & ~0x000C001F == 0
        assert facts["CapEff"] == facts["CapBnd"]


def test_no_variable_of_the_host_reaches_a_sandbox_or_its_processes(
    sandbox: Sandbox, module_home: Path
) -> None:
    assert (
        "host-secret"
        not in sandbox.exec(["cat", "/proc/1/environ", "/proc/self/environ"], user="root").stdout
    )
    assert "host-secret" not in sandbox.run("env").stdout
    for line in processes_of(Home(module_home)):
        assert b"host-secret" not in environment(int(line.partition(":")[0]))


def test_nobody_else_can_enter_a_home(sandbox: Sandbox, module_home: Path) -> None:
    home = Home(module_home)
    for directory in (home.path, home.run, home.sandboxes, home.snapshots, home.layers):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for socket in (home.api_socket, home.dial_socket):
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.database.stat().st_mode) & 0o077 == 0


def test_a_setuid_program_of_a_sandbox_is_of_no_use_on_the_host(sandbox: Sandbox, module_home: Path) -> None:
    made = sandbox.run("sudo install -m 6755 /usr/bin/id /opt/become-root && /opt/become-root -u")
    assert made.stdout == "0\n", made.stderr
    (trap,) = (module_home / "sandboxes" / sandbox.id).glob("*/upper/opt/become-root")
    assert trap.stat().st_mode & stat.S_ISUID
    assert not reachable_by_nobody(trap)
    mounted = mount_flags(module_home)
    assert mounted
    for flags in mounted:
        assert {"nosuid", "nodev"} <= flags


def reachable_by_nobody(path: Path) -> bool:
    """Whether a user without rights could get there: each directory above must let others in."""
    return all(above.stat().st_mode & 0o001 for above in path.parents)


def mount_flags(home: Path) -> list[set[str]]:
    """The options of every sandbox's root, as the holder's mount namespace has it."""
    lines = Path(f"/proc/{holder_pid(home)}/mountinfo").read_text().splitlines()
    return [set(line.split()[5].split(",")) for line in lines if "/sandboxes/" in line.split()[4]]


def holder_pid(home: Path) -> int:
    (pid,) = pids(home, "atoll-holder")
    return pid
