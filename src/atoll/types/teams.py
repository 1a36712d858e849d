"""Teams that share a home, how much each may use, and the keys that they come with."""

from __future__ import annotations

import msgspec

from atoll.types.given import check_number

_SHOWN = len("e2b_") + 4
_ID_DIGITS = 16
_MOST = 1_000_000_000
_WHOLE = ("running", "suspended", "memory_mib", "disk_mib", "builds")


class Quotas(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much one team may use, all of its sandboxes together; None is no quota.

    Args:
        running: Sandboxes that run or are paused.
        suspended: Sandboxes that sleep on disk, crashed ones among them.
        vcpus: Processors of those that run. One without a limit of its own counts as all that the host has.
        memory_mib: Memory limits of those that run, default ones included.
        disk_mib: What sandboxes, snapshots, volumes and images that it had pulled occupy on the disk.
        builds: Builds of templates that go on at once.
        timeout_s: Seconds of one lease, the longest; then no sandbox runs without a lease.
        requests_s: Requests to a server a second; it grants bursts of ten seconds' worth.
    """

    running: int | None = None
    suspended: int | None = None
    vcpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    builds: int | None = None
    timeout_s: float | None = None
    requests_s: float | None = None

    def check(self) -> Quotas:
        """These, unless one makes no sense; clients ask too, since JSON has neither NaN nor infinity.

        Raises:
            InvalidSpecError: Says which.
        """
        for name, value in msgspec.structs.asdict(self).items():
            if value is None:
                continue
            whole = name in _WHOLE
            hint = f"give {'a whole number, ' if whole else ''}0 to {_MOST:,}, or None for no quota"
            check_number(f"the quota {name}", value, least=0, most=_MOST, whole=whole, hint=hint)
        return self


class TeamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A team: its name is what sandboxes, snapshots, volumes and templates of its own bear."""

    name: str
    created_at: float
    quotas: Quotas = Quotas()


class TeamUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a team uses now, counted as its quotas count; ``disk_bytes`` as it was measured last."""

    running: int = 0
    suspended: int = 0
    vcpus: float = 0.0
    memory_mib: int = 0
    disk_bytes: int = 0
    builds: int = 0


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key to a server, without the key itself: ``prefix`` is its beginning. Times are Unix seconds.

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
    """A key that has just been made: ``key`` is given this once, stored nowhere, and not told when printed."""

    key: str
    info: KeyInfo

    def __repr__(self) -> str:
        return f"NewKey(key='{key_prefix(self.key)}…', info={self.info!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("key", f"{key_prefix(self.key)}…"), ("info", self.info)]


def key_hash(key: str) -> str:
    """What is stored of a key: the SHA-256 of its text, in hexadecimal digits. It is random, so no salt is needed."""
    # imported here, since clients that never see a key start often
    import hashlib

    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_id_of(key: str) -> str:
    """The id of a key: enough of its hash to tell it from others, and of no use to whoever has no key."""
    return f"key-{key_hash(key)[:_ID_DIGITS]}"


def key_prefix(key: str) -> str:
    """The beginning of a key, by which its owner knows it again."""
    return key[:_SHOWN]
