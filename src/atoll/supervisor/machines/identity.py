"""Gives a guest the identity of its sandbox."""

from __future__ import annotations

import secrets

from atoll.guest import Definition, GuestInit, definition_of
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.storage.images import ImageFacts

_ENTROPY_BYTES = 64


def hostname_of(row: SandboxRow) -> str:
    """The sandbox's name, or its id if it has none: both are host labels."""
    return row.name or row.sandbox_id


def first_init(row: SandboxRow, image: ImageFacts, nameserver: str) -> GuestInit:
    """All settings, for a guest that has just booted."""
    return GuestInit(
        generation=row.generation,
        hostname=hostname_of(row),
        machine_id=row.machine_uid,
        env={**image.env, **row.env},
        user=row.user,
        cwd=row.cwd,
        ca_pem=image.trusted(host=row.trust_host_ca),
        nameserver=nameserver,
        owners=image.owners,
        entropy=secrets.token_bytes(_ENTROPY_BYTES),
        services=_services(row),
    )


def pool_init(sandbox_id: str, machine_uid: str, image: ImageFacts, nameserver: str) -> GuestInit:
    """The settings of a warm machine: all that a sandbox without name and environment needs."""
    return GuestInit(
        generation=1,
        hostname=sandbox_id,
        machine_id=machine_uid,
        env=image.env,
        user=image.user,
        cwd=image.cwd,
        ca_pem=image.trusted(host=True),
        nameserver=nameserver,
        owners=image.owners,
        entropy=secrets.token_bytes(_ENTROPY_BYTES),
    )


def taken_init(row: SandboxRow, image_env: dict[str, str]) -> GuestInit | None:
    """The settings that a warm machine lacks, or None. A new environment costs a new login shell."""
    if row.name is None and not row.env and not row.services:
        return None
    return GuestInit(
        hostname=row.name,
        env={**image_env, **row.env} if row.env else None,
        services=_services(row) if row.services else None,
    )


def branched_init(row: SandboxRow, env_inside: dict[str, str], image: ImageFacts) -> GuestInit:
    """The settings that a restored copy must not share with its original: identity, random state.

    The copy gets the certificates that the home trusts today. If it already has them, its agent changes
    nothing.

    Args:
        env_inside: The sandbox environment in the copy's memory.
    """
    return GuestInit(
        generation=row.generation,
        hostname=hostname_of(row),
        machine_id=row.machine_uid,
        env={**image.env, **row.env} if row.env != env_inside else None,
        ca_pem=image.trusted(host=row.trust_host_ca),
        entropy=secrets.token_bytes(_ENTROPY_BYTES),
        services=_services(row),
    )


def woken_init(row: SandboxRow, image: ImageFacts) -> GuestInit:
    """The settings of a sandbox that continues where it was: time has passed, and the home may trust others now."""
    return GuestInit(
        generation=row.generation,
        ca_pem=image.trusted(host=row.trust_host_ca),
        entropy=secrets.token_bytes(_ENTROPY_BYTES),
        services=_services(row),
    )


def _services(row: SandboxRow) -> tuple[Definition, ...]:
    """All services of the sandbox. The guest leaves a service alone that it already has unchanged."""
    return tuple(definition_of(spec) for spec in row.services)
