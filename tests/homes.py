"""Homes for tests: each its own directory, all sharing one built image, each leaving the host as it was."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll import Images, Sandbox, Snapshots, Supervisor, Templates, Volumes
from atoll.errors import AtollError, SandboxNotFoundError, SnapshotNotFoundError
from atoll.host import Home, end_holder, find_holder, locked
from atoll.testing import group_roots

CACHE = Path(os.environ.get("ATOLL_TEST_CACHE") or Path.home() / ".cache" / "atoll" / f"test-{os.getuid()}")
END_S = 120.0
_LOG_BYTES = 6000
_LOGS_MOST = 4


@contextlib.contextmanager
def entered(path: Path) -> Iterator[None]:
    """Let ``ATOLL_HOME`` name ``path``, and what it named before afterwards."""
    before = os.environ.get("ATOLL_HOME")
    os.environ["ATOLL_HOME"] = str(path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ATOLL_HOME"]
        else:
            os.environ["ATOLL_HOME"] = before


@functools.cache
def shared_images() -> Path:
    """The directory of images that all tests of this user share.

    The first test that asks has ``base`` built when it is missing or its recipe has changed.
    """
    builder = CACHE / "home"
    builder.mkdir(parents=True, exist_ok=True)
    with locked(CACHE / "home.lock"):
        for database in builder.glob("state.db*"):  # checkouts of other versions build here too
            database.unlink(missing_ok=True)
        with entered(builder):
            Images.ensure("base")
            end(builder)
    return builder / "images"


@contextlib.contextmanager
def make_home(prefix: str = "ah-", *, own_images: bool = False, under: Path | None = None) -> Iterator[Path]:
    """A fresh home under a directory, by default the temporary one, entered; afterwards nothing of it is left.

    With ``own_images`` it has none of the images that tests share, so ``base`` is not there.
    """
    images = None if own_images else shared_images()
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=under))
    if images:
        (path / "images").symlink_to(images)
    with entered(path):
        try:
            yield path
        finally:
            empty(path)
            if own_images:
                empty_of_images()
            end(path)
            if images:
                (path / "images").unlink(missing_ok=True)
            assert_nothing_is_left(path)
            shutil.rmtree(path)


def empty(path: Path) -> None:
    """Kill every sandbox of the home and delete every snapshot, children before parents, and every volume."""
    if not (path / "state.db").exists():
        return
    for sandbox in list(Sandbox.list()):
        with contextlib.suppress(SandboxNotFoundError):
            Sandbox.get(sandbox.sandbox_id)
            with Sandbox.connect(sandbox.sandbox_id, wake=False) as handle:
                handle.kill()
    for template in Templates.list():
        Templates.delete(template.template_id)
    for snapshot in sorted(Snapshots.list(), key=lambda s: s.created_at, reverse=True):
        with contextlib.suppress(SnapshotNotFoundError):  # what no template needs goes by itself
            Snapshots.delete(snapshot.snapshot_id)
    for volume in Volumes.list():
        Volumes.delete(volume.volume_id)
    if any((path / "snapshots").glob(".erased-*")):
        Supervisor.collect()  # it waits for what is being erased; a stop does not for ever


def empty_of_images() -> None:
    """Remove every image, of which an ordinary user cannot remove the files by itself."""
    for image in Images.list():
        Images.delete(image.name)
    Supervisor.collect()


def end(path: Path) -> None:
    """Stop the home's supervisor and its holder, and wait until both are gone."""
    with contextlib.suppress(AtollError):
        Supervisor.stop()
    home = Home(path)
    deadline = time.monotonic() + END_S
    while processes_of(home) and time.monotonic() < deadline:
        time.sleep(0.05)
        if find_holder(home) and len(processes_of(home)) <= 1:
            end_holder(home)
    shutil.rmtree(home.run, ignore_errors=True)


def processes_of(home: Home) -> list[str]:
    """Command lines of living processes that name the home or its run directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if f"{home.path}" in line or f"{home.run}" in line:
                    found.append(f"{entry.name}: {line}")
    return found


def kill_machines(home: Path) -> None:
    """Do to the guests of a home what the host's memory killer would do."""
    killed = 0
    for line in processes_of(Home(home)):
        pid, _, command = line.partition(": ")
        if command.startswith("runsc-sandbox"):
            # A sentry's own children end with it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
                killed += 1
    assert killed


def logs_of(home: Home) -> str:
    """The newest lines of a supervisor's log and of its sandboxes' logs, for a test that has failed."""
    paths = [home.log, *sorted(home.sandboxes.glob("*/console.log"))[:_LOGS_MOST]]
    parts = []
    for path in paths:
        with contextlib.suppress(OSError):
            parts.append(f"-- {path}\n{path.read_bytes()[-_LOG_BYTES:].decode(errors='replace')}")
    return "\n".join(parts)


def assert_nothing_is_left(path: Path) -> None:
    """Fail when a process, a control group or a mount of the home is still there."""
    home = Home(path)
    assert processes_of(home) == []
    assert group_roots(home) == []
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(path) not in mounts
    assert str(home.run) not in mounts
    left = [
        entry.name
        for directory in ("sandboxes", "snapshots", "layers", "volumes")
        for entry in listed(path / directory)
    ]
    assert left == []


def contents_of(home: Path, *, without: Sequence[str] = ()) -> Iterator[tuple[Path, bytes]]:
    """Every file of a home with its bytes, but those below the named parts. What is removed meanwhile is left out."""
    for path, directories, names in os.walk(home):
        directories[:] = [name for name in directories if name not in without]
        for name in names:
            file = Path(path) / name
            with contextlib.suppress(FileNotFoundError):
                if file.is_file():
                    yield file, file.read_bytes()


def listed(directory: Path) -> list[Path]:
    """The directory's entries, or none where it is missing."""
    return list(directory.iterdir()) if directory.is_dir() else []
