"""``atoll attach``."""

from __future__ import annotations

import time
from functools import partial

import click

from atoll import Sandbox
from atoll.cli.detach_keys import DEFAULT_KEYS, DetachKeys, DetachKeysOption
from atoll.cli.lazy_commands import Command
from atoll.cli.options import json_option, sandbox_argument
from atoll.cli.output import note, show_json
from atoll.cli.programs import follow, write
from atoll.cli.reattach import reattach_hint
from atoll.cli.sandboxes import held
from atoll.cli.terminal import attached
from atoll.cli.text import age, table
from atoll.errors import InvalidSpecError, ProcessNotFoundError, ServiceNotFoundError
from atoll.exit_codes import ExitCode
from atoll.types import ProcessInfo, ServiceInfo

_COMMAND_CHARS = 100


class ProgramOrService(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """A pid, or the name of a service."""

    name = "program"

    def convert(self, value: object, _param: click.Parameter | None, _ctx: click.Context | None) -> int | str:
        """Return the pid as a number. All else is a name."""
        text = str(value)
        if not text.isdecimal():
            return text
        if not int(text):
            self.fail("0 is not a pid")
        return int(text)


@click.command(name="attach", cls=Command)
@sandbox_argument
@click.argument("program", metavar="[PID|SERVICE]", required=False, type=ProgramOrService())
@click.option("-l", "--list", "list_only", is_flag=True, help="List the running programs and do not attach.")
@click.option("--no-stdin", is_flag=True, help="Only watch: send the program no keys and no input.")
@click.option(
    "--detach-keys",
    "keys",
    metavar="KEYS",
    type=DetachKeysOption(),
    default=DEFAULT_KEYS,
    show_default=True,
    help="Keys that detach and leave the program running, like ctrl-] or ctrl-a,d; none for no keys.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    sandbox: str,
    program: int | str | None,
    list_only: bool,
    no_stdin: bool,
    keys: bytes,
    as_json: bool,
) -> None:
    r"""Attach to a service, or to a running program that shell, exec, the SDK or an E2B client started.

    Without PID, this attaches to the only program with a terminal. If there are several, or none, it lists
    the running programs. A sleeping sandbox wakes. The program's recent output is shown first, and its exit
    code is passed on.

    On a terminal, every key goes to the program, including Ctrl-C and Ctrl-D. Ctrl-P Ctrl-Q detaches and
    leaves the program running. Without a terminal, Ctrl-C detaches and leaves it running; Ctrl-D ends its
    standard input, if that is open.

    A service is only watched, in all of its runs, until it is removed. Ctrl-C detaches and leaves it running.

    \b
    Example:
      atoll attach work
      atoll attach --list work
      atoll attach work 12
      atoll attach work web
    """
    with held(sandbox) as target:
        programs = target.processes.list()
        if isinstance(program, str) and not as_json:
            ctx.exit(watch_service(target, sandbox, program))
        pid = _service(target, sandbox, program).pid if isinstance(program, str) else program
        if as_json or (list_only and pid is None):
            if as_json:
                show_json(programs if pid is None else [one for one in programs if one.pid == pid])
            else:
                click.echo(_listed(programs))
            return
        chosen = _chosen(sandbox, programs) if pid is None else pid
        has_terminal = any(one.pid == chosen and one.pty for one in programs)
        ctx.exit(_attach(target, sandbox, chosen, DetachKeys(keys), watch_only=no_stdin, pty=has_terminal))


def watch_service(target: Sandbox, ref: str, name: str) -> int:
    """Show the last output of a service and what follows. Return the exit code of its end, if it has ended."""
    info = _service(target, ref, name)
    follows = info.state not in ("stopped", "ended")
    try:
        with reattach_hint(target, name):
            for output in target.services.logs(name, follow=follows):
                write(2 if output.stream == "stderr" else 1, output.data)
    except KeyboardInterrupt:
        note(
            f"\ndetached from service {name}, which is kept running: "
            f"`atoll attach {ref} {name}` attaches to it again"
        )
        raise
    if follows:
        note(f"service {name} was removed")
        return ExitCode.DONE
    note(f"service {name} has {info.state}: `atoll service start {ref} {name}` starts it")
    return info.exit_code or ExitCode.DONE


def _service(target: Sandbox, ref: str, name: str) -> ServiceInfo:
    try:
        return target.services.get(name)
    except ServiceNotFoundError as error:
        error.remedy = (
            f"`atoll service ls {ref}` lists the services, and `atoll attach --list {ref}` the programs"
        )
        raise


def _attach(target: Sandbox, ref: str, pid: int, keys: DetachKeys, *, watch_only: bool, pty: bool) -> int:
    show = partial(attached, keys=keys) if pty else follow
    try:
        code = show(target, pid, watch_only=watch_only)
    except ProcessNotFoundError as error:
        error.remedy = f"`atoll attach --list {ref}` shows the running programs"
        raise
    except KeyboardInterrupt:
        note(_left(ref, pid) if pty else f"\n{_left(ref, pid)}")
        raise
    if code is None:
        note(_left(ref, pid))
    return code or 0


def _left(ref: str, pid: int) -> str:
    return (
        f"detached from program {pid}, which keeps running: `atoll attach {ref} {pid}` attaches to it again"
    )


def _chosen(ref: str, programs: list[ProcessInfo]) -> int:
    """Return the only program with a terminal. If there are none or several, show all programs.

    Raises:
        ProcessNotFoundError: No program runs.
        InvalidSpecError: The choice is not clear.
    """
    terminals = [one.pid for one in programs if one.pty]
    if len(terminals) == 1:
        return terminals[0]
    if not programs:
        raise ProcessNotFoundError(
            f"no program that was started through atoll runs in sandbox {ref}",
            hint=f"`atoll shell {ref}` opens a terminal",
        )
    click.echo(_listed(programs))
    count = f"{len(terminals)} programs have a terminal" if terminals else "no program has a terminal"
    raise InvalidSpecError(f"{count} in sandbox {ref}", hint=f"name one by its pid: atoll attach {ref} PID")


def _listed(programs: list[ProcessInfo]) -> str:
    now_s = time.time()
    rows = [
        [
            str(one.pid),
            "yes" if one.pty else "-",
            age(one.started_at, now_s) if one.started_at else "-",
            one.user,
            _line(one.argv),
        ]
        for one in programs
    ]
    return table(["PID", "TERMINAL", "SINCE", "USER", "COMMAND"], rows)


def _line(argv: list[str]) -> str:
    """Describe a program in one line. For a shell with a line, show only the line."""
    text = argv[2] if len(argv) == 3 and argv[1] == "-c" else " ".join(argv)
    return text if len(text) <= _COMMAND_CHARS else f"{text[:_COMMAND_CHARS]}..."
