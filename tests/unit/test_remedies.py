"""Remedies in the words of the face that shows them: each word is one that the face has."""

from __future__ import annotations

import re
from typing import Any, get_args

import anyio
import click
import e2b
import pytest

import atoll
from atoll.cli.atoll import atoll as cli
from atoll.errors import AtollError, QuotaError, SandboxNotFoundError
from atoll.mcp.defaults import Defaults
from atoll.mcp.server import make_server
from atoll.mcp.workplace import Workplace
from atoll.protocol import error_body, error_of
from atoll.remedies import WORDS, Face, in_words_of

HINT = "`atoll ls` lists them"


def tools() -> set[str]:
    async def listed() -> set[str]:
        server = make_server(Workplace(Defaults(tools="all")))
        return {tool.name for tool in await server.list_tools()}

    return anyio.run(listed)


def attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


def options_of(command: str) -> set[str]:
    found: click.Command = cli
    for name in command.split():
        assert isinstance(found, click.Group), command
        inner = found.get_command(click.Context(found), name)
        assert inner is not None, command
        found = inner
    return {option for each in found.params for option in each.opts}


@pytest.mark.parametrize(
    ("face", "said"),
    [
        ("sdk", "`Sandbox.list()` lists them"),
        ("cli", HINT),
        ("mcp", "`list_sandboxes` lists them"),
        ("e2b", "`Sandbox.list()` lists them"),
    ],
)
def test_each_face_has_its_own_words(face: Face, said: str) -> None:
    error = SandboxNotFoundError("there is no sandbox x", hint=HINT)
    assert error.hint_for(face) == said
    assert error.told_to(face) == f"there is no sandbox x ({said})"


def test_what_python_shows_is_in_words_of_the_sdk() -> None:
    error = SandboxNotFoundError("there is no sandbox x", hint=HINT)
    assert error.hint == "`Sandbox.list()` lists them"
    assert str(error) == "there is no sandbox x (`Sandbox.list()` lists them)"


def test_a_remedy_travels_as_it_was_written_so_that_each_face_can_word_it() -> None:
    body = error_body(SandboxNotFoundError("there is no sandbox x", hint=HINT))
    assert body.hint == HINT
    assert error_of(body).hint_for("mcp") == "`list_sandboxes` lists them"


@pytest.mark.parametrize(
    ("face", "said"),
    [
        ("sdk", "run `atoll doctor`"),
        ("cli", "run `atoll doctor`"),
        ("mcp", "for the user to do: run `atoll doctor`"),
        ("e2b", "for who runs the server: run `atoll doctor`"),
    ],
)
def test_what_only_people_can_do_is_said_to_be_theirs(face: Face, said: str) -> None:
    assert in_words_of(face, "run `atoll doctor`") == said


def test_a_command_may_have_arguments_and_options_in_any_order() -> None:
    hint = "raise it with `atoll limits work --disk SIZE`, or `atoll kill work` it"
    assert in_words_of("cli", hint) == hint
    said = "raise it with `sandbox.set_limits(Limits(disk_mib=…))`, or `sandbox.kill()` it"
    assert in_words_of("sdk", hint) == said
    assert in_words_of("cli", said).startswith("raise it with `atoll limits --disk`")


def test_a_quotas_refusal_names_what_makes_it_less() -> None:
    error = QuotaError("too much", hint="give this one less: `--memory`")
    assert error.hint_for("cli") == "give this one less: `--memory`"
    assert error.hint == "give this one less: `limits=Limits(memory_mib=…)`"


def test_other_code_and_no_hint_are_left_as_they_are() -> None:
    for face in get_args(Face):
        assert in_words_of(face, "use `exec`, not `atollx ls`") == "use `exec`, not `atollx ls`"
        assert AtollError("x").hint_for(face) is None


def test_each_word_is_one_that_its_face_has() -> None:
    known = tools()
    for words in WORDS:
        if words.cli is not None and words.cli.startswith("atoll "):
            command = words.cli.removeprefix("atoll ")
            path, *options = re.split(r" (?=--)", command)
            assert set(options) <= options_of(path), words.cli
        elif words.cli is not None:
            assert words.cli.split()[0] in options_of("create"), words.cli
        call = re.fullmatch(r"([\w.]+)\(.*\)", words.sdk)
        if call is not None:
            place = call[1].removeprefix("sandbox.").removeprefix("atoll.")
            owner: Any = atoll.Sandbox if call[1].startswith("sandbox.") else atoll
            if call[1].startswith("atoll.toolkits."):
                pass
            if place.partition(".")[0] not in ("services", "files", "processes", "ports"):
                assert attribute(owner, place) is not None, words.sdk
        assert words.mcp is None or words.mcp.partition("=")[0] in {*known, "template"}, words.mcp
        theirs = re.fullmatch(r"(\w+)\.(\w+)\(.*\)", words.e2b or "")
        if theirs is not None:
            place = theirs[1][:1].upper() + theirs[1][1:]
            assert hasattr(getattr(e2b, place), theirs[2]), words.e2b
