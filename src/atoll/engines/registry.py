"""The engines of this build, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from atoll.engines.base import Engine
from atoll.engines.gvisor import GvisorEngine
from atoll.errors import UnsupportedError
from atoll.host import CgroupRoot, runsc_path

DEFAULT_ENGINE = "gvisor"


def _gvisor(cgroups: CgroupRoot | None) -> Engine:
    return GvisorEngine(runsc_path(), cgroups)


ENGINES: Mapping[str, Callable[[CgroupRoot | None], Engine]] = MappingProxyType({"gvisor": _gvisor})


def make_engine(name: str, cgroups: CgroupRoot | None) -> Engine:
    """Make the engine ``name``, without probing it.

    Raises:
        UnsupportedError: There is no such engine.
        HostError: A program that it needs is missing.
    """
    try:
        make = ENGINES[name]
    except KeyError:
        raise UnsupportedError(
            f"there is no engine {name!r}", hint=f"engines: {', '.join(sorted(ENGINES))}"
        ) from None
    return make(cgroups)
