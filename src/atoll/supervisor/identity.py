"""What makes a guest this sandbox and no other."""

from __future__ import annotations

import secrets

from atoll.guest import GuestInit
from atoll.supervisor.images import ImageFacts
from atoll.supervisor.rows import SandboxRow

_ENTROPY_BYTES = 64


def hostname_of(row: SandboxRow) -> str:
    """The name if it has one, else the id: both are host labels."""
    return row.name or row.sandbox_id


def first_init(row: SandboxRow, image_env: dict[str, str], ca_pem: str | None, nameserver: str) -> GuestInit:
    """All of it, for a guest that has just booted."""
    return GuestInit(
        generation=row.generation,
        hostname=hostname_of(row),
        machine_id=row.machine_uid,
        env={**image_env, **row.env},
        user=row.user,
        cwd=row.cwd,
        ca_pem=ca_pem,
        nameserver=nameserver,
        entropy=secrets.token_bytes(_ENTROPY_BYTES),
    )


def pool_init(image: ImageFacts, nameserver: str) -> GuestInit:
    """What a machine of the pool gets before it is anybody's."""
    return GuestInit(
        generation=1,
        env=image.env,
        user=image.user,
        cwd=image.cwd,
        ca_pem=image.ca_pem,
        nameserver=nameserver,
        entropy=secrets.token_bytes(_ENTROPY_BYTES),
    )


def taken_init(row: SandboxRow, image_env: dict[str, str]) -> GuestInit:
    """What a warm machine of the pool lacks: whose it is."""
    return GuestInit(
        generation=row.generation,
        hostname=hostname_of(row),
        machine_id=row.machine_uid,
        env={**image_env, **row.env},
    )


def branched_init(row: SandboxRow, image_env: dict[str, str]) -> GuestInit:
    """What a restored copy must not share with its original: identity, random state."""
    return GuestInit(
        generation=row.generation,
        hostname=hostname_of(row),
        machine_id=row.machine_uid,
        env={**image_env, **row.env},
        entropy=secrets.token_bytes(_ENTROPY_BYTES),
    )


def woken_init(row: SandboxRow) -> GuestInit:
    """What a sandbox that goes on where it was needs: only to know that time has passed."""
    return GuestInit(generation=row.generation, entropy=secrets.token_bytes(_ENTROPY_BYTES))
