"""The tools of `atoll mcp`, used by the real client of the protocol's own SDK."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ImageContent, TextContent, TextResourceContents

from atoll import Sandbox
from atoll.errors import SandboxNotFoundError

pytestmark = pytest.mark.anyio
ARGUMENTS = ["-P", "-m", "atoll.mcp", "--tools", "all"]
ANSWER_S = 240
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(module_home: Path) -> AsyncIterator[Client]:
    """A client of a server on standard input and output, for all tests of the file."""
    environment = {**os.environ, "ATOLL_HOME": str(module_home)}
    server = StdioServerParameters(command=sys.executable, args=ARGUMENTS, env=environment)
    async with Client(stdio_client(server), read_timeout_seconds=ANSWER_S) as connected:
        yield connected


async def text(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool answers; an error fails the test."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def error(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool says when it fails."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_every_tool_says_what_it_does_and_what_its_arguments_mean(client: Client) -> None:
    tools = (await client.list_tools()).tools
    assert {"run", "snapshot", "rollback", "try_in_forks", "read_file"} <= {tool.name for tool in tools}
    for tool in tools:
        assert tool.description
        assert tool.annotations is not None
        properties = tool.input_schema.get("properties", {})
        assert properties.keys() - {name for name, each in properties.items() if "description" in each} <= {
            "method"
        }


async def test_a_command_answers_with_code_and_streams_and_files_stay(client: Client) -> None:
    assert await text(client, "run", command="echo out; echo err >&2; exit 3") == (
        "exit code: 3\nstdout:\nout\nstderr:\nerr\n"
    )
    await text(client, "write_file", path="deep/note.txt", content="one\ntwo\nthree\n")
    assert await text(client, "read_file", path="deep/note.txt", first_line=2, lines=1) == (
        "two\n\n[lines 2 to 2 of 3]"
    )
    assert "note.txt" in await text(client, "list_files", path="deep")
    assert "file_missing" in await error(client, "read_file", path="nowhere")


async def test_a_file_is_edited_where_its_text_is_and_found_by_what_is_in_it(client: Client) -> None:
    await text(client, "write_file", path="tide/one.py", content="a = 1\nb = 1\n")
    await text(client, "write_file", path="tide/two.txt", content="b = 2\n")
    await text(client, "edit_file", path="tide/one.py", old="b = 1", new="b = 3")
    assert "edit_failed" in await error(client, "edit_file", path="tide/one.py", old="= ", new="")
    found = await text(client, "search_files", pattern=r"^b = \d", path="tide", glob=["*.py"])
    assert found.endswith("one.py:2:b = 3")
    assert await text(client, "search_files", pattern="nowhere", path="tide") == "no match"


async def test_a_long_output_keeps_both_ends(client: Client) -> None:
    answer = await text(client, "run", command="echo begin; seq 100000; echo end")
    assert len(answer) < 40_000
    assert "begin" in answer
    assert answer.rstrip().endswith("end")
    assert "are left out" in answer


async def test_a_command_that_takes_too_long_is_killed_and_its_output_is_told(client: Client) -> None:
    answer = await text(client, "run", command="echo begun; exec sleep 1000000", timeout_s=5)
    assert "killed after 5 s" in answer
    assert "begun" in answer


async def test_a_picture_is_returned_as_a_picture(client: Client) -> None:
    encoded = base64.b64encode(PNG).decode()
    await text(client, "run", command=f"echo {encoded} | base64 -d > dot.png")
    result = await client.call_tool("read_file", {"path": "dot.png"})
    [content] = result.content
    assert isinstance(content, ImageContent)
    assert content.mime_type == "image/png"
    assert base64.b64decode(content.data) == PNG


async def test_a_background_command_runs_on_over_sleep_and_can_be_read_and_stopped(client: Client) -> None:
    started = await text(client, "start", command="echo up; exec sleep 1000000")
    pid = int(re.findall(r"\d+", started)[0])
    await text(client, "suspend_sandbox")
    assert "still running" in await text(client, "output", pid=pid, wait_s=1)
    assert str(pid) in await text(client, "processes")
    await text(client, "stop", pid=pid)
    answer = await text(client, "output", pid=pid, wait_s=60)
    assert answer.startswith("exit code: 137")
    assert "up" in answer


async def test_a_rollback_undoes_files_and_memory(client: Client) -> None:
    await text(client, "write_file", path="kept", content="before")
    await text(client, "snapshot", name="safe", comment="before the risky step")
    assert "before the risky step" in await text(client, "snapshots")
    await text(client, "run", command="rm kept")
    await text(client, "rollback", snapshot="safe")
    assert await text(client, "read_file", path="kept") == "before"
    assert "snapshot_not_found" in await error(client, "rollback", snapshot="never")


async def test_ways_are_tried_in_forks_compared_and_the_winner_is_kept(client: Client) -> None:
    await text(client, "write_file", path="work/start", content="same")
    answer = await text(client, "try_in_forks", commands=["echo 1 > work/one", "echo 2 > work/two; exit 4"])
    first, second = re.findall(r"^## (\w{20}):", answer, re.MULTILINE)
    assert "exit code: 4" in answer
    differences = await text(client, "compare_forks", first=first, second=second, path="work")
    assert differences.splitlines() == [f"only in {first}: one", f"only in {second}: two"]
    answer = await text(client, "keep_fork", winner=second, discard=[first])
    before = answer.split("`rollback` to ")[1].split()[0]
    assert await text(client, "read_file", path="work/two") == "2\n"
    for gone in (first, second):
        with pytest.raises(SandboxNotFoundError):
            Sandbox.get(gone)
    await text(client, "rollback", snapshot=before)
    assert "two" not in await text(client, "list_files", path="work")


async def test_a_server_inside_is_reached_from_outside(client: Client) -> None:
    await text(client, "write_file", path="site/index.html", content="hello from inside")
    await text(client, "start", command="exec python3 -m http.server 8123 -d site")
    await text(
        client,
        "run",
        command="until python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8123))\"; do sleep 0.1; done",
    )
    address = await text(client, "url", port=8123)
    assert address == await text(client, "url", port=8123)

    def read() -> str:
        with urllib.request.urlopen(address, timeout=60) as answer:
            return str(answer.read().decode())

    assert await anyio.to_thread.run_sync(read) == "hello from inside"


async def test_a_service_is_added_listed_read_and_removed(client: Client) -> None:
    serve = "echo serves; exec python3 -m http.server 8124"
    added = await text(client, "add_service", name="web", command=serve, port=8124, wait_s=200)
    assert added.endswith("port 8124 takes connections")
    assert "serves" in await text(client, "service_logs", name="web", lines=5)
    assert (await text(client, "services")).startswith("web  running with pid")
    assert await text(client, "change_service", name="web", action="remove") == "removed web"
    assert await text(client, "services") == "none"
    refused = await client.call_tool("change_service", {"name": "web", "action": "dance"})
    assert refused.is_error


async def test_what_the_network_decides_is_told_and_cannot_be_changed(client: Client) -> None:
    assert json.loads(await text(client, "network_policy")) == "internet"
    verdict = json.loads(await text(client, "test_request", url="http://127.0.0.1/"))
    assert verdict["action"] in ("allow", "deny")
    assert not [tool.name for tool in (await client.list_tools()).tools if "set_network" in tool.name]


async def test_files_and_logs_are_resources(client: Client) -> None:
    await text(client, "run", command="echo resource > /tmp/one.txt")
    read = await client.read_resource("atoll://sandboxes/mcp/files/tmp/one.txt")
    assert "resource" in str(read.contents) or base64.b64encode(b"resource\n").decode() in str(read.contents)
    listing = (await client.read_resource("atoll://sandboxes")).contents[0]
    assert isinstance(listing, TextResourceContents)
    assert "mcp" in [each["name"] for each in json.loads(listing.text)]


async def test_a_call_that_is_cancelled_kills_its_program(client: Client) -> None:
    with anyio.move_on_after(5):
        await client.call_tool("run", {"command": "exec sleep 424242", "timeout_s": 3000})
    looked = "for i in $(seq 600); do pgrep -f '^sleep 424242' >/dev/null || exit 0; sleep 0.1; done; exit 1"
    assert (await text(client, "run", command=looked)).startswith("exit code: 0")


@pytest.fixture
def served(module_home: Path) -> Iterator[tuple[int, str]]:
    """The port and the token of a server over HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "ATOLL_HOME": str(module_home), "ATOLL_MCP_TOKEN": "only-a-test"}
    arguments = [sys.executable, *ARGUMENTS, "--http", f"127.0.0.1:{port}"]
    with subprocess.Popen(arguments, env=environment) as server:
        try:
            yield port, "only-a-test"
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


async def test_over_http_the_token_is_needed_and_the_tools_are_the_same(served: tuple[int, str]) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    port, token = served
    address = f"http://127.0.0.1:{port}/mcp"
    with anyio.fail_after(120):
        while True:
            try:
                await anyio.to_thread.run_sync(lambda: urllib.request.urlopen(address, timeout=60).close())
            except urllib.error.HTTPError as refusal:
                assert refusal.code == 401
                refusal.close()
                break
            except OSError:
                await anyio.sleep(0.1)
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=ANSWER_S) as http:
        async with Client(streamable_http_client(address, http_client=http)) as connected:
            assert "over-http" in await text(connected, "run", command="echo over-http")
