"""Limits of a sandbox."""

from __future__ import annotations

import msgspec

from atoll.types.given import check_number

# Of a limit that has a default, for those who want none.
NO_LIMIT = 1_000_000_000

# Below the least a sandbox cannot even answer; above the most the kernel, or the engine, takes no such number.
BOUNDS: dict[str, tuple[float, int]] = {
    "vcpus": (0.05, 10_000),
    "memory_mib": (64, 1_000_000_000),
    "disk_mib": (1, NO_LIMIT),
    "files": (100, 1_000_000_000),
    "disk_mib_s": (1, 100_000),
    "network_mib_s": (0.01, 100_000),
    "processes": (16, 1_000_000),
    "open_files": (64, 1_000_000_000),
    "lifetime_s": (1, 1_000_000_000),
}
_WHOLE = ("memory_mib", "disk_mib", "files", "processes", "open_files")


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much one sandbox may use; None is the default of that limit, or no limit where it has none.

    Args:
        vcpus: Processor time, in processors.
        memory_mib: Memory of its processes and its kernel, ``/tmp`` and ``/dev/shm`` included.
        disk_mib: What it writes to its disk, beyond the image and its snapshots. The default is 20,480, and so much
            that a tenth of the host's disk stays free; ``atoll.NO_LIMIT`` is neither.
        files: Files and directories that it makes on its disk.
        disk_mib_s: Rate of reading from and writing to the disk, each way, in MiB a second.
        network_mib_s: Rate of sending and receiving, each way, in MiB a second.
        processes: Processes and threads inside at once.
        open_files: Open files of all its processes together.
        lifetime_s: Seconds from its creation, asleep or not, until it is killed.
    """

    vcpus: float | None = None
    memory_mib: int | None = None
    disk_mib: int | None = None
    files: int | None = None
    disk_mib_s: float | None = None
    network_mib_s: float | None = None
    processes: int | None = None
    open_files: int | None = None
    lifetime_s: float | None = None

    def given(self) -> dict[str, float]:
        """Those that are not None, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def over(self, others: Limits) -> Limits:
        """These, and the others' where these are None."""
        return Limits(**{**others.given(), **self.given()})  # type: ignore[arg-type]

    def check(self) -> Limits:
        """These, unless no sandbox can live with one; clients ask too, since JSON has neither NaN nor infinity.

        Raises:
            InvalidSpecError: Says which.
        """
        for name, value in self.given().items():
            least, most = BOUNDS[name]
            whole = name in _WHOLE
            hint = f"give {'a whole number, ' if whole else ''}{least:g} to {most:,}"
            check_number(f"the limit {name}", value, least=least, most=most, whole=whole, hint=hint)
        return self
