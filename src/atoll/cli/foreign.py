"""Commands and options of other tools, with atoll's word for each: one table, and the errors that use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import click

_COPY = "`atoll cp` copies files and directories in and out"
_KILL = "`atoll kill NAME` ends a sandbox and erases it"
_SEARCH = "`atoll exec NAME rg TEXT` searches files in a sandbox"
_SHELL = "`atoll shell NAME` opens a terminal"
COMMANDS: Mapping[str, str] = {
    "bash": _SHELL,
    "branch": "`atoll fork NAME` makes a running copy",
    "browse": "`atoll open NAME` opens a web server that runs in a sandbox",
    "build": "`atoll template build DIR` builds a Dockerfile, `atoll image build` the image base",
    "checkpoint": "`atoll snapshot create NAME` stores its memory and disk",
    "clone": "`atoll fork NAME` makes a running copy",
    "code": "`atoll template install code-interpreter-v1`, then `sandbox.code.run(…)` in Python, or `atoll mcp`",
    "commit": "`atoll snapshot create NAME` stores its memory and disk",
    "connect": _SHELL,
    "delete": _KILL,
    "destroy": _KILL,
    "down": "`atoll suspend NAME` puts one to sleep, `atoll stop` all of them",
    "download": _COPY,
    "extend": "`atoll lease NAME LENGTH` sets how long it may run",
    "find": _SEARCH,
    "forward": "`atoll port NAME PORT` forwards a port",
    "git": "`atoll exec NAME git …` runs git in a sandbox",
    "grep": _SEARCH,
    "health": "`atoll doctor` checks this machine",
    "help": "`atoll --help`, `atoll COMMAND --help`, and `atoll docs`",
    "hibernate": "`atoll suspend NAME` puts it to sleep on disk",
    "guide": "`atoll docs` shows the documentation",
    "images": "`atoll image ls` lists images",
    "inspect": "`atoll info NAME` shows everything about a sandbox",
    "keys": "`atoll key ls` lists keys",
    "launch": "`atoll create` makes a sandbox",
    "list": "`atoll ls` lists sandboxes",
    "man": "`atoll docs` shows the documentation",
    "merge": "`atoll promote NAME FORK` continues a sandbox from a fork's state",
    "new": "`atoll create` makes a sandbox",
    "ports": "`atoll port NAME PORT` forwards a port",
    "proxy": "`atoll port NAME PORT` forwards a port",
    "prune": "`atoll gc` shows what a crash left behind",
    "ps": "`atoll ls` lists sandboxes, `atoll attach --list NAME` the programs in one",
    "pull": "`atoll image pull REFERENCE` pulls an image",
    "remove": _KILL,
    "restart": "`atoll suspend --no-memory NAME` ends its processes; its next use boots it",
    "restore": "`atoll rollback NAME SNAPSHOT`, or `atoll create --from-snapshot SNAPSHOT`",
    "rm": _KILL,
    "rmi": "`atoll image delete NAME` deletes an image",
    "secrets": "`atoll secret ls` lists secrets",
    "services": "`atoll service ls` lists what a sandbox keeps running",
    "sh": _SHELL,
    "sleep": "`atoll suspend NAME` puts it to sleep on disk",
    "snapshots": "`atoll snapshot ls` lists snapshots",
    "spawn": "`atoll create` makes a sandbox",
    "ssh": _SHELL,
    "start": "`atoll resume NAME` wakes a sandbox, `atoll create` makes one",
    "status": "`atoll ls` lists sandboxes, `atoll info NAME` shows one",
    "teams": "`atoll team ls` lists teams",
    "templates": "`atoll template ls` lists templates",
    "terminate": _KILL,
    "timeout": "`atoll lease NAME LENGTH` sets how long it may run",
    "unpause": "`atoll resume NAME` wakes it",
    "up": "`atoll create` makes a sandbox",
    "version": "`atoll --version`",
    "search": _SEARCH,
    "upload": _COPY,
    "volumes": "`atoll volume ls` lists volumes",
    "wake": "`atoll resume NAME` wakes it; any use does that too",
}
"""The names that other tools give to commands, and what to type instead."""

_INPUT = "standard input is passed on anyway; for a terminal, give -t"
_DOCKERFILE = (
    "`atoll template build -f FILE --name NAME DIR` builds a Dockerfile, then give --template NAME; the file of a "
    "policy is --network FILE"
)
_LEASE = "the lease of a sandbox is --lease"
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "create": {
        "--cpu": "give --cpus",
        "--detach": "a sandbox from `atoll create` stays",
        "--dockerfile": _DOCKERFILE,
        "--file": _DOCKERFILE,
        "--label": "give --metadata KEY=VALUE",
        "--on-timeout": "give --on-lease-end",
        "--publish": "`atoll port NAME PORT` forwards a port",
        "--timeout": _LEASE,
        "--ttl": _LEASE,
        "--wake-timeout": "give --wake-lease",
        "-d": "a sandbox from `atoll create` stays",
        "-f": _DOCKERFILE,
        "-i": "`atoll shell NAME` opens a terminal in it",
        "-m": "give --memory",
        "-p": "`atoll port NAME PORT` forwards a port",
        "-t": "`atoll shell NAME` opens a terminal in it",
        "-v": "give --volume NAME:/PATH",
    },
    "exec": {
        "--detach": "give `sh -c 'PROGRAM &'`; its output is lost",
        "--interactive": _INPUT,
        "--tty": "give -t",
        "--workdir": "give --cwd",
        "-d": "give `sh -c 'PROGRAM &'`; its output is lost",
        "-i": _INPUT,
        "-u": "give --user",
        "-w": "give --cwd",
    },
    "kill": {"--force": "`atoll kill` always ends it", "-f": "`atoll kill` always ends it"},
    "ls": {"--all": "it lists all sandboxes, asleep or not", "-a": "it lists all sandboxes, asleep or not"},
    "port": {"--local": "give the port on this machine after the sandbox's: `atoll port NAME 80 8000`"},
    "resume": {"--timeout": _LEASE},
    "run": {
        "--detach": "--keep leaves the sandbox, and `atoll attach` shows what runs in it",
        "--dockerfile": _DOCKERFILE,
        "--file": _DOCKERFILE,
        "--interactive": _INPUT,
        "--publish": "`atoll port NAME PORT` forwards a port of a sandbox that stays (--keep)",
        "--rm": "the sandbox is killed at the end unless --keep is given",
        "--tty": "give -t",
        "--ttl": _LEASE,
        "--workdir": "give --cwd",
        "-d": "--keep leaves the sandbox, and `atoll attach` shows what runs in it",
        "-f": _DOCKERFILE,
        "-i": _INPUT,
        "-m": "give --memory",
        "-p": "`atoll port NAME PORT` forwards a port of a sandbox that stays (--keep)",
        "-u": "give --user",
        "-v": "give --volume NAME:/PATH",
        "-w": "give --cwd",
    },
    "team create": {"--timeout": "the longest lease is --lease"},
    "team set": {"--timeout": "the longest lease is --lease"},
}
"""By command: the names that other tools give to options, and what to give instead."""

EXTRA: Mapping[str, str] = {
    "create": "give the name with --name, the image with --image; `atoll run` runs a program",
    "fork": "give the number of copies with -n",
    "ls": "`atoll info NAME` shows one sandbox",
    "shell": "`atoll exec NAME PROGRAM` runs a program",
    "snapshot create": "give the snapshot's name with --name",
    "stop": "`atoll suspend NAME` puts one sandbox to sleep, `atoll kill NAME` ends it",
    "template build": "give the template's name with --name",
}
"""By command: what to give instead of an argument that the command does not take."""

MISSING: Mapping[str, str] = {
    "run": "give a program, such as `atoll run sh`; `atoll create --start` runs the image's own",
}
"""By command: what to give if an argument is missing."""

_UNEXPECTED = "Got unexpected extra argument"


def foreign_command(name: str, known: Iterable[str]) -> str:
    """Return the error text for a command that atoll does not have."""
    close = get_close_matches(name, list(known), 1)
    ours = COMMANDS.get(name) or (f"did you mean `atoll {close[0]}`?" if close else None)
    return f"no such command {name!r}{f': {ours}' if ours else ''}"


def in_our_words(error: click.UsageError, command: str) -> click.UsageError:
    """Return an error with atoll's own word for the given one, if there is one.

    Args:
        error: What click says.
        command: The command's path without ``atoll``, like ``image ls``.
    """
    ours = None
    if isinstance(error, click.NoSuchOption):
        ours = OPTIONS.get(command, {}).get(error.option_name)
    elif error.message.startswith(_UNEXPECTED):
        ours = EXTRA.get(command)
    elif isinstance(error, click.MissingParameter):
        ours = MISSING.get(command)
    if ours is None:
        return error
    said = error.format_message() if isinstance(error, click.MissingParameter) else error.message
    return click.UsageError(f"{said.rstrip('.')}: {ours}", error.ctx)
