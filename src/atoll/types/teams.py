"""Teams that share a home, their quotas, and the keys they authenticate with."""

from __future__ import annotations

import msgspec

from atoll.types.egress import EgressPolicy
from atoll.types.given import check_number

_SHOWN = len("e2b_") + 4
_ID_DIGITS = 16
_MOST = 1_000_000_000
_WHOLE = ("running", "suspended", "memory_mib", "disk_mib", "builds")


class Quotas(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How much one team may use, all of its sandboxes together. None is no quota.

    Args:
        running: Sandboxes that run or are paused.
        suspended: Sandboxes that sleep on disk, including crashed ones.
        vcpus: Processors of the running sandboxes. A sandbox without its own limit counts as all processors
            of the host.
        memory_mib: Memory limits of the running sandboxes, default limits included.
        disk_mib: Disk that the team's sandboxes, snapshots, volumes and pulled images occupy.
        builds: Template builds that run at once.
        ttl_s: The longest lease, in seconds. With this quota no sandbox runs without a lease.
        idle_s: The longest that a running sandbox may be idle, in seconds; then it is suspended.
        requests_s: Requests to a server per second; bursts of ten seconds' worth are allowed.
    """

    running: int | None = None
    suspended: int | None = None
    vcpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    builds: int | None = None
    ttl_s: float | None = None
    idle_s: float | None = None
    requests_s: float | None = None

    def check(self) -> Quotas:
        """Return these quotas if they are valid. Clients check too, since JSON has neither NaN nor infinity.

        Raises:
            InvalidSpecError: A quota is invalid; the message says which.
        """
        for name, value in msgspec.structs.asdict(self).items():
            if value is None:
                continue
            whole = name in _WHOLE
            hint = f"give {'a whole number, ' if whole else ''}0 to {_MOST:,}, or None for no quota"
            check_number(f"the quota {name}", value, least=0, most=_MOST, whole=whole, hint=hint)
        return self


class TeamInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A team. Its sandboxes, snapshots, volumes and templates carry its name.

    ``ceiling`` is the most that its sandboxes may reach, whatever their own policies say; None is no ceiling.
    """

    name: str
    created_at: float
    quotas: Quotas = Quotas()
    ceiling: EgressPolicy | None = None


class TeamUse(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A team's use now, counted as its quotas count. ``disk_bytes`` is the latest measurement."""

    running: int = 0
    suspended: int = 0
    vcpus: float = 0.0
    memory_mib: int = 0
    disk_bytes: int = 0
    builds: int = 0


class KeyInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A key to a server, without the key itself; ``prefix`` is its beginning. Times are Unix seconds.

    ``used_at`` is when it was last used, to the minute; None is never.
    """

    key_id: str
    team: str
    name: str
    prefix: str
    created_at: float
    expires_at: float | None = None
    used_at: float | None = None
    revoked_at: float | None = None


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key. ``key`` is given only this once, stored nowhere, and hidden when this is printed."""

    key: str
    info: KeyInfo

    def __repr__(self) -> str:
        return f"NewKey(key='{key_prefix(self.key)}…', info={self.info!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("key", f"{key_prefix(self.key)}…"), ("info", self.info)]


def key_hash(key: str) -> str:
    """Return the stored form of a key: its SHA-256 in hexadecimal digits.

    The key is random, so it needs no salt.
    """
    # imported here: most clients never see a key, and they start often
    import hashlib

    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_id_of(key: str) -> str:
    """Return the id of a key: enough of its hash to tell keys apart, and useless without the key."""
    return f"key-{key_hash(key)[:_ID_DIGITS]}"


def key_prefix(key: str) -> str:
    """Return the beginning of a key, by which its owner recognizes it."""
    return key[:_SHOWN]
