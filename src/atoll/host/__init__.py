"""The host's own things: paths, processes, namespaces, mounts, control groups, copies of directory trees."""

from atoll.host.binaries import agent_path, runsc_path
from atoll.host.cgroups import Cgroup, CgroupRoot, cgroup_root
from atoll.host.checks import Check, check_host
from atoll.host.files import free_bytes, locked, sync_directory, write_atomically
from atoll.host.holder import Holder, end_holder, ensure_holder, find_holder, join_holder
from atoll.host.home import Home
from atoll.host.mounts import Mounts, mounts_below
from atoll.host.netns import in_netns, new_netns, unpin
from atoll.host.pids import boot_id, kill_process, open_process, process_alive, start_ticks
from atoll.host.processes import Program, ProgramResult, RunProgramError, run_program, start_program
from atoll.host.treecopy import TreeCopy, copy_tree
from atoll.host.trees import remove_tree, sync_tree, tree_bytes
from atoll.host.userns import is_host_root

__all__ = [
    "Cgroup",
    "CgroupRoot",
    "Check",
    "Holder",
    "Home",
    "Mounts",
    "Program",
    "ProgramResult",
    "RunProgramError",
    "TreeCopy",
    "agent_path",
    "boot_id",
    "cgroup_root",
    "check_host",
    "copy_tree",
    "end_holder",
    "ensure_holder",
    "find_holder",
    "free_bytes",
    "in_netns",
    "is_host_root",
    "join_holder",
    "kill_process",
    "locked",
    "mounts_below",
    "new_netns",
    "open_process",
    "process_alive",
    "remove_tree",
    "run_program",
    "runsc_path",
    "start_program",
    "start_ticks",
    "sync_directory",
    "sync_tree",
    "tree_bytes",
    "unpin",
    "write_atomically",
]
