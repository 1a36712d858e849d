"""The engines of this build, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from atoll.engines.base import Engine
from atoll.engines.gvisor import RUNSC_VERSION, GvisorEngine
from atoll.errors import UnsupportedError
from atoll.host import CgroupRoot, runsc_path

DEFAULT_ENGINE = "gvisor"


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """An engine of this build.

    Args:
        name: Its name in settings and rows.
        version: The version of its program in this build.
        engine_type: Its class, which tells its capabilities.
        find: Finds its program in this build.
        make: Makes an engine of a program, also of an earlier version, without probing it. The flags are
            further flags for that program.
    """

    name: str
    version: str
    engine_type: type[Engine]
    find: Callable[[], Path]
    make: Callable[[Path, CgroupRoot | None, Sequence[str]], Engine]


ENGINES: Mapping[str, EngineKind] = MappingProxyType(
    {
        "gvisor": EngineKind(
            name="gvisor",
            version=RUNSC_VERSION,
            engine_type=GvisorEngine,
            find=runsc_path,
            make=GvisorEngine,
        )
    }
)


def engine_kind(name: str) -> EngineKind:
    """The engine with this name.

    Raises:
        UnsupportedError: There is no such engine.
    """
    try:
        return ENGINES[name]
    except KeyError:
        raise UnsupportedError(
            f"there is no engine {name!r}", hint=f"engines: {', '.join(sorted(ENGINES))}"
        ) from None
