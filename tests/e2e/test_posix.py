"""Some hundred facts about files, each looked at inside: before anything, and on what lay there before each operation.

The files are made before a suspend, fork, snapshot or rollback and used afterwards, when they may lie in a frozen
layer, in one that shares its extents, or in a copy.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests import homes

from atoll import NO_LIMIT, AtollError, Limits, Sandbox

pytestmark = pytest.mark.twice

PROGRAM = Path(__file__).with_name("posix")
TOP = "/workspace/posix"
CHECKS = 240
# What gVisor does in its own way, before and after every operation; docs/guide/files-and-processes.md has the table.
DIFFERS = {
    "rename-one-name-of-a-file-to-another-of-it",
    "a-removed-working-directory-is-empty",
    "a-deleted-open-file-has-no-links",
    "holes-take-no-blocks",
}


def ask(sandbox: Sandbox, *arguments: str) -> dict[str, str]:
    """What went wrong, by the name of the check."""
    done = sandbox.exec(["python3", f"{TOP}/program.py", *arguments], user="root", timeout_s=300)
    done.check()
    told = json.loads(done.stdout)
    assert told["checks"] >= CHECKS
    return dict(told["wrong"])


def prepared(*trees: str) -> Sandbox:
    """A sandbox with the program and its trees."""
    # A hole counts as much as what it could hold.
    sandbox = Sandbox.create(limits=Limits(disk_mib=NO_LIMIT))
    for path in PROGRAM.glob("*.py"):
        sandbox.files.write(f"{TOP}/{path.name}", path.read_text())
    for tree in trees:
        ask(sandbox, "prepare", f"{TOP}/{tree}")
    return sandbox


def assert_all_right(sandbox: Sandbox, tree: str) -> None:
    """Fail when something about a tree differs from what POSIX says, but for what is known."""
    wrong = ask(sandbox, "act", f"{TOP}/{tree}")
    assert {name: wrong[name] for name in wrong.keys() - DIFFERS} == {}
    assert wrong.keys() == DIFFERS


# As an ordinary user scripts/test-as-user names a file system that shares extents; root freezes layers on any.
PLACES = [None, *(Path(place) for place in [os.environ.get("ATOLL_TEST_REFLINKS")] if place)]


@pytest.mark.parametrize("under", PLACES, ids=lambda place: "reflinks" if place else "plain")
def test_files_are_after_every_operation_what_they_were_before(under: Path | None) -> None:
    with homes.make_home(under=under) as home, prepared("new", "kept") as sandbox:
        kind = "frozen" if os.geteuid() == 0 else "reflinked" if under else "copied"
        assert f"disks: {kind}" in (home / "supervisor.log").read_text()
        assert_all_right(sandbox, "new")
        # Of one that sleeps, so that its layer is kept as a whole.
        sandbox.suspend()
        snapshot = sandbox.snapshot()
        assert_all_right(sandbox, "kept")
        sandbox.rollback(snapshot.snapshot_id)
        with sandbox.fork(1)[0] as copy:
            assert_all_right(copy, "kept")
        assert_all_right(sandbox, "kept")


def test_files_are_what_they_were_where_their_layer_is_frozen_below_the_running_sandbox(
    module_home: Path,
) -> None:
    with prepared("kept") as sandbox:
        sandbox.run("head -c 80000000 /dev/zero >large").check()
        with sandbox.fork(1)[0] as copy:
            copy.kill()
        assert_all_right(sandbox, "kept")


def test_a_directory_of_the_image_moves(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.exec(["mv", "/usr/share/doc", "/usr/share/moved"], user="root").check()
        (copy,) = sandbox.fork(1)
        with copy:
            assert "base-files" in copy.run("ls /usr/share/moved").stdout.split()
            assert not copy.files.exists("/usr/share/doc")
            script = "import os; os.rename('/usr/share/man', '/usr/share/man2')"
            renamed = copy.exec(["python3", "-c", script], user="root")
            # In a user namespace the kernel refuses to rename it; programs then copy, as mv does.
            assert renamed.exit_code == 0 if os.geteuid() == 0 else "Errno 18" in renamed.stderr


def test_what_a_deleted_open_file_is_after_an_operation(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        script = (
            "import os; f = open('/workspace/one', 'w+'); f.write('kept'); f.flush();"
            "os.link('/workspace/one', '/workspace/two'); os.unlink('/workspace/one'); print('ready', flush=True);"
            "input(); f.write('+more'); f.flush(); f.seek(0); print(f.read(), open('/workspace/two').read())"
        )
        with sandbox.processes.start(["python3", "-c", script], stdin=True, stream=True) as process:
            assert next(iter(process)).text == "ready\n"
            sandbox.suspend()
        twin = sandbox.processes.attach(process.pid)
        twin.write_stdin("\n")
        # The other name does not see it: see the table in the guide.
        assert "kept+more kept\n" in twin.wait(timeout_s=120).stdout


def test_a_deleted_fifo_that_is_open_keeps_a_sandbox_awake_and_says_so(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        script = "import os; os.mkfifo('fifo'); f = os.open('fifo', os.O_RDWR); os.unlink('fifo'); input()"
        process = sandbox.processes.start(["python3", "-c", script], stdin=True)
        while sandbox.run(f"! test -e fifo && ls -l /proc/{process.pid}/fd | grep fifo").exit_code:
            time.sleep(0.05)
        with pytest.raises(AtollError):
            sandbox.suspend()
        assert sandbox.info().state == "running"
        assert process.pid in [row.pid for row in sandbox.processes.list()]
