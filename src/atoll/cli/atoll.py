"""The command ``atoll`` itself: the names of all commands, each loaded only when it is used."""

from __future__ import annotations

import click

from atoll.cli.lazy_commands import LazyGroup
from atoll.version import __version__

SECTIONS = {
    "Run programs": {
        "run": "Run a program in a new sandbox, then kill it.",
        "exec": "Run a program in a sandbox.",
        "shell": "Open a terminal in a sandbox.",
        "attach": "Attach to a program that runs in a sandbox.",
        "cp": "Copy files and directories in and out.",
        "port": "Forward a port of this machine to a sandbox.",
        "open": "Open a web server that runs in a sandbox.",
        "url": "Print the address of a port at the running server.",
    },
    "Sandboxes": {
        "create": "Create a sandbox and print its id.",
        "ls": "List sandboxes.",
        "info": "Show everything about one sandbox.",
        "service": "Add, list, stop and remove programs that a sandbox keeps running.",
        "logs": "Show the log of a sandbox.",
        "stats": "Show what sandboxes use.",
        "top": "Show what all sandboxes use, every two seconds.",
        "limits": "Change what a sandbox may use.",
        "keep-awake": "Keep an idle sandbox awake for a while.",
        "lease": "Set how long a sandbox may run.",
        "kill": "End sandboxes and erase them.",
    },
    "Sleep, copies and going back": {
        "pause": "Freeze sandboxes in memory.",
        "suspend": "Put sandboxes to sleep on disk.",
        "resume": "Wake paused or suspended sandboxes.",
        "fork": "Create running copies of a sandbox.",
        "snapshot": "Create, list and delete snapshots.",
        "diff": "Show which files of two sandboxes differ.",
        "promote": "Continue a sandbox from a fork's state.",
        "rollback": "Roll a sandbox back to a snapshot.",
        "eval": "Compare strategies, each in a fork of one state.",
    },
    "Network and secrets": {
        "policy": "Set and test what a sandbox may reach, and show the decisions.",
        "powers": "Show what a sandbox could do at worst.",
        "asks": "Show which acts of sandboxes wait for an answer.",
        "approve": "Let an act go on that waits for an answer.",
        "deny": "Refuse an act that waits for an answer.",
        "alerts": "Show what a person may want to know at once.",
        "secret": "Create, list, update and delete secrets.",
        "models": "Offer models to sandboxes, and show what they have used and what it cost.",
        "unplug": "Cut sandboxes off and freeze them.",
        "replug": "Give unplugged sandboxes their network back.",
    },
    "Images, templates and volumes": {
        "image": "List, build and delete images.",
        "template": "Build, list and delete templates.",
        "volume": "Create, change, list and delete volumes.",
    },
    "For other programs and people": {
        "mcp": "Give a model computers of its own, by the Model Context Protocol.",
        "serve": "Serve the E2B API to other programs and machines.",
        "login": "Use the sandboxes of a server.",
        "logout": "Use the sandboxes of this machine again.",
        "team": "Create, change and delete teams and their quotas.",
        "key": "Create, list and revoke API keys.",
    },
    "This machine": {
        "audit": "Show who did what, and check the log.",
        "doctor": "Find what keeps sandboxes from running here.",
        "du": "Show how much disk everything uses.",
        "gc": "Show and remove what a crash left behind.",
        "upgrade": "Show which sandboxes and snapshots need another engine.",
        "fsck": "Check everything that is stored, and repair it.",
        "drain": "Suspend all sandboxes before a reboot.",
        "undrain": "After a reboot, wake the sandboxes that ran before.",
        "stop": "Suspend everything and stop the supervisor.",
        "docs": "Show a page of the documentation, or list them.",
        "completion": "Print the completion script of a shell.",
    },
}
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}
GREETING = f"""atoll {__version__}: whole computers that remember, for AI agents.

  atoll doctor                             find what keeps sandboxes from running here
  atoll run -- python3 -c 'print(6 * 7)'   run a program in a new sandbox
  atoll create --name work                 make one that stays; `atoll shell work` opens it

`atoll --help` lists all commands, `atoll COMMAND --help` shows examples, and `atoll docs` shows the guide."""


@click.group(
    cls=LazyGroup,
    package="atoll.cli.commands",
    sections=SECTIONS,
    greeting=GREETING,
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
    code 125 means that atoll itself failed; standard error says why. `atoll docs` shows the documentation.
    """
