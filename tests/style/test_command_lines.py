"""Every command line of atoll in the documentation and in errors is one that atoll takes: its own parser reads it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from atoll.cli.atoll import atoll as cli
from atoll.cli.failures import Failure
from atoll.mcp.__main__ import command as mcp
from atoll.server.__main__ import serve

ROOT = Path(__file__).parents[2]
# CHANGELOG.md tells of names that are gone
PAGES = sorted([*ROOT.glob("[RS]*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
# they hand all that follows to a program of their own
OWN_PROGRAMS: dict[str, click.Command] = {"mcp": mcp, "serve": serve}
# what stands for something in a line of the text, and something to stand there
EXAMPLES = {
    "ADDR": "127.0.0.1:80",
    "CODE": "x",
    "COMMAND": "ls",
    "DIR": ".",
    "HOST:PORT": "127.0.0.1:80",
    "LENGTH": "1h",
    "LOCAL_PORT": "8000",
    "MIB": "512",
    "N": "3",
    "POLICY": "packages",
    "PORT": "8000",
    "SIZE": "512",
    "VOLUME:/PATH": "data:/data",
}
_OPERATORS = set("();<>|&")
_HEREDOC = re.compile(r"<<-?'?(\w+)'?[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_NO_FILE = re.compile(r"No such file|does not exist|cannot be read")
_LACKS = re.compile(r"^Missing |requires an argument")


def lines_of(code: str) -> Iterator[str]:
    """The lines of shell code, with those joined that belong together."""
    begun = ""
    for line in _HEREDOC.sub("<<END", code).replace("\\\n", " ").splitlines():
        begun = f"{begun}\n{line}" if begun else line
        try:
            shlex.split(begun, comments=True)
        except ValueError:
            continue
        yield begun
        begun = ""
    assert not begun, begun


def commands_in(code: str) -> Iterator[list[str]]:
    """The arguments of each call of ``atoll`` in shell code."""
    for line in lines_of(code):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        file_follows = False
        for token in [*lexer, ";"]:
            if set(token) <= _OPERATORS:
                file_follows = token in ("<", ">", ">>", "<<")
                if not file_follows:
                    yield from _called(words)
                    words = []
            elif file_follows:
                file_follows = False
            else:
                words.append(token)


def _called(words: list[str]) -> Iterator[list[str]]:
    while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):  # variables of this call
        words = words[1:]
    if words and words[0] == "atoll":
        yield words[1:]


def parsed(command: click.Command, arguments: list[str], name: str, *, mentioned: bool = False) -> None:
    """Have a command parse its arguments, as far as it can without files, and nothing else.

    One that is only ``mentioned`` may lack arguments, and an option of it its value.
    """
    try:
        context = command.make_context(name, list(arguments))
    except click.exceptions.Exit:  # such as --help
        return
    except Failure as error:  # as with --json
        _judge(click.UsageError(error.message), mentioned=mentioned)
        return
    except click.UsageError as error:
        _judge(error, mentioned=mentioned)
        return
    rest = [*context._protected_args, *context.args] if isinstance(command, click.Group) else []
    if isinstance(command, click.Group) and rest:
        found, inner, rest = command.resolve_command(context, rest)
        assert inner is not None and found is not None
        inner = OWN_PROGRAMS.get(found, inner) if command is cli else inner
        parsed(inner, rest, f"{name} {found}", mentioned=mentioned)


def _judge(error: click.UsageError, *, mentioned: bool) -> None:
    said = error.format_message()
    if not _NO_FILE.search(said) and not (mentioned and _LACKS.search(said)):
        raise error


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}-{number}", code)
        for page in PAGES
        for number, code in enumerate(
            re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        )
        if "atoll" in code
    ]


def spans() -> list[tuple[str, str]]:
    """What stands between backquotes in a text. One with an ellipsis is no whole command line."""
    texts = (
        (page, re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)) for page in PAGES
    )
    return [
        (str(page.relative_to(ROOT)), " ".join(code.split()))
        for page, text in texts
        for code in re.findall(r"`(atoll [^`]+)`", text)
        if "…" not in code
    ]


@pytest.mark.parametrize(("place", "code"), blocks())
def test_a_command_line_in_a_block_is_taken(
    place: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands_in(code):
        try:
            parsed(cli, words, "atoll")
        except click.UsageError as error:
            raise AssertionError(f"{place}: atoll {shlex.join(words)}: {error.format_message()}") from error


def test_a_command_line_in_a_text_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for place, code in spans():
        for words in commands_in(code):
            try:
                parsed(cli, [EXAMPLES.get(word, word) for word in words], "atoll", mentioned=True)
            except click.UsageError as error:
                wrong.append(f"{place}: {code}: {error.format_message()}")
    assert "\n".join(wrong) == ""


def hints() -> Iterator[tuple[str, str]]:
    """The command lines that errors name. What is filled in is a word."""
    for path in sorted((ROOT / "src/atoll").rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            for given in (each.value for each in call.keywords if each.arg in ("hint", "remedy")):
                pieces = [given] if isinstance(given, ast.JoinedStr) else list(ast.walk(given))
                for text in map(_text_of, pieces):
                    yield from (
                        (str(path.relative_to(ROOT)), code) for code in re.findall(r"`(atoll [^`]+)`", text)
                    )


def _text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_a_command_line_in_an_error_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = sorted(set(hints()))
    assert len(found) > 30
    wrong = []
    for place, code in found:
        for words in commands_in(code):
            try:
                parsed(cli, [EXAMPLES.get(word, word) for word in words], "atoll", mentioned=True)
            except click.UsageError as error:
                wrong.append(f"{place}: {code}: {error.format_message()}")
    assert "\n".join(wrong) == ""
