"""Names that others give to what atoll has, with atoll's word for each: one table, and the errors that use it.

Nothing here is accepted. A name that is almost right is answered with the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, TypeVar, cast

from atoll.errors import ForeignNameError

F = TypeVar("F", bound=Callable[..., Any])

_TIMEOUT = "timeout_s=…, in seconds"
_TTL = "ttl_s=…, in seconds"
_CWD = "cwd=… of run, exec and start"
_TERMINAL = "processes.pty(…), which gives a terminal"
_HANDLE = "processes.start(…), which returns a handle at once"
_COMMANDS = "run(…), exec([…]) and processes.start(…); processes.list() tells what runs"
_SUSPENDS = 'lifecycle=Lifecycle(ttl_s=…, on_expiry="suspend")'
_LEASE = "lifecycle=Lifecycle(ttl_s=…), in seconds"
_NETWORK = 'network="none" or network="internet", or a Policy'
_ADDRESS = (
    "ports.forward(PORT), which gives an address on 127.0.0.1, ports.url(PORT) through `atoll serve`, "
    "or ports.dial(PORT)"
)
_PROGRAM = {
    "background": _HANDLE,
    "capture_output": "nothing: output is always in the result",
    "cmd": "the command first, without a name",
    "command": "the command first, without a name",
    "detach": _HANDLE,
    "env_vars": "env={…}",
    "environment": "env={…}",
    "envs": "env={…}",
    "input": "stdin=…",
    "pty": _TERMINAL,
    "request_timeout": _TIMEOUT,
    "shell": "run(…) for a shell line, exec([…]) for a program without one",
    "text": "nothing: a result has both stdout and stdout_bytes",
    "timeout": _TIMEOUT,
    "timeoutMs": _TIMEOUT,
    "timeout_ms": _TIMEOUT,
    "tty": _TERMINAL,
    "work_dir": "cwd=…",
    "workdir": "cwd=…",
    "working_dir": "cwd=…",
}
ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "create": {
        "allow_internet_access": _NETWORK,
        "attributes": "hosting=Hosting(attributes=…)",
        "auto_pause": _SUSPENDS,
        "auto_remove": "keep=True to keep it at the end of `with`; otherwise it is killed there",
        "auto_stop_interval": _SUSPENDS,
        "best_effort": "boot=Boot(best_effort=…)",
        "block_network": _NETWORK,
        "cpu": "limits=Limits(vcpus=…)",
        "cpus": "limits=Limits(vcpus=…)",
        "cwd": _CWD,
        "delegation": "hosting=Hosting(delegation=…)",
        "detach": "keep=True",
        "disk": "limits=Limits(disk_mib=…)",
        "disk_mib": "limits=Limits(disk_mib=…)",
        "encrypted_ports": "sandbox.ports.forward(PORT) or sandbox.ports.dial(PORT)",
        "env_vars": "env={…}",
        "environment": "env={…}",
        "envs": "env={…}",
        "from_snapshot": 'Snapshot("ID OR NAME") first, without a name',
        "gpu": "nothing: a sandbox has no GPU",
        "idempotency_key": "hosting=Hosting(idempotency_key=…)",
        "idle_timeout": _SUSPENDS,
        "image": "the image first, without a name",
        "internet": _NETWORK,
        "labels": "metadata={…}",
        "lease": _LEASE,
        "memory": "limits=Limits(memory_mib=…)",
        "memory_mb": "limits=Limits(memory_mib=…)",
        "memory_mib": "limits=Limits(memory_mib=…)",
        "models": "hosting=Hosting(models=…)",
        "mounts": 'volumes={"/PATH": "NAME"}',
        "network_block_all": _NETWORK,
        "on_crash": "boot=Boot(on_crash=…)",
        "on_progress": "wait=Wait(on_progress=…)",
        "ports": "hosting=Hosting(ports=…)",
        "request_timeout": "wait=Wait(within_s=…), in seconds",
        "secrets": "Secrets.create(…), and a network=Policy(…) that injects them",
        "services": "boot=Boot(services=…)",
        "snapshot": 'Snapshot("ID OR NAME") first, without a name',
        "snapshot_id": 'Snapshot("ID OR NAME") first, without a name',
        "start": "boot=Boot(start=…)",
        "tags": "metadata={…}",
        "team": "hosting=Hosting(team=…)",
        "template": 'Template("NAME:TAG") first, without a name',
        "template_id": 'Template("NAME:TAG") first, without a name',
        "timeout": _LEASE,
        "timeoutMs": _LEASE,
        "timeout_ms": _LEASE,
        "timeout_s": _LEASE,
        "trust_host_ca": "boot=Boot(trust_host_ca=…)",
        "ttl": _LEASE,
        "ttl_s": _LEASE,
        "user": "user=… of run, exec and start",
        "vcpus": "limits=Limits(vcpus=…)",
        "within_s": "wait=Wait(within_s=…), in seconds",
        "workdir": _CWD,
    },
    "connect": {
        "timeout": _TTL,
        "timeoutMs": _TTL,
        "timeout_ms": _TTL,
        "timeout_s": _TTL,
        "ttl": _TTL,
    },
    "fork": {
        "copies": "count=…",
        "n": "count=…",
        "name": "names=[…], one for each copy",
        "timeout": "lifecycle=Lifecycle(ttl_s=…)",
        "timeout_s": "lifecycle=Lifecycle(ttl_s=…)",
        "ttl_s": "lifecycle=Lifecycle(ttl_s=…)",
    },
    "list": {
        "labels": "metadata={…}",
        "query": "state=… and metadata={…}",
        "status": "state=…",
    },
    "run": _PROGRAM,
    "exec": _PROGRAM,
    "start": {name: ours for name, ours in _PROGRAM.items() if name not in ("command", "input")},
    "pty": {name: ours for name, ours in _PROGRAM.items() if name not in ("command", "input", "pty", "tty")},
}
"""By call: what others name an argument, and what to give instead."""

ATTRIBUTES: Mapping[str, str] = {
    "attrs": "info()",
    "beta_pause": "suspend()",
    "checkpoint": "snapshot(), and rollback(…) or create(Snapshot(…))",
    "clone": "fork()",
    "commands": _COMMANDS,
    "code_interpreter": "code",
    "commit": "snapshot()",
    "create_code_context": "code.create_context(…)",
    "attach": "processes.attach(PID)",
    "dial": "ports.dial(PORT)",
    "create_snapshot": "snapshot()",
    "delete": "kill()",
    "destroy": "kill()",
    "download": "files.download(…)",
    "download_file": "files.download(…) or files.read(…)",
    "exec_run": "exec([…])",
    "extend_timeout": "set_lease(…, extend_only=True)",
    "filesystem": "files",
    "fs": "files",
    "get_host": _ADDRESS,
    "get_info": "info()",
    "get_metrics": "stats() and stats_history()",
    "get_preview_link": _ADDRESS,
    "get_url": _ADDRESS,
    "hibernate": "suspend()",
    "is_running": 'info().state == "running"',
    "interpreter": "code",
    "interrupt_code_context": "code.interrupt(…)",
    "forward": "ports.forward(PORT)",
    "keep_alive": "set_lease(…, extend_only=True)",
    "list_code_contexts": "code.contexts()",
    "merge": "promote(FORK)",
    "mkdir": "files.mkdir(…)",
    "object_id": "id",
    "open": "files.read(…) and files.write(…)",
    "pty": _TERMINAL,
    "poll": "info().state, or processes.list()",
    "preview_url": _ADDRESS,
    "process": _COMMANDS,
    "read_file": "files.read(…)",
    "remove": "kill()",
    "remove_code_context": "code.delete_context(…)",
    "restart_code_context": "code.restart(…)",
    "restore": "rollback(…), or create(Snapshot(…))",
    "runCode": "code.run(…)",
    "run_code": "code.run(…)",
    "run_command": "run(…) or exec([…])",
    "sandbox_id": "id",
    "set_timeout": "set_lease(…)",
    "setTimeout": "set_lease(…)",
    "shell": "run(…), or processes.pty() for a terminal",
    "shutdown": "suspend() to keep it, kill() to erase it",
    "snapshot_filesystem": "snapshot()",
    "state": "info().state",
    "status": "info().state",
    "start": "resume(), or processes.start(…) for a program",
    "stop": "suspend() to keep it, kill() to erase it",
    "terminal": "processes.pty()",
    "terminate": "kill()",
    "tunnels": _ADDRESS,
    "url": "ports.url(PORT)",
    "wait_for_port": "ports.wait(PORT)",
    "unpause": "resume()",
    "upload": "files.upload(…)",
    "upload_file": "files.upload(…) or files.write(…)",
    "write_file": "files.write(…)",
}
"""What others name an attribute of a sandbox, and what it is here."""

CLASS_ATTRIBUTES: Mapping[str, str] = {
    "beta_create": "create(…)",
    "find": 'get("NAME"), or list(metadata={…})',
    "find_one": 'get("NAME"), or list(metadata={…})',
    "from_id": 'connect("ID")',
    "from_name": 'connect("NAME")',
    "from_snapshot": "create(Snapshot(…))",
    "from_template": "create(Template(…))",
    "get_or_create": "connect_or_create(name=…)",
    "lookup": 'connect("NAME")',
    "new": "create(…)",
    "open": 'connect("NAME")',
}
"""What others name a class method of sandboxes, and what it is here."""

PARTS: Mapping[str, Mapping[str, str]] = {
    "files": {
        "cp": "copy(…)",
        "create_folder": "mkdir(…)",
        "delete_file": "delete(…)",
        "download_file": "download(…) or read(…)",
        "find": "search(…) for text, glob(…) for names",
        "find_files": "search(…)",
        "get_file_info": "stat(…)",
        "get_info": "stat(…)",
        "grep": "search(…)",
        "list_files": "list(…)",
        "ls": "list(…)",
        "makeDir": "mkdir(…)",
        "make_dir": "mkdir(…)",
        "move_files": "move(…)",
        "mv": "move(…)",
        "open": "read(…) and write(…)",
        "read_file": "read(…)",
        "remove": "delete(…)",
        "rename": "move(…)",
        "replace": "edit(…)",
        "replace_in_files": "edit(…), for each file that search(…) finds",
        "rm": "delete(…)",
        "rmdir": "delete(…)",
        "search_files": "glob(…) for names, search(…) for text",
        "set_file_permissions": "chmod(…) and chown(…)",
        "str_replace": "edit(…)",
        "upload_file": "upload(…) or write(…)",
        "upload_files": "upload(…), or write_many(…)",
        "watchDir": "watch(…)",
        "watch_dir": "watch(…)",
        "write_file": "write(…)",
        "write_files": "write_many(…)",
    },
    "processes": {"exec": "start(…)", "ps": "list()", "run": "start(…)", "terminal": "pty(…)"},
    "ports": {"expose": "forward(…)", "get_url": "url(…)", "open": "forward(…)", "wait_for_port": "wait(…)"},
    "git": {
        "checkout_branch": "checkout(…)",
        "create_branch": "branch(…), or checkout(…, create=True)",
        "dangerously_authenticate": "a rule of the network's policy that injects a secret",
        "list_branches": "branches(…)",
    },
    "code": {
        "create_code_context": "create_context(…)",
        "exec": "run(…)",
        "execute": "run(…)",
        "list_code_contexts": "contexts()",
        "list_contexts": "contexts()",
        "remove_code_context": "delete_context(…)",
        "remove_context": "delete_context(…)",
        "restart_code_context": "restart(…)",
        "restart_context": "restart(…)",
        "runCode": "run(…)",
        "run_code": "run(…)",
    },
    "services": {
        "create": "add(…)",
        "delete": "remove(…)",
        "kill": "stop(…)",
        "ps": "list()",
        "run": "add(…)",
        "status": "get(…)",
    },
}
"""By part of a sandbox: what others name an attribute of it, and what it is here."""


def no_foreign_arguments(call: F) -> F:
    """Make a method answer an argument that it does not have with atoll's word for it."""
    known = signature(call).parameters

    @wraps(call)
    def checked(*args: Any, **given: Any) -> Any:
        for name in given:
            if name not in known:
                raise foreign_argument(call, name)
        return call(*args, **given)

    @wraps(call)
    async def checked_later(*args: Any, **given: Any) -> Any:
        return await checked(*args, **given)

    return cast(F, checked_later if iscoroutinefunction(call) else checked)


def foreign_argument(call: Callable[..., Any], name: str) -> ForeignNameError:
    """Return the error for an argument that a call does not have, with what to give instead."""
    what = call.__name__
    ours = ARGUMENTS.get(what, {}).get(name)
    hint = f"give {ours}" if ours else _nearest(name, _parameters(call))
    return ForeignNameError(f"{what} has no argument {name!r}", hint=hint)


def foreign_attribute(thing: object, name: str) -> AttributeError:
    """Return the error for an attribute that a sandbox, or a part of it, does not have."""
    kind = type(thing).__name__
    part = kind.removeprefix("Async").lower()
    ours = PARTS.get(part, ATTRIBUTES).get(name)
    if ours is None:
        return AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=thing)
    return ForeignNameError(
        f"{part} has no {name!r}" if part in PARTS else f"a {kind} has no {name!r}", hint=f"use {ours}"
    )


class Kind(type):
    """The type of a class of sandboxes. A name that others give to a class method is refused with its own."""

    if not TYPE_CHECKING:  # a type checker must go on seeing which names there are

        def __getattr__(cls, name: str) -> Any:
            ours = CLASS_ATTRIBUTES.get(name)
            if ours is None:
                raise AttributeError(
                    f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls
                )
            raise ForeignNameError(f"{cls.__name__} has no {name!r}", hint=f"use {cls.__name__}.{ours}")


class Part:
    """A part of a sandbox. A name that others give to something in it is refused with its own."""

    if not TYPE_CHECKING:  # a type checker must go on seeing which names there are

        def __getattr__(self, name: str) -> Any:
            raise foreign_attribute(self, name)


def made_directly(kind: type) -> ForeignNameError:
    """Return the error for a sandbox that was not made by ``create`` or ``connect``."""
    name = kind.__name__
    return ForeignNameError(
        f"{name}() makes no sandbox",
        hint=f'{name}.create() makes one, {name}.connect("NAME") attaches to one',
    )


def _parameters(call: Callable[..., Any]) -> list[str]:
    return [name for name in signature(call).parameters if name not in ("self", "cls")]


def _nearest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
