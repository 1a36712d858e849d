"""``atoll info``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import click

from atoll import Sandbox, Snapshots, Volumes
from atoll.cli.delegation_options import delegation_shown
from atoll.cli.lazy_commands import Command
from atoll.cli.leases import idle_shown, lease_shown
from atoll.cli.limit_options import described
from atoll.cli.model_options import budget_shown
from atoll.cli.network import network_shown
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import show_json
from atoll.cli.text import moment, plain
from atoll.errors import AtollError
from atoll.types import SandboxInfo, ServiceSpec, VolumeMount


@click.command(name="info", cls=Command)
@sandbox_argument
@json_option
def command(sandbox: str, as_json: bool) -> None:
    r"""Show everything about one sandbox. This does not wake it.

    \b
    Example:
      atoll info work
    """
    info = Sandbox.get(sandbox)
    if as_json:
        show_json(info)
        return
    for name, value in lines_of(info, _names_in(info)):
        click.echo(f"{name:<11}{plain(value)}")


def _remark(info: SandboxInfo) -> str:
    if info.unplugged is not None:
        return ", unplugged"
    if info.reason:
        return f" ({info.reason})"
    if info.unresponsive_since is not None:
        return f", unresponsive: it has not answered since {moment(info.unresponsive_since)}"
    return "" if info.has_memory else " (only its disk is kept: its next use boots it)"


def _disk(info: SandboxInfo) -> str:
    if info.engine_disk:
        return "kept by the engine: a crash loses what is not in a snapshot, and no disk limit is enforced"
    if info.limits.disk_mib is None:
        return "layers; a tenth of the host's disk stays free"
    return "layers"


def _service(spec: ServiceSpec) -> str:
    command = spec.command if isinstance(spec.command, str) else " ".join(spec.command)
    return (
        f"{spec.name}{f' on port {spec.port}' if spec.port else ''}"
        f"{f' at {spec.schedule!r}' if spec.schedule else ''}: {command}"
    )


def _mount(path: str, mount: VolumeMount, names: Mapping[str, str]) -> str:
    return f"{names.get(mount.volume, mount.volume)} at {path}{', read-only' if mount.read_only else ''}"


def _names_in(info: SandboxInfo) -> dict[str, str]:
    """Return the names of the volumes and of the snapshot of a sandbox, by id."""
    names: dict[str, str] = {}
    with suppress(AtollError):  # the ids say it too
        if info.volumes:
            names |= {volume.volume_id: volume.name for volume in Volumes.list(team=info.team)}
        if info.snapshot_id is not None:
            names[info.snapshot_id] = Snapshots.get(info.snapshot_id).name or info.snapshot_id
    return names


def lines_of(info: SandboxInfo, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return everything about a sandbox, as lines.

    ``names`` has the names of volumes and snapshots, by id.
    """
    lines = [
        ("name", info.name or "-"),
        ("id", info.sandbox_id),
        ("state", info.state + _remark(info)),
        ("image", info.image),
        ("created", moment(info.created_at)),
        ("changed", moment(info.changed_at)),
        ("lease", lease_shown(info)),
        ("network", network_shown(info.network)),
        ("ports", info.ports),
        ("limits", described(info.limits) or "the default ones"),
        ("in force", described(info.limits_in_force)),
        ("on crash", info.on_crash),
        ("user", f"{info.user} in {info.cwd}"),
        ("disk", _disk(info)),
        ("snapshot", "-" if info.snapshot_id is None else names.get(info.snapshot_id, info.snapshot_id)),
    ]
    if info.delegation is not None:
        lines.append(("delegated", delegation_shown(info.delegation)))
    if info.models is not None:
        lines.append(("models", f"{', '.join(info.models.allow)}; {budget_shown(info.models.budget)}"))
    if (idle := idle_shown(info)) is not None:
        lines.append(("idle" if info.state == "running" else "asleep", idle))
    if info.wakes_at is not None:
        lines.append(("wakes", f"at {moment(info.wakes_at)}, as a program inside wanted"))
    if info.unplugged is not None:
        lines.append(("unplugged", f"{moment(info.unplugged.at)}: {info.unplugged.reason}"))
    every_s, failed = info.lifecycle.snapshot_every_s, info.snapshot_failed
    if every_s is not None:
        told = f"; none at {moment(failed.at)}: {failed.reason}" if failed else ""
        lines.append(("snapshots", f"automatically every {every_s:g} s while something changes{told}"))
    if info.recovered is not None:
        lines.append(("recovered", f"{moment(info.recovered.at)}: {info.recovered}"))
    lines += [("service", _service(each)) for each in info.services]
    lines += [("volume", _mount(path, mount, names)) for path, mount in sorted(info.volumes.items())]
    lines += [("metadata", f"{key}={value}") for key, value in sorted(info.metadata.items())]
    # The values of variables may be secrets, and other people may see the screen. --json shows them.
    lines += [("env", key) for key in sorted(info.env)]
    return lines
