"""What the environment says, read once when the supervisor starts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from atoll.errors import InvalidSpecError

MIB = 1 << 20


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All ``ATOLL_*`` variables that the supervisor knows.

    Args:
        pool_size: ``ATOLL_POOL_SIZE``: warm machines to keep for each image in use; 0 keeps none.
        idle_exit_s: ``ATOLL_IDLE_EXIT_S``: seconds without a running sandbox and without a client until it leaves.
        agent_timeout_s: ``ATOLL_AGENT_TIMEOUT_S``: bound of every call to a guest agent, in seconds.
        restores_at_once: ``ATOLL_RESTORES``: how many machines one fork restores beside each other.
        disk: ``ATOLL_DISK``: ``auto`` takes the best kind of disk that the home can have, ``engine`` the engine's own.
        log_level: ``ATOLL_LOG``: ``debug``, ``info``, ``warning`` or ``error``.
    """

    pool_size: int = 1
    idle_exit_s: float = 60.0
    agent_timeout_s: float = 10.0
    restores_at_once: int = 2
    disk: str = "auto"
    log_level: str = "info"


_VARIABLES: dict[str, tuple[str, type]] = {
    "ATOLL_POOL_SIZE": ("pool_size", int),
    "ATOLL_IDLE_EXIT_S": ("idle_exit_s", float),
    "ATOLL_AGENT_TIMEOUT_S": ("agent_timeout_s", float),
    "ATOLL_RESTORES": ("restores_at_once", int),
    "ATOLL_DISK": ("disk", str),
    "ATOLL_LOG": ("log_level", str),
}


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings that ``environ`` asks for; what it does not name keeps its default.

    Raises:
        InvalidSpecError: A variable has a value that cannot be read or makes no sense.
    """
    values: dict[str, object] = {}
    for variable, (field, kind) in _VARIABLES.items():
        text = environ.get(variable)
        if text is None or text == "":
            continue
        try:
            values[field] = kind(text)
        except ValueError:
            raise InvalidSpecError(f"{variable} is {text!r}", hint=f"give a value like {kind(1)!r}") from None
    settings = msgspec.convert(values, Settings)
    if settings.pool_size < 0 or settings.restores_at_once < 1:
        raise InvalidSpecError(
            "ATOLL_POOL_SIZE or ATOLL_RESTORES is negative", hint="give 0 or more, 1 or more"
        )
    if settings.disk not in ("auto", "engine"):
        raise InvalidSpecError(f"ATOLL_DISK is {settings.disk!r}", hint="give auto or engine")
    return settings
