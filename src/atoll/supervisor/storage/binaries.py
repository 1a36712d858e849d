"""Keeps engine and agent programs by content, so that a checkpoint finds the programs that made it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from atoll.engines import DEFAULT_ENGINE, Engine, engine_kind
from atoll.errors import HostError
from atoll.host import sync_directory, write_atomically
from atoll.supervisor.state.rows import Versions
from atoll.types.internal import from_json

_SHORT = 16
# A file written in pieces of this size gets huge pages in the kernel's cache if the file system supports
# them. That is a third fewer page faults at each start of the program.
_PIECE_BYTES = 4 << 20
AGENT_ARGV = ("/.atoll/atoll-agent",)


class Programs:
    """Manages the directory ``bin`` of a home: ``HASH/runsc`` and ``HASH/atoll-agent``.

    Args:
        directory: Where the programs are kept.
        engine: Path of the current engine's program.
        agent: Path of the current agent program.
        engine_name: The current engine, see ``EngineKind``.
        engine_version: The version of its program.
    """

    def __init__(
        self,
        directory: Path,
        engine: Path,
        agent: Path,
        *,
        engine_name: str = DEFAULT_ENGINE,
        engine_version: str = "",
    ) -> None:
        self._directory = directory
        self._engine, self._agent = engine, agent
        self._known = directory / "known.json"
        self.current = Versions(engine="", agent="", engine_name=engine_name, engine_version=engine_version)

    def keep(self) -> Versions:
        """Copy the current programs into the directory if they are new, and return their versions.

        Raises:
            HostError: A program cannot be read.
        """
        known = self._read_known()
        self.current = msgspec.structs.replace(
            self.current, engine=self._keep(self._engine, known), agent=self._keep(self._agent, known)
        )
        write_atomically(self._known, msgspec.json.encode(known))
        return self.current

    def engine_path(self, versions: Versions) -> Path:
        """The engine program of a machine or checkpoint.

        Raises:
            UnsupportedError: This build has no such engine.
            HostError: The program has been lost.
        """
        name = self._engine.name
        if versions.engine_name != self.current.engine_name:
            name = engine_kind(versions.engine_name).find().name
        return self._existing(self._directory / versions.engine / name)

    def agent_dir(self, version: str) -> Path:
        """The directory that holds only the agent of a version.

        Raises:
            HostError: The agent has been lost.
        """
        return self._existing(self._directory / version / self._agent.name).parent

    def unneeded(self, used: Collection[Versions]) -> list[Path]:
        """Directories of versions that are neither current nor in ``used``."""
        needed = {hash_ for versions in (*used, self.current) for hash_ in (versions.engine, versions.agent)}
        return [
            entry
            for entry in sorted(self._directory.iterdir())
            if entry.is_dir() and entry.name not in needed
        ]

    def _keep(self, source: Path, known: dict[str, str]) -> str:
        try:
            status = source.stat()
            stamp = f"{source} {status.st_size} {status.st_mtime_ns} {status.st_ino}"
            version = known.get(stamp) or _digest(source)
        except OSError as error:
            raise HostError(f"cannot read {source}: {error}", hint="install atoll again") from None
        target = self._directory / version / source.name
        if not target.exists():
            _copy_program(source, target)
        for old in [old for old, other in known.items() if other == version]:
            del known[old]
        known[stamp] = version
        return version

    def _read_known(self) -> dict[str, str]:
        try:
            return from_json(self._known.read_bytes(), dict[str, str])
        except (OSError, ValueError):
            return {}

    def _existing(self, path: Path) -> Path:
        if not path.exists():
            raise HostError(f"{path} is gone", hint="roll its sandboxes back, or resume them without memory")
        return path


def engines_by_version(
    programs: Programs, make: Callable[[str, Path], Engine]
) -> Callable[[Versions], Engine]:
    """A function that returns the engine of a machine or checkpoint, made once for each program.

    Args:
        make: Makes the engine of a name with a program.
    """
    made: dict[tuple[str, str], Engine] = {}

    def engine(versions: Versions) -> Engine:
        key = (versions.engine_name, versions.engine)
        if key not in made:
            made[key] = make(versions.engine_name, programs.engine_path(versions))
        return made[key]

    return engine


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_SHORT]


def _copy_program(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o755, exist_ok=True)
    aside = target.with_suffix(".new")
    with source.open("rb") as reader, aside.open("wb") as writer:
        shutil.copyfileobj(reader, writer, _PIECE_BYTES)
        os.fchmod(writer.fileno(), 0o755)
        writer.flush()
        os.fsync(writer.fileno())
    os.replace(aside, target)
    sync_directory(target.parent)
