"""Many at once: commands over one client, files in one call, sandboxes on one host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from atoll import Sandbox

AT_ONCE = 8
COMMANDS = 200
FILES = 1000
SANDBOXES = 40


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def test_eight_threads_share_a_client_and_each_command_gets_its_own_answer(sandbox: Sandbox) -> None:
    def say(number: int) -> str:
        return sandbox.exec(["echo", str(number)]).check().stdout

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert list(pool.map(say, range(COMMANDS))) == [f"{number}\n" for number in range(COMMANDS)]


def test_a_thousand_small_files_are_the_same_after_both_ways(sandbox: Sandbox, tmp_path: Path) -> None:
    files = {f"room{number % 20}/file{number}": os.urandom(number) for number in range(FILES)}
    for name, content in files.items():
        path = tmp_path / "there" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sandbox.files.upload(tmp_path / "there", "many")
    sandbox.files.download("many", tmp_path / "back")
    back = {
        str(path.relative_to(tmp_path / "back")): path.read_bytes()
        for path in (tmp_path / "back").rglob("*")
        if path.is_file()
    }
    assert back == files


def test_forty_sandboxes_run_at_once_and_every_one_answers_as_itself(home: Path) -> None:
    with ExitStack() as ends, ThreadPoolExecutor(AT_ONCE) as pool:
        sandboxes = [ends.enter_context(Sandbox.create()) for _ in range(SANDBOXES)]
        said = list(pool.map(lambda sandbox: sandbox.exec(["hostname"]).check().stdout.strip(), sandboxes))
        assert said == [sandbox.id for sandbox in sandboxes]
