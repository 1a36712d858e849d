"""The tools of `atoll.tools` on real sandboxes, sync and async."""

from __future__ import annotations

import base64
import re
import urllib.request
from pathlib import Path

import anyio
import pytest
from tests.waiting import until

from atoll import AsyncSandbox, Sandbox
from atoll.errors import InvalidSpecError, SandboxNotFoundError
from atoll.tools import Tools, for_sandbox

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def said(tools: Tools, tool: str, /, **arguments: object) -> str:
    """What a tool answers; an error fails the test."""
    result = tools.call(tool, arguments)
    assert not result.is_error, result.text
    return result.text


def test_a_model_works_through_the_tools_and_reads_what_went_wrong(module_home: Path) -> None:
    with Sandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        assert said(tools, "run", command="echo out; exit 3") == "exit code: 3\nstdout:\nout\n"
        said(tools, "write_file", path="tide/one.py", content="a = 1\n")
        said(tools, "edit_file", path="tide/one.py", old="1", new="2")
        assert said(tools, "read_file", path="tide/one.py") == "a = 2\n"
        assert said(tools, "find_files", pattern="**/*.py").endswith("one.py")
        assert said(tools, "search_files", pattern="a = ").endswith("one.py:1:a = 2")
        said(tools, "snapshot", name="tools-before")
        said(tools, "run", command="rm -r tide")
        missing = tools.call("read_file", {"path": "tide/one.py"})
        assert missing.is_error
        assert "[file_missing]" in missing.text
        said(tools, "rollback", snapshot="tools-before")
        assert "one.py" in said(tools, "list_files", path="tide")
        assert "it takes a JSON object of command" in tools.call("run", "{}").text
        assert "there is no tool dance: call one of run," in tools.call("dance", {}).text
        sandbox.files.write("dot.png", PNG)
        [picture] = tools.call("read_file", {"path": "dot.png"}).pictures
        assert (picture.data, picture.media_type) == (PNG, "image/png")


def test_ways_are_tried_in_forks_and_the_sandbox_goes_on_from_the_winner(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        with for_sandbox(sandbox) as tools:
            answer = said(tools, "try_in_forks", commands=["echo 1 > way", "echo 2 > way; exit 4"])
            first, second = re.findall(r"^## (\w{20}):", answer, re.MULTILINE)
            assert "exit code: 4" in answer
            assert "is no copy" in tools.call("keep_fork", {"winner": "nobody"}).text
            kept = said(tools, "keep_fork", winner=second)
            assert said(tools, "read_file", path="way") == "2\n"
            for copy in (first, second):
                with pytest.raises(SandboxNotFoundError):
                    Sandbox.get(copy)
            said(tools, "try_in_forks", commands=["true"])
        assert [info.sandbox_id for info in Sandbox.list()] == [sandbox.id]
        before = re.findall(r"`rollback` to (\w+)", kept)[0]
        sandbox.rollback(before)
        assert not sandbox.files.exists("way")


def test_async_tools_are_awaited_and_reach_what_runs_in_the_background(module_home: Path) -> None:
    async def work() -> None:
        async with await AsyncSandbox.create() as sandbox, for_sandbox(sandbox) as tools:
            await tools.call("write_file", {"path": "site/index.html", "content": "from inside"})
            started = await tools.call("start", {"command": "exec python3 -m http.server 8123 -d site"})
            dial = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8123))\""
            await tools["run"].call({"command": f"until {dial}; do sleep 0.1; done"})
            address = (await tools.call("url", '{"port": 8123}')).text

            def read() -> str:
                with urllib.request.urlopen(address, timeout=60) as answer:
                    return str(answer.read().decode())

            assert await anyio.to_thread.run_sync(read) == "from inside"
            pid = int(re.findall(r"\d+", started.text)[0])
            assert (await tools.call("output", {"pid": pid})).text.startswith("still running")
            await tools.call("stop", {"pid": pid})
            tried = await tools.call("try_in_forks", {"commands": ["echo one", "echo two"]})
            assert "one" in tried.text
            assert "two" in tried.text

    anyio.run(work)


def test_a_model_keeps_a_server_running_and_reads_why_another_ended(module_home: Path) -> None:
    with Sandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        serve = "echo begun; exec python3 -m http.server 8123"
        added = said(tools, "add_service", name="web", command=serve, port=8123, wait_s=240)
        assert added.endswith("port 8123 takes connections")
        assert said(tools, "service_logs", name="web").startswith("begun")
        said(tools, "add_service", name="bad", command="echo why; exit 3", restart="never")
        until(lambda: "ended, exit code 3" in said(tools, "services"))
        assert said(tools, "service_logs", name="bad") == "why"
        broken = said(tools, "add_service", name="mute", command="exec sleep 1000", port=9, wait_s=0)
        assert "nothing listens on port 9 yet: running with pid" in broken
        assert said(tools, "change_service", name="web", action="stop") == "web: stopped"
        assert said(tools, "change_service", name="bad", action="remove") == "removed bad"
        assert [line.split()[0] for line in said(tools, "services").splitlines()] == ["web", "mute"]
        said(tools, "add_service", name="loud", command="exec yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")
        until(lambda: "are left out" in said(tools, "service_logs", name="loud", lines=10_000))
        unknown = tools.call("service_logs", {"name": "gone"})
        assert unknown.is_error and "[service_not_found]" in unknown.text


def test_a_model_gets_only_the_tools_that_it_may_have(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        tools = for_sandbox(sandbox, only=["run", "read_file"], without=["read_file"])
        assert [tool.name for tool in tools] == ["run"]
        [shown] = tools.as_anthropic()
        assert shown["input_schema"]["required"] == ["command"]
        assert tools.as_openai("chat")[0]["function"]["name"] == "run"
        assert tools.as_openai()[0]["strict"] is False
        with pytest.raises(InvalidSpecError, match="there is no tool dance"):
            for_sandbox(sandbox, only=["dance"])
