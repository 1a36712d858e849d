"""``python -m atoll.supervisor.emergency_unplug --home PATH --run PATH REF… | --all``: unplugs without a supervisor.

Clients run it when the supervisor of a home does not answer. It cuts the networks and freezes the guests. It
leaves marks, so that this or the next supervisor keeps the sandboxes unplugged. It prints its report as JSON.
It asks no other process: the rows, the namespaces and the control groups are enough.

It tells the relay, which runs on without the supervisor, and ends a relay that does not answer. It also ends
the edge, which may hold data that it has not sent on yet. That resets all connections through the ended
program, those of other sandboxes too. The supervisor starts another program when it goes on.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from atoll.engines import engine_kind
from atoll.errors import AtollError, HostError, SandboxNotFoundError
from atoll.host import CgroupRoot, Home, cgroup_root, end_program, find_holder, join_holder, write_atomically
from atoll.network import cut, cut_at, pins_of
from atoll.protocol import EmergencyUnplugged, error_body
from atoll.supervisor.state.database import read_without_owner
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.row_copies import RowCopies
from atoll.supervisor.state.rows import OperationRow, SandboxRow
from atoll.supervisor.state.unplug_marks import UnplugMark

_ASLEEP = frozenset({"suspended", "crashed"})


class Emergency:
    """Unplugs sandboxes of one home.

    Args:
        home: The home, whose namespaces this process has joined if ``lives``.
        lives: Whether the home's namespaces exist. Without them nothing runs.
        reason: Why, for people.
    """

    def __init__(self, home: Home, *, lives: bool, reason: str) -> None:
        self._home = home
        self._paths = Paths(home)
        self._lives = lives
        self._reason = reason
        self._rows = _rows(home)
        self._wakes = {row.sandbox_id: row.link_id for row in _operations(home) if row.link_id}

    def wanted(self, refs: Sequence[str]) -> list[SandboxRow]:
        """Return the sandboxes with these ids or names; all without any.

        Raises:
            SandboxNotFoundError: There is no such sandbox.
        """
        if not refs:
            return self._rows
        found = []
        for ref in refs:
            row = next((row for row in self._rows if ref in (row.sandbox_id, row.name)), None)
            if row is None:
                raise SandboxNotFoundError(f"there is no sandbox {ref!r}", hint="`atoll ls` lists them")
            found.append(row)
        return found

    def unplug(self, rows: Sequence[SandboxRow]) -> list[EmergencyUnplugged]:
        """Unplug these sandboxes: all networks first."""
        problems: dict[str, list[str]] = {row.sandbox_id: [] for row in rows}
        are_cut = {row.sandbox_id: self._cut(row, problems[row.sandbox_id]) for row in rows}
        awake = [row for row in rows if row.state not in _ASLEEP or row.sandbox_id in self._wakes]
        self._end_edge(awake, are_cut, problems)
        cgroups = cgroup_root(self._home) if self._lives else None
        results = []
        for row in rows:
            told = problems[row.sandbox_id]
            is_frozen, stopped = self._freeze(row, cgroups, told)
            results.append(
                EmergencyUnplugged(
                    sandbox_id=row.sandbox_id,
                    name=row.name,
                    cut=are_cut[row.sandbox_id],
                    frozen=is_frozen,
                    marked=self._mark(row, stopped, told),
                    problems=told,
                )
            )
        return results

    def _cut(self, row: SandboxRow, problems: list[str]) -> bool:
        link_ids = {link_id for link_id in (row.link_id, self._wakes.get(row.sandbox_id)) if link_id}
        done = 0
        for link_id in link_ids if self._lives else ():
            try:
                self._cut_at_relay(link_id)
                cut(pins_of(self._home.pins, link_id))
                done += 1
            except (OSError, HostError) as error:
                problems.append(f"its network {link_id} cannot be cut: {error}")
        return row.state in _ASLEEP or not self._lives or (done > 0 and done == len(link_ids))

    def _cut_at_relay(self, link_id: str) -> None:
        """Have the relay send nothing on that it has taken already."""
        try:
            cut_at(self._home.run / "relay.sock", link_id)
        except OSError:
            end_program(self._home, "relay")

    def _end_edge(
        self, rows: Sequence[SandboxRow], are_cut: dict[str, bool], problems: dict[str, list[str]]
    ) -> None:
        """End the edge, so that data of these sandboxes that it still holds goes nowhere."""
        if not self._lives or not rows:
            return
        try:
            end_program(self._home, "edge")
        except HostError as error:
            for row in rows:
                are_cut[row.sandbox_id] = False
                problems[row.sandbox_id].append(f"requests that it has sent may still go out: {error}")

    def _freeze(
        self, row: SandboxRow, cgroups: CgroupRoot | None, problems: list[str]
    ) -> tuple[bool, list[tuple[int, int]]]:
        if not self._lives or (row.unplugged is not None and row.state == "paused"):
            return True, []
        # The row of a sandbox that is being woken names no machine yet.
        is_frozen = _freeze_by_name(self._machine_ids(row), cgroups)
        if row.machine is None:
            return is_frozen or row.state in _ASLEEP, []
        try:
            engine_type = engine_kind(row.versions.engine_name).engine_type
            return True, engine_type.halt(row.machine, cgroups)
        except AtollError as error:
            if not is_frozen:
                problems.append(f"its guest is not frozen: {error}")
            return is_frozen, []

    def _machine_ids(self, row: SandboxRow) -> list[str]:
        """The machines that were started for a sandbox, see ``RunningMachines.strays``."""
        console, machines = self._paths.console(row.sandbox_id), self._paths.machines
        found = []
        for state_dir in machines.iterdir() if machines.is_dir() else ():
            link = state_dir / console.name
            if link.is_symlink() and link.readlink() == console:
                found.append(state_dir.name)
        return found

    def _mark(self, row: SandboxRow, stopped: list[tuple[int, int]], problems: list[str]) -> bool:
        if row.unplugged is not None and not stopped:
            return True
        mark = UnplugMark(at=time.time(), reason=self._reason, stopped=tuple(stopped))
        try:
            write_atomically(self._paths.unplug_mark(row.sandbox_id), msgspec.json.encode(mark))
            # After the mark: a supervisor that goes on looks for marks when this has changed.
            write_atomically(self._paths.unplug_stamp, b"")
        except OSError as error:
            problems.append(f"no mark could be written, so its next supervisor will not know of it: {error}")
            return False
        return True


def _freeze_by_name(machine_ids: Sequence[str], cgroups: CgroupRoot | None) -> bool:
    is_frozen = False
    for machine_id in machine_ids if cgroups else ():
        cgroup = cgroups.find(machine_id) if cgroups else None
        try:
            is_frozen |= cgroup is not None and cgroup.freeze()
        except OSError:  # it has just ended
            continue
    return is_frozen


def _rows(home: Home) -> list[SandboxRow]:
    try:
        rows = read_without_owner(home.database, SandboxRow)
    except sqlite3.Error:
        rows = [row for row in RowCopies(home).all(SandboxRow) if isinstance(row, SandboxRow)]
    return [row for row in rows if row.state != "killed"]


def _operations(home: Home) -> list[OperationRow]:
    try:
        return read_without_owner(home.database, OperationRow)
    except sqlite3.Error:
        return []


def main() -> int:
    """Unplug the sandboxes that the command line names, print a report, and return the exit code."""
    arguments = _arguments(sys.argv[1:])
    home = Home(arguments.home, run=arguments.run)
    try:
        holder = find_holder(home)
        if holder is not None:
            join_holder(holder)  # before anything starts a thread
        emergency = Emergency(home, lives=holder is not None, reason=arguments.reason)
        results = emergency.unplug(emergency.wanted(arguments.refs))
    except (AtollError, OSError) as error:
        sys.stdout.buffer.write(msgspec.json.encode(error_body(error)) + b"\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(results) + b"\n")
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m atoll.supervisor.emergency_unplug", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--home", type=Path, required=True, help="state directory")
    parser.add_argument("--run", type=Path, required=True, help="directory for sockets and locks")
    parser.add_argument("--reason", default="no reason was given", help="why, for people")
    parser.add_argument("--all", action="store_true", help="unplug every sandbox of the home")
    parser.add_argument("refs", nargs="*", metavar="REF", help="id or name of a sandbox")
    found = parser.parse_args(argv)
    if found.all == bool(found.refs):
        parser.error("name sandboxes, or give --all")
    return found


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
