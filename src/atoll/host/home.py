"""The places of all files of one user's atoll."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from atoll.errors import HostError

# A socket's path has at most 107 bytes, and engines put names of up to 45 bytes below the run directory.
_LONGEST_RUN_BYTES = 60
_HINT = "set ATOLL_HOME to a directory that this user can write to"


class Home:
    """The paths of one state directory. Making this object does not touch the disk; ``make`` does.

    ``run`` holds sockets and locks. It is ``path/run`` if that is short enough for a socket's path, otherwise
    a directory below /tmp. It depends only on the path and the user. So a login shell, a cron job and a CI
    step find the same supervisor, and a logout does not remove it.

    Args:
        path: The state directory; made absolute.
        run: The run directory. Give it if the process may be inside a user namespace, because the user's id
            differs there.

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
        """Return the home that ``ATOLL_HOME`` names, or ``~/.local/share/atoll``."""
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
        """The database of sandboxes, snapshots and images, the only authority on them."""
        return self.path / "state.db"

    @property
    def images(self) -> Path:
        """Root file systems, one directory each."""
        return self.path / "images"

    @property
    def sandboxes(self) -> Path:
        """A directory for each sandbox, by its id."""
        return self.path / "sandboxes"

    @property
    def snapshots(self) -> Path:
        """A directory for each snapshot, by its id."""
        return self.path / "snapshots"

    @property
    def templates(self) -> Path:
        """A directory for each template, by its id."""
        return self.path / "templates"

    @property
    def layers(self) -> Path:
        """Frozen disk layers."""
        return self.path / "layers"

    @property
    def volumes(self) -> Path:
        """A directory for each volume, by its id."""
        return self.path / "volumes"

    @property
    def drain(self) -> Path:
        """The record of a drain that is not over."""
        return self.path / "drain.json"

    @property
    def authority(self) -> Path:
        """The certificate that every sandbox trusts, with its key."""
        return self.path / "authority.pem"

    @property
    def bin(self) -> Path:
        """Engine binaries by version, kept while a snapshot needs them."""
        return self.path / "bin"

    @property
    def teams(self) -> Path:
        """A directory for each team, by its name, with a copy of its row."""
        return self.path / "teams"

    @property
    def keys(self) -> Path:
        """A directory for each key, by its id, with a copy of its row, which lacks the key."""
        return self.path / "keys"

    @property
    def secrets(self) -> Path:
        """A directory for each secret, by its id, with a copy of its row and the sealed value."""
        return self.path / "secrets"

    @property
    def models(self) -> Path:
        """The models that sandboxes may use: providers, aliases, budgets, and names of secrets."""
        return self.path / "models.json"

    @property
    def secrets_key(self) -> Path:
        """The key that the values of secrets are sealed with."""
        return self.path / "secrets.key"

    @property
    def audit(self) -> Path:
        """The audit log: its files, alone."""
        return self.path / "audit"

    @property
    def audit_key(self) -> Path:
        """The key of the codes in the audit log."""
        return self.path / "audit.key"

    @property
    def ask_webhook_key(self) -> Path:
        """The key that the webhook of asks is signed with."""
        return self.path / "ask-webhook.key"

    @property
    def alerts(self) -> Path:
        """The newest alerts, and what is known already and so raises none."""
        return self.path / "alerts"

    @property
    def alert_webhook_key(self) -> Path:
        """The key that the webhook of alerts is signed with."""
        return self.path / "alert-webhook.key"

    @property
    def log(self) -> Path:
        """The supervisor's log."""
        return self.path / "supervisor.log"

    def make(self) -> None:
        """Make every missing directory, accessible to this user only.

        Raises:
            HostError: A directory cannot be made, or belongs to another user.
        """
        self.make_top()
        try:
            for directory in (
                self.images,
                self.sandboxes,
                self.snapshots,
                self.templates,
                self.layers,
                self.volumes,
                self.bin,
                self.teams,
                self.keys,
                self.secrets,
                self.audit,
                self.alerts,
            ):
                _make_private(directory, links=True)
            if self.run.parent != self.path:
                _make_private(self.run.parent, links=False)
            _make_private(self.run, links=False)
        except OSError as error:
            raise self.unusable(error) from error

    def make_top(self) -> None:
        """Make only the top directory of the home, accessible to this user only.

        Raises:
            HostError: It cannot be made, or belongs to another user.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _make_private(self.path, links=True)
        except OSError as error:
            raise self.unusable(error) from error

    def of_other(self, owner: int) -> HostError:
        """Return the error for a home or a supervisor that belongs to the user with that id."""
        name = _user_name(owner)
        return HostError(f"the supervisor of {self.path} belongs to user {name}", hint=_other_hint(name))

    def unusable(self, error: OSError) -> HostError:
        """Explain an error of the operating system to the user who wanted to use this home."""
        where = error.filename if isinstance(error.filename, str) else str(self.path)
        at = "" if where == str(self.path) else f": {where}"
        told = f"the state directory {self.path} cannot be used: {error.strerror or error}{at}"
        owned = _nearest(self.path)
        if not isinstance(error, PermissionError) or owned is None:
            return HostError(told, hint=_HINT)
        place, owner = owned
        return HostError(f"{told}; {place} belongs to user {owner}", hint=_other_hint(owner))


def _run_directory(path: Path) -> Path:
    near = path / "run"
    if len(os.fsencode(near)) <= _LONGEST_RUN_BYTES:
        return near
    # imported here, because most homes do not need it and clients start often
    import hashlib

    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:12]
    return Path(f"/tmp/atoll-{os.getuid()}") / name  # noqa: S108


def _make_private(directory: Path, *, links: bool) -> None:
    # A user may put parts of the home elsewhere by symlinks; below /tmp a symlink would be another user's
    # trap.
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.stat() if links else directory.lstat()
    if found.st_uid != os.geteuid():
        owner = _user_name(found.st_uid)
        what, hint = f"{directory} belongs to user {owner}, not to this user", _other_hint(owner)
    elif not stat.S_ISDIR(found.st_mode):
        what, hint = f"{directory} is not a directory", _HINT
    else:
        if found.st_mode & 0o077:
            directory.chmod(0o700)
        return
    raise HostError(what, hint=hint if links else f"check what it is, then remove it: rm -r {directory}")


def _nearest(path: Path) -> tuple[Path, str] | None:
    """Return the nearest visible directory at or above a path, with its owner; None if this user owns it."""
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):  # the directory that hides it is further up
            owner = place.stat().st_uid
            return None if owner == os.geteuid() else (place, _user_name(owner))
    return None


def _user_name(number: int) -> str:
    # imported here, because clients start often
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _other_hint(owner: str) -> str:
    return f"{_HINT}, or run atoll as its owner: sudo -u {owner}"
