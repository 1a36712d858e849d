"""Access to the host: paths, processes, namespaces, mounts, cgroups, and copies of directory trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.host.binaries import agent_path, check_programs, edge_path, puller_path, relay_path, runsc_path
    from atoll.host.checks import Check, check_host
    from atoll.host.files import DiskUsage, disk_usage, free_bytes, locked, sync_directory, write_atomically
    from atoll.host.home import Home
    from atoll.host.logfiles import append_log, forget_log_head, read_log
    from atoll.host.namespaces.holder import (
        Holder,
        end_holder,
        ensure_holder,
        find_holder,
        join_holder,
        replace_holder,
    )
    from atoll.host.namespaces.mounts import Mounts, is_mounted, mounts_below, remove_empty_place
    from atoll.host.namespaces.netns import in_netns, in_spare_thread, new_netns, unpin
    from atoll.host.namespaces.userns import is_host_root, is_mapped, one_id
    from atoll.host.own_addresses import is_this_host
    from atoll.host.own_programs import earlier_program, end_program, note_program
    from atoll.host.pids import (
        boot_id,
        children_by_parent,
        continue_process,
        kill_process,
        open_process,
        parent_of,
        process_alive,
        stands_still,
        start_ticks,
        stop_process,
        wait_pidfd,
    )
    from atoll.host.processes import (
        LeftProgram,
        Program,
        ProgramResult,
        RunProgramError,
        run_program,
        start_program,
        to_the_end,
    )
    from atoll.host.registries import registry_hosts
    from atoll.host.resources.cgroups import Cgroup, CgroupRoot, cgroup_root
    from atoll.host.resources.cpu_latency import CpuLatency, open_cpu_latency
    from atoll.host.resources.disks import DiskKind, disk_kind
    from atoll.host.resources.memory import Memory, read_memory
    from atoll.host.rights import give_up_rights, lower_rights, write_nowhere_but
    from atoll.host.syscalls import disconnect
    from atoll.host.trees.checksum_store import TreeChecksums
    from atoll.host.trees.checksums import (
        BrokenChecksumsError,
        CheckedTree,
        checksummed_bytes,
        verify_checksums,
        write_checksums,
    )
    from atoll.host.trees.copy import TreeCopy, copy_tree
    from atoll.host.trees.facts import Pace, TreeDirectory, attributes_of, walk_tree
    from atoll.host.trees.file_copy import FileCopy, copy_attributes, copy_node
    from atoll.host.trees.rooted import Owner, RootedEntry, RootedTree
    from atoll.host.trees.usage import TreeUse, tree_use
    from atoll.host.trees.whole import (
        open_below,
        open_top,
        read_below,
        remove_tree,
        sync_tree,
        tree_bytes,
        tree_outgrows,
    )

__all__ = [
    "BrokenChecksumsError",
    "Cgroup",
    "CgroupRoot",
    "Check",
    "CpuLatency",
    "DiskKind",
    "DiskUsage",
    "FileCopy",
    "Holder",
    "Home",
    "LeftProgram",
    "Memory",
    "Mounts",
    "Owner",
    "Pace",
    "Program",
    "ProgramResult",
    "RootedEntry",
    "RootedTree",
    "RunProgramError",
    "CheckedTree",
    "TreeCopy",
    "TreeChecksums",
    "TreeUse",
    "agent_path",
    "append_log",
    "boot_id",
    "cgroup_root",
    "children_by_parent",
    "check_host",
    "check_programs",
    "verify_checksums",
    "continue_process",
    "copy_attributes",
    "copy_node",
    "copy_tree",
    "disconnect",
    "disk_kind",
    "disk_usage",
    "earlier_program",
    "edge_path",
    "end_program",
    "end_holder",
    "ensure_holder",
    "find_holder",
    "forget_log_head",
    "free_bytes",
    "give_up_rights",
    "in_netns",
    "in_spare_thread",
    "is_host_root",
    "is_mapped",
    "is_mounted",
    "is_this_host",
    "join_holder",
    "kill_process",
    "locked",
    "lower_rights",
    "mounts_below",
    "new_netns",
    "note_program",
    "one_id",
    "open_below",
    "open_cpu_latency",
    "open_process",
    "parent_of",
    "open_top",
    "process_alive",
    "puller_path",
    "read_below",
    "read_log",
    "read_memory",
    "remove_empty_place",
    "registry_hosts",
    "remove_tree",
    "relay_path",
    "replace_holder",
    "run_program",
    "runsc_path",
    "checksummed_bytes",
    "stands_still",
    "start_program",
    "start_ticks",
    "stop_process",
    "sync_directory",
    "sync_tree",
    "to_the_end",
    "tree_bytes",
    "tree_outgrows",
    "tree_use",
    "unpin",
    "wait_pidfd",
    "write_atomically",
    "write_nowhere_but",
    "write_checksums",
    "TreeDirectory",
    "attributes_of",
    "walk_tree",
]

# loaded on first use, because the SDK needs only the paths, and quickly
_MODULES = {
    "agent_path": "binaries",
    "edge_path": "binaries",
    "check_programs": "binaries",
    "puller_path": "binaries",
    "relay_path": "binaries",
    "runsc_path": "binaries",
    "Cgroup": "resources.cgroups",
    "CgroupRoot": "resources.cgroups",
    "cgroup_root": "resources.cgroups",
    "children_by_parent": "pids",
    "Check": "checks",
    "check_host": "checks",
    "CpuLatency": "resources.cpu_latency",
    "open_cpu_latency": "resources.cpu_latency",
    "disconnect": "syscalls",
    "earlier_program": "own_programs",
    "end_program": "own_programs",
    "note_program": "own_programs",
    "DiskKind": "resources.disks",
    "disk_kind": "resources.disks",
    "DiskUsage": "files",
    "disk_usage": "files",
    "free_bytes": "files",
    "locked": "files",
    "sync_directory": "files",
    "write_atomically": "files",
    "Holder": "namespaces.holder",
    "end_holder": "namespaces.holder",
    "ensure_holder": "namespaces.holder",
    "find_holder": "namespaces.holder",
    "replace_holder": "namespaces.holder",
    "join_holder": "namespaces.holder",
    "Home": "home",
    "append_log": "logfiles",
    "forget_log_head": "logfiles",
    "read_log": "logfiles",
    "Memory": "resources.memory",
    "read_memory": "resources.memory",
    "Mounts": "namespaces.mounts",
    "is_mounted": "namespaces.mounts",
    "mounts_below": "namespaces.mounts",
    "remove_empty_place": "namespaces.mounts",
    "in_netns": "namespaces.netns",
    "in_spare_thread": "namespaces.netns",
    "new_netns": "namespaces.netns",
    "unpin": "namespaces.netns",
    "is_this_host": "own_addresses",
    "boot_id": "pids",
    "continue_process": "pids",
    "kill_process": "pids",
    "open_process": "pids",
    "parent_of": "pids",
    "process_alive": "pids",
    "stands_still": "pids",
    "start_ticks": "pids",
    "stop_process": "pids",
    "wait_pidfd": "pids",
    "LeftProgram": "processes",
    "Program": "processes",
    "ProgramResult": "processes",
    "RunProgramError": "processes",
    "run_program": "processes",
    "start_program": "processes",
    "to_the_end": "processes",
    "FileCopy": "trees.file_copy",
    "copy_attributes": "trees.file_copy",
    "copy_node": "trees.file_copy",
    "open_below": "trees.whole",
    "open_top": "trees.whole",
    "give_up_rights": "rights",
    "lower_rights": "rights",
    "write_nowhere_but": "rights",
    "Pace": "trees.facts",
    "TreeDirectory": "trees.facts",
    "attributes_of": "trees.facts",
    "walk_tree": "trees.facts",
    "BrokenChecksumsError": "trees.checksums",
    "CheckedTree": "trees.checksums",
    "TreeChecksums": "trees.checksum_store",
    "verify_checksums": "trees.checksums",
    "checksummed_bytes": "trees.checksums",
    "write_checksums": "trees.checksums",
    "Owner": "trees.rooted",
    "RootedEntry": "trees.rooted",
    "RootedTree": "trees.rooted",
    "TreeCopy": "trees.copy",
    "copy_tree": "trees.copy",
    "read_below": "trees.whole",
    "remove_tree": "trees.whole",
    "sync_tree": "trees.whole",
    "tree_bytes": "trees.whole",
    "tree_outgrows": "trees.whole",
    "TreeUse": "trees.usage",
    "tree_use": "trees.usage",
    "registry_hosts": "registries",
    "is_host_root": "namespaces.userns",
    "is_mapped": "namespaces.userns",
    "one_id": "namespaces.userns",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
