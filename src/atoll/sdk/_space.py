"""What helps when a disk inside a sandbox is full."""

from __future__ import annotations

from atoll.types import NO_LIMIT, SandboxInfo


def space_hint(info: SandboxInfo) -> str:
    """Return what helps when a sandbox can write no more: which limits its disk has, and how to raise them."""
    limits, name = info.limits_in_force, info.name or info.sandbox_id
    given = [
        (f"{most:,} {unit}", f"`atoll limits {name} {option} {metavar}`")
        for most, unit, option, metavar in (
            (limits.disk_mib, "MiB", "--disk", "SIZE"),
            (limits.files, "files", "--files", "N"),
        )
        if most is not None and most != NO_LIMIT
    ]
    if not given:
        return "remove files inside, or free disk under the home"
    most = " and ".join(each for each, _ in given)
    ways = " or ".join(way for _, way in given)
    return (
        f"the limit of its disk is {most}: remove files inside, or raise it with {ways}; if less is used, the disk "
        "under the home is full"
    )
