"""Where everything of one user's atoll lies."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from atoll.errors import HostError

# A socket's path has at most 107 bytes; engines put names of up to 45 bytes below the run directory.
_LONGEST_RUN_BYTES = 60


class Home:
    """The paths of one state directory. Making one touches nothing on the disk; ``make`` does.

    ``run`` holds sockets and locks. It is ``path/run`` when that is short enough for a socket's path, else
    a directory below /tmp. It depends on nothing but the path and the user, so that a login shell, a cron
    job and a CI step find the same supervisor, and nothing takes it away at logout.

    Args:
        path: The state directory; made absolute.
        run: The run directory. Give it where the process may be inside a user namespace, since the user's
            number is another one there.

    Attributes:
        api_socket: The supervisor's HTTP API.
        dial_socket: The socket that hands out connections into sandboxes.
        lock: Locked by the running supervisor.
        pins: Where network namespaces are pinned, inside the holder's mount namespace only.
    """

    __slots__ = ("api_socket", "dial_socket", "lock", "path", "pins", "run")

    path: Path
    run: Path
    api_socket: Path
    dial_socket: Path
    lock: Path
    pins: Path

    def __init__(self, path: Path | str, *, run: Path | str | None = None) -> None:
        self.path = Path(os.path.abspath(path))
        self.run = Path(run) if run is not None else _run_directory(self.path)
        self.api_socket = self.run / "api.sock"
        self.dial_socket = self.run / "dial.sock"
        self.lock = self.run / "supervisor.lock"
        self.pins = self.run / "pins"

    @classmethod
    def default(cls) -> Home:
        """The home that ``ATOLL_HOME`` names, else ``~/.local/share/atoll``."""
        named = os.environ.get("ATOLL_HOME")
        return cls(Path(named)) if named else cls(Path.home() / ".local/share/atoll")

    def __repr__(self) -> str:
        return f"Home({str(self.path)!r}, run={str(self.run)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Home) and (self.path, self.run) == (other.path, other.run)

    def __hash__(self) -> int:
        return hash((self.path, self.run))

    @property
    def database(self) -> Path:
        """The one truth about sandboxes, snapshots and images."""
        return self.path / "state.db"

    @property
    def images(self) -> Path:
        """Root file systems, one directory each."""
        return self.path / "images"

    @property
    def sandboxes(self) -> Path:
        """One directory for each sandbox, by its id."""
        return self.path / "sandboxes"

    @property
    def snapshots(self) -> Path:
        """One directory for each snapshot, by its id."""
        return self.path / "snapshots"

    @property
    def templates(self) -> Path:
        """One directory for each template, by its id."""
        return self.path / "templates"

    @property
    def layers(self) -> Path:
        """Frozen disk layers."""
        return self.path / "layers"

    @property
    def volumes(self) -> Path:
        """One directory for each volume, by its id."""
        return self.path / "volumes"

    @property
    def bin(self) -> Path:
        """Engine binaries by version, kept while a snapshot needs them."""
        return self.path / "bin"

    @property
    def teams(self) -> Path:
        """One directory for each team, by its name: a copy of its row."""
        return self.path / "teams"

    @property
    def keys(self) -> Path:
        """One directory for each key, by its id: a copy of its row, without the key."""
        return self.path / "keys"

    @property
    def log(self) -> Path:
        """The supervisor's log."""
        return self.path / "supervisor.log"

    def make(self) -> None:
        """Make every directory that is missing, for this user alone.

        Raises:
            HostError: One of them cannot be made, or belongs to somebody else.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for directory in (
                self.path,
                self.images,
                self.sandboxes,
                self.snapshots,
                self.templates,
                self.layers,
                self.volumes,
                self.bin,
                self.teams,
                self.keys,
            ):
                _make_private(directory, directory.stat)
            if self.run.parent != self.path:
                _make_private(self.run.parent, self.run.parent.lstat)
            _make_private(self.run, self.run.lstat)
        except OSError as error:
            raise HostError(
                f"the state directory {self.path} cannot be made: {error}",
                hint="set ATOLL_HOME to a directory that this user can write to",
            ) from error


def _run_directory(path: Path) -> Path:
    near = path / "run"
    if len(os.fsencode(near)) <= _LONGEST_RUN_BYTES:
        return near
    # imported here, since most homes need it not and clients start often
    import hashlib

    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]
    return Path(f"/tmp/atoll-{os.getuid()}") / name  # noqa: S108


def _make_private(directory: Path, look: Callable[[], os.stat_result]) -> None:
    # A user may put parts of the home elsewhere by symlinks; below /tmp a symlink would be somebody's trap.
    directory.mkdir(mode=0o700, exist_ok=True)
    found = look()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise HostError(
            f"{directory} is not a directory of this user",
            hint=f"look what it is, then remove it: rm -r {directory}",
        )
    if found.st_mode & 0o077:
        directory.chmod(0o700)
