"""Bodies about secrets. Values only ever go to the supervisor, and are hidden when a body is printed."""

from __future__ import annotations

import msgspec


class SecretRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/secrets``."""

    name: str
    value: str
    hosts: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    canary: bool = False
    team: str | None = None

    def __repr__(self) -> str:
        return f"SecretRequest(name={self.name!r}, …)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name)]


class SecretUpdate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/secrets/REF``. None leaves a field unchanged."""

    value: str | None = None
    hosts: tuple[str, ...] | None = None
    metadata: dict[str, str] | None = None

    def __repr__(self) -> str:
        return "SecretUpdate(…)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []
