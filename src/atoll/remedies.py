"""The remedies of errors in the words of the face that shows them: the SDK, the command line, MCP, E2B's API.

A hint is written once, as `code` that the command line or the SDK has. Each face shows it in words of its own: one
table has them all. What only the command line has is done by people, so a model and a client of a server are told
whose work it is.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Face = Literal["sdk", "cli", "mcp", "e2b"]


class Words(NamedTuple):
    """The same in the words of each face. None: this face has no word for it, and shows what was written.

    Args:
        cli: A command, or an option of the command that failed.
        sdk: Of ``import atoll``.
        mcp: A tool, or an argument of a tool.
        e2b: Of E2B's clients.
    """

    cli: str | None
    sdk: str
    mcp: str | None = None
    e2b: str | None = None


WORDS = (
    Words("atoll ls", "Sandbox.list()", "list_sandboxes", "Sandbox.list()"),
    Words("atoll snapshot ls", "Snapshots.list()", "snapshots", "Sandbox.list_snapshots()"),
    Words("atoll service ls", "sandbox.services.list()", "services"),
    Words("atoll image ls", "Images.list()"),
    Words("atoll key ls", "Keys.list()"),
    Words("atoll secret ls", "Secrets.list()"),
    Words("atoll team ls", "Teams.list()"),
    Words("atoll template ls", "Templates.list()"),
    Words("atoll volume ls", "Volumes.list()", None, "Volume.list()"),
    Words("atoll image delete", "Images.delete(…)"),
    Words("atoll key create", "Keys.create(…)"),
    Words("atoll kill", "sandbox.kill()", "kill_sandbox", "sandbox.kill()"),
    Words("atoll limits --disk", "sandbox.set_limits(Limits(disk_mib=…))"),
    Words("atoll limits --files", "sandbox.set_limits(Limits(files=…))"),
    Words("atoll limits --memory", "sandbox.set_limits(Limits(memory_mib=…))"),
    Words("atoll replug", "sandbox.replug()"),
    Words("atoll resume", "sandbox.resume()", None, "Sandbox.connect(…)"),
    Words("atoll rollback", "sandbox.rollback(…)", "rollback"),
    Words("atoll snapshot verify", "Snapshots.verify(…)"),
    Words("atoll stats", "sandbox.stats()", None, "sandbox.get_metrics()"),
    Words("atoll template install", "atoll.toolkits.install(…)"),
    Words("atoll volume create", "Volumes.create(…)", None, "Volume.create(…)"),
    Words("atoll volume set", "Volumes.set_quota(…)"),
    # options of the command that made the sandbox, and arguments of the call that did
    Words("--cpus", "limits=Limits(vcpus=…)", None, "cpu_count=… of the template's build"),
    Words("--lease", "lifecycle=Lifecycle(ttl_s=…)", None, "timeout=…"),
    Words("--memory", "limits=Limits(memory_mib=…)", None, "memory_mb=… of the template's build"),
    Words("--team default", 'hosting=Hosting(team="default")'),
    Words(
        "--template code-interpreter-v1", 'Template("code-interpreter-v1")', 'template="code-interpreter-v1"'
    ),
    Words("atoll port", "sandbox.ports.forward(…)", "url", "sandbox.get_host(…)"),
    Words("atoll cp", "sandbox.files.upload(…)", "write_file", "sandbox.files.write(…)"),
    Words("atoll attach --list", "sandbox.processes.list()", "processes", "sandbox.commands.list()"),
)
"""What each face calls the same thing, by what a hint may have between backquotes."""

UNRESPONSIVE_HINT = (
    "`atoll suspend --no-memory` ends it and keeps its disk, which its next use boots; or kill it"
)

_PEOPLE: dict[Face, str] = {"mcp": "for the user to do: ", "e2b": "for who runs the server: "}
_CODE = re.compile(r"`([^`]+)`")


def in_words_of(face: Face, hint: str) -> str:
    """Return a hint with each piece of code in the words of a face, as far as it has any."""
    left: list[str] = []

    def said(found: re.Match[str]) -> str:
        words = _words_of(found[1])
        ours: str | None = None if words is None else words._asdict()[face]
        if words is not None and ours is not None:
            return found[0] if face == "cli" and found[1] != words.sdk else f"`{ours}`"
        if found[1].startswith(("atoll ", "--")):
            left.append(found[1])
        return found[0]

    told = _CODE.sub(said, hint)
    return f"{_PEOPLE[face]}{told}" if left and face in _PEOPLE else told


def _words_of(code: str) -> Words | None:
    """Return the words for a piece of code: a command with arguments, or a whole expression."""
    fitting = [
        words for words in WORDS if code == words.sdk or (words.cli is not None and _fits(words.cli, code))
    ]
    return max(fitting, key=lambda words: len(words.cli or ""), default=None)


def _fits(words: str, code: str) -> bool:
    """Whether code is a command with its options, in any order and with any arguments."""
    wanted, given = words.split(), code.split()
    first = next((index for index, word in enumerate(wanted) if word.startswith("-") and index), len(wanted))
    return given[:first] == wanted[:first] and set(wanted[first:]) <= set(given)


def harmless(text: str, *, kept: str = "\n\t") -> str:
    """Return a text with the characters spelled out that a terminal would obey, but for those that are kept."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text)
