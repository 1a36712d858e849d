"""Checks for problems that stop sandboxes from running on this host, each with the command that fixes it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from atoll.errors import HostError
from atoll.host.files import free_bytes
from atoll.host.home import Home
from atoll.host.namespaces.holder import Holder, end_holder, ensure_holder, find_holder
from atoll.host.namespaces.userns import is_host_root, own_ranges, range_remedy, user_name
from atoll.host.processes import RunProgramError, run_program
from atoll.host.resources.cgroups import cgroup_root
from atoll.host.resources.cpu_latency import DEVICE, open_cpu_latency
from atoll.host.trees.file_copy import reflinks
from atoll.host.trees.whole import open_top, remove_tree

GIB = 1 << 30
_TRIAL = Path(__file__).parent / "namespaces" / "trial_program.py"
_OLDEST_KERNEL = (5, 11)
# Older kernels cannot make mounts read-only in one step, which the server's confinement needs.
_OLDEST_KERNEL_TO_SERVE = (5, 12)
_LEAST_DISK_BYTES = 2 * GIB
_SMALL_DISK_BYTES = 10 * GIB
_TRIAL_S = 15.0
# A sandbox's disk cannot be on these, because they cannot be the upper layer of an overlay.
_UNFIT_KINDS = ("overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "vfat", "exfat", "ecryptfs")

_ENGINE_COSTS = (
    "each snapshot and suspend writes all changes of the disk, and a crash loses the changes since the last "
    "one"
)
_USERNS_SETTINGS = {
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "15000"),
}


class Check(msgspec.Struct, frozen=True):
    """A check. With level "error" no sandbox can run; ``remedy`` is one command or sentence."""

    name: str
    level: Literal["ok", "note", "warning", "error"]
    message: str
    remedy: str | None = None


async def check_host(home: Home) -> list[Check]:
    """Run all checks, with real trials where possible. Takes about a tenth of a second."""
    try:
        home.make()
    except HostError as error:
        return [Check("home", "error", error.message, error.remedy)]
    trial = await _tried(home)
    ids, lacks_ids = await asyncio.to_thread(_tried_ids, home)
    settings = {} if is_host_root() else {name: _setting(name) for name in _USERNS_SETTINGS}
    checks = [
        kernel_check(os.uname().release, os.uname().machine, is_root=os.geteuid() == 0),
        namespaces_check(trial.get("namespaces", "the check could not run"), settings),
        ids,
        disk_kind_check(
            trial.get("overlay"),
            lacks_ids=lacks_ids,
            forced=os.environ.get("ATOLL_DISK") == "engine",
            home=home,
            kind=filesystem_kind(home.path),
        ),
        nftables_check(trial.get("nftables")),
        shaping_check(trial.get("shaping")),
        *await asyncio.to_thread(_slow_checks, home),
        clock_check(time.time(), _TRIAL.stat().st_mtime),
        ptrace_check(_setting("kernel.yama.ptrace_scope")),
        latency_check(DEVICE),
    ]
    return [check for check in checks if check is not None]


def kernel_check(release: str, machine: str, *, is_root: bool) -> Check:
    """Check that the kernel is new enough, and that the engine is built for its processor.

    Args:
        is_root: Whether this is root, whose server needs a newer kernel.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if machine not in ("x86_64", "aarch64"):
        return Check("kernel", "error", f"no engine supports the processor {machine}", "use another host")
    if numbers < _OLDEST_KERNEL:
        return Check(
            "kernel", "error", f"Linux {release} is too old: sandboxes need 5.11", "upgrade the kernel"
        )
    if is_root and numbers < _OLDEST_KERNEL_TO_SERVE:
        message = f"Linux {release} can run sandboxes, but `atoll serve` needs 5.12 if root starts it"
        return Check(
            "kernel", "warning", message, "upgrade the kernel, or run `atoll serve` as an ordinary user"
        )
    return Check("kernel", "ok", f"Linux {release} on {machine}")


def namespaces_check(outcome: str, settings: Mapping[str, str | None]) -> Check:
    """Check whether this user can create namespaces.

    Args:
        outcome: "ok", or why the trial failed.
        settings: The values of the kernel's settings that may forbid it; None where it has no such setting.
    """
    if outcome == "ok":
        return Check("namespaces", "ok", "this user can create namespaces")
    for name, (forbidding, allowing) in _USERNS_SETTINGS.items():
        if settings.get(name) == forbidding:
            return Check(
                "namespaces",
                "error",
                f"this host forbids user namespaces to ordinary users ({name} is {forbidding})",
                f"sudo sysctl -w {name}={allowing}",
            )
    return Check(
        "namespaces",
        "error",
        f"this user cannot create namespaces: {outcome}",
        "in a container, allow it to create namespaces, for example with docker run --privileged",
    )


def ids_check(lacks_ids: str | None, least: int) -> Check:
    """Check whether an ordinary user has ids for the users of a sandbox.

    Args:
        lacks_ids: Why there is only one, see ``Holder``; None if there are many.
        least: The smaller number of ids.
    """
    remedy = range_remedy(user_name()).removeprefix("run: ")
    if lacks_ids is not None:
        if lacks_ids.startswith("the program"):
            remedy = "sudo apt install uidmap"
        message = f"only one id for the users of a sandbox, so the engine keeps its disk: {lacks_ids}"
        return Check("one id", "warning", message, remedy)
    if least < 65535:
        message = f"this user has only {least} ids for the users of a sandbox, which may use 65535"
        return Check("ids", "warning", message, remedy)
    return Check("ids", "ok", f"{least} user and group ids for sandboxes")


def disk_kind_check(
    outcome: str | None, *, lacks_ids: bool, forced: bool, home: Home, kind: str
) -> Check | None:
    """Check the kind of sandbox disks in the home, and the cost of a snapshot there.

    Args:
        outcome: The result of a trial mount; None if it was not tried.
        lacks_ids: Whether this user has only one id of the host.
        forced: Whether the engine's own disks were requested.
        home: Where the disks are.
        kind: The kind of its file system.
    """
    if outcome is None:
        return None
    if forced:
        return Check(
            "disk kind",
            "note",
            f"kept by the engine, because ATOLL_DISK says so: {_ENGINE_COSTS}",
            "unset ATOLL_DISK",
        )
    if lacks_ids:
        return Check("disk kind", "warning", f"kept by the engine: {_ENGINE_COSTS}", "see the line `one id`")
    if outcome != "ok":
        place = "this file system" if kind not in _UNFIT_KINDS else f"a {kind} file system"
        better = _better_place()
        message = f"kept by the engine, because {place} ({home.path}) cannot hold layers ({outcome}): {_ENGINE_COSTS}"
        remedy = (
            f"export ATOLL_HOME={better}" if better else "set ATOLL_HOME to a directory on ext4, xfs or btrfs"
        )
        return Check("disk kind", "warning", message, remedy)
    if is_host_root():
        return Check(
            "disk kind", "ok", f"frozen ({kind}): a snapshot freezes the disk's layer and copies nothing"
        )
    with open_top(home.path) as directory:
        shares = reflinks(directory)
    if shares:
        return Check("disk kind", "ok", f"reflinked ({kind}): a snapshot shares what changed on the disk")
    return Check("disk kind", "note", f"copied ({kind}): a snapshot copies what changed on the disk")


def nftables_check(outcome: str | None) -> Check | None:
    """Check whether the kernel has nftables for the network of sandboxes."""
    if outcome is None or outcome == "ok":
        return None if outcome is None else Check("nftables", "ok", "the kernel has nftables")
    return Check(
        "nftables",
        "error",
        f"the kernel's nftables do not work: {outcome}",
        "sudo modprobe -a nf_tables nft_chain_nat nft_redir",
    )


def shaping_check(outcome: str | None) -> Check | None:
    """Check whether the kernel can limit the rate of a network interface."""
    if outcome is None or outcome == "ok":
        return None if outcome is None else Check("shaping", "ok", "the kernel can limit network rates")
    return Check(
        "shaping", "note", f"the kernel cannot limit network rates: {outcome}", "sudo modprobe sch_tbf"
    )


def disk_check(free: int, path: Path) -> Check:
    """Check whether the home has enough space."""
    text = f"{free / GIB:.1f} GiB free in {path}"
    if free < _LEAST_DISK_BYTES:
        return Check("disk space", "error", text, "free some space, or set ATOLL_HOME to a larger disk")
    level: Literal["ok", "warning"] = "warning" if free < _SMALL_DISK_BYTES else "ok"
    return Check("disk space", level, text, "free some space" if level == "warning" else None)


def clock_check(now_s: float, installed_s: float) -> Check:
    """Check whether the clock can be right.

    A sandbox takes its time, and no certificate is valid under a wrong one.
    """
    if now_s < installed_s - 86400:
        day = time.strftime("%Y-%m-%d", time.gmtime(now_s))
        message = f"the clock says {day}, which is before atoll's release"
        return Check("clock", "error", message, "sudo timedatectl set-ntp true")
    return Check("clock", "ok", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now_s)))


def ptrace_check(scope: str | None) -> Check | None:
    """Check whether the engine may trace its own processes.

    Tracing is how it catches a guest's system calls.
    """
    if scope != "3":
        return None
    message = "this host forbids ptrace (kernel.yama.ptrace_scope is 3)"
    return Check("ptrace", "error", message, "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and reboot")


def latency_check(device: Path) -> Check | None:
    """Check whether this user may keep idle processors quick to wake."""
    if not device.exists():
        return None
    if request := open_cpu_latency(device):
        request.close()
        return Check("wake-ups", "ok", "atoll keeps idle processors quick to wake while sandboxes work")
    if os.access(device, os.W_OK):
        return None
    message = (
        f"idle processors may wake slowly and delay commands, because this user may not write to {device}"
    )
    return Check("wake-ups", "note", message, f"sudo chown {user_name()} {device}")


def filesystem_kind(path: Path) -> str:
    """Return the kind of the file system of a path, as in the kernel's table of mounts."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        point = fields[4].rstrip("/") + "/"
        if fields[2] == wanted or f"{path}/".startswith(point):
            # btrfs has its own device numbers; then the deepest mount point above the path decides.
            if fields[2] == wanted and not f"{path}/".startswith(point):
                continue
            if len(point) >= len(best):
                best, kind = point, after.split(" ", 1)[0]
    return kind


def _tried_ids(home: Home) -> tuple[Check | None, bool]:
    """Check this user's ids, and return also whether there is only one. Root has all, so it gets no check."""
    if is_host_root():
        return None, False
    try:
        lacks = (find_holder(home) or _trial_holder(home)).lacks_ids
        least = 0 if lacks else min(ids.count for ids in own_ranges())
    except HostError as error:
        return Check("ids", "error", error.message, (error.remedy or "").removeprefix("run: ") or None), False
    return ids_check(lacks, least), lacks is not None


def _trial_holder(home: Home) -> Holder:
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=home.path) as place:
        trial = Home(place, run=f"{place}/run")
        try:
            return ensure_holder(trial)
        finally:
            end_holder(trial)


def _slow_checks(home: Home) -> list[Check]:
    return [disk_check(free_bytes(home.path), home.path), _cgroup_check(home)]


def _cgroup_check(home: Home) -> Check:
    if cgroup_root(home) is not None:
        return Check("cgroups", "ok", "control groups limit the memory and processor time of a sandbox")
    delegates = not is_host_root() and Path("/run/systemd/system").is_dir()
    remedy = "systemd-run --user --scope -p Delegate=yes $SHELL" if delegates else None
    return Check(
        "cgroups",
        "note",
        "this user has no control groups: atoll watches memory instead, and gives only whole processors",
        remedy,
    )


async def _tried(home: Home) -> dict[str, str]:
    kind = "root" if is_host_root() else "user"
    place = Path(tempfile.mkdtemp(prefix=".trial-", dir=home.path))
    try:
        for name in ("lower", "upper", "work", "at"):
            (place / name).mkdir()
        argv = [sys.executable, "-I", "-S", str(_TRIAL), kind, str(place)]
        result = await run_program(argv, timeout_s=_TRIAL_S)
        lines = (line.partition(" ") for line in result.stdout.decode(errors="replace").splitlines())
        return {name: outcome for name, _, outcome in lines}
    except RunProgramError as error:
        return {"namespaces": str(error)}
    finally:
        await asyncio.to_thread(remove_tree, place)


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return None


def _better_place() -> str | None:
    for place in (Path.home(), Path("/var/tmp"), Path("/srv"), Path("/mnt")):  # noqa: S108
        if os.access(place, os.W_OK) and filesystem_kind(place) not in (*_UNFIT_KINDS, "tmpfs"):
            return str(place / f"atoll-{user_name()}")
    return None
