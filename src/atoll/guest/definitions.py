"""Definitions of services for the guest agent."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from atoll.types import HealthCheck, ServiceSpec


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A health check as the agent takes it: a shell ``line``, or a ``port``."""

    line: str | None = None
    port: int = 0
    every_ms: int
    timeout_ms: int
    grace_ms: int
    failures: int


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A service as the agent takes it: ``argv``, or a shell ``line``."""

    name: str
    restart: str
    argv: tuple[str, ...] | None = None
    line: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = {}
    user: str | None = None
    health: Health | None = None
    scheduled: bool = False
    timeout_ms: int = 0


def definition_of(spec: ServiceSpec) -> Definition:
    """Return the definition of a service for the agent."""
    health = spec.health or (None if spec.port is None else HealthCheck())
    return Definition(
        name=spec.name,
        restart=spec.restart,
        argv=None if isinstance(spec.command, str) else tuple(spec.command),
        line=spec.command if isinstance(spec.command, str) else None,
        cwd=spec.cwd,
        env=spec.env,
        user=spec.user,
        health=None if health is None else _health(health, spec.port),
        scheduled=spec.schedule is not None,
        timeout_ms=0 if spec.schedule is None else round(spec.timeout_s * 1000),
    )


def _health(check: HealthCheck, port: int | None) -> Health:
    return Health(
        line=check.command,
        port=port or 0 if check.command is None else 0,
        every_ms=round(check.every_s * 1000),
        timeout_ms=round(check.timeout_s * 1000),
        grace_ms=round(check.grace_s * 1000),
        failures=check.failures,
    )
