"""The command ``atoll`` itself: the names of all commands, each loaded only when it is used."""

from __future__ import annotations

import click

from atoll.cli.lazy import LazyGroup
from atoll.version import __version__

COMMANDS = {
    "attach": "Attach to a program that runs in a sandbox.",
    "completion": "Print the completion script of a shell.",
    "cp": "Copy files and directories in and out.",
    "create": "Create a sandbox and print its id.",
    "doctor": "Find what keeps sandboxes from running here.",
    "exec": "Run a program in a sandbox.",
    "fork": "Create running copies of a sandbox.",
    "gc": "Show and remove what a crash left behind.",
    "image": "List, build and delete images.",
    "info": "Show everything about one sandbox.",
    "key": "Create, list and revoke API keys.",
    "kill": "End sandboxes and erase them.",
    "limits": "Change what a sandbox may use.",
    "logs": "Show what a sandbox logged.",
    "ls": "List sandboxes.",
    "mcp": "Give a model computers of its own, by the Model Context Protocol.",
    "pause": "Freeze sandboxes in memory.",
    "policy": "Set what a sandbox may reach, test it, and see what was decided.",
    "port": "Forward a port of this machine to a sandbox.",
    "replug": "Give unplugged sandboxes their network back.",
    "resume": "Wake paused or suspended sandboxes.",
    "rollback": "Roll a sandbox back to a snapshot.",
    "run": "Run a program in a new sandbox, then kill it.",
    "secret": "Create, list, update and delete secrets.",
    "serve": "Serve the E2B API to other programs and machines.",
    "shell": "Open a terminal in a sandbox.",
    "snapshot": "Create, list and delete snapshots.",
    "stats": "Show what sandboxes use.",
    "stop": "Suspend everything and stop the supervisor.",
    "suspend": "Put sandboxes to sleep on disk.",
    "team": "Create, change and delete teams and their quotas.",
    "timeout": "Set how long a sandbox may run.",
    "template": "Build, list and delete templates.",
    "unplug": "Cut sandboxes off and freeze them.",
    "volume": "Create, list and delete volumes.",
}


@click.group(
    cls=LazyGroup,
    package="atoll.cli.commands",
    commands_and_help=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="atoll", message="%(prog)s %(version)s")
def atoll() -> None:
    r"""Whole computers that remember, for AI agents.

    \b
    Try:
      atoll run -- python3 -c 'print("hello from inside")'
      atoll create --name work
      atoll shell work

    With --json, every command prints its result as JSON. A program's own exit code is passed through. Exit
    code 125 means that atoll itself failed; standard error says why.
    """
