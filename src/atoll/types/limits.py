"""The limits of a sandbox."""

from __future__ import annotations

import msgspec

from atoll.types.given import check_number

# For a limit that has a default, this value means no limit.
NO_LIMIT = 1_000_000_000

# Below the minimum a sandbox cannot even answer. Above the maximum the kernel or the engine refuses the
# number.
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


class Limits(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How much one sandbox may use. None is the default of that limit, or no limit where it has no default.

    Args:
        vcpus: Processor time, in processors.
        memory_mib: Memory of its processes and its kernel, including ``/tmp`` and ``/dev/shm``.
        disk_mib: What it writes to its disk, beyond the image and its snapshots. The default is 20,480 MiB,
            or less so that a tenth of the host's disk stays free. ``atoll.NO_LIMIT`` removes both.
        files: Files and directories that it makes on its disk.
        disk_mib_s: Rate of disk reads and of disk writes, each, in MiB per second.
        network_mib_s: Rate of sending and of receiving, each, in MiB per second.
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
        """Return the limits that are not None, by name."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def over(self, others: Limits) -> Limits:
        """Return these limits. Where one is None, it has the other's value."""
        return Limits(**{**others.given(), **self.given()})  # type: ignore[arg-type]

    def check(self) -> Limits:
        """Return these limits if a sandbox can live with them.

        Clients check too, since JSON has neither NaN nor infinity.

        Raises:
            InvalidSpecError: A limit is invalid; the message says which.
        """
        for name, value in self.given().items():
            least, most = BOUNDS[name]
            whole = name in _WHOLE
            hint = f"give {'a whole number, ' if whole else ''}{least:g} to {most:,}"
            check_number(f"the limit {name}", value, least=least, most=most, whole=whole, hint=hint)
        return self
