"""MCP servers that run inside a sandbox, used from outside by the real client of the protocol's own SDK."""

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from tests.e2e.command_line import atoll

from atoll import AsyncSandbox, Sandbox
from atoll.errors import FileMissingError, InvalidSpecError, StateError, UnsupportedError

pytestmark = pytest.mark.anyio
SERVER = Path(__file__).with_name("mcp_server.py")
COMMAND = ["python3", "server.py"]
ANSWER_S = 240
PORT = 8765


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def sandbox(module_home: Path) -> AsyncIterator[AsyncSandbox]:
    """A sandbox with a server on standard streams, for all tests of the file, and one that listens."""
    async with await AsyncSandbox.create(name="inside") as sandbox:
        await sandbox.files.write("server.py", SERVER.read_text())
        await sandbox.services.add("mcp", [*COMMAND, str(PORT)], port=PORT)
        await sandbox.ports.wait(PORT, timeout_s=ANSWER_S)
        yield sandbox


async def said(session: ClientSession, tool: str = "where") -> str:
    """What a tool answers."""
    [content] = (await session.call_tool(tool, {})).content
    assert isinstance(content, TextContent)
    return content.text


async def host_name(sandbox: AsyncSandbox) -> str:
    return (await sandbox.run("hostname")).stdout.strip()


async def servers(sandbox: AsyncSandbox) -> int:
    """How many servers on standard streams run."""
    return len([one for one in await sandbox.processes.list() if one.argv == COMMAND])


async def test_a_server_on_standard_streams_is_used_and_ended_with_its_context(sandbox: AsyncSandbox) -> None:
    heard: list[str] = []
    async with sandbox.mcp(command=COMMAND, on_stderr=heard.append) as (read, write):
        async with ClientSession(read, write, read_timeout_seconds=ANSWER_S) as session:
            await session.initialize()
            assert [tool.name for tool in (await session.list_tools()).tools] == ["where", "leave", "long"]
            assert await said(session) == await host_name(sandbox)
            assert len(await said(session, "long")) == 300_000
            assert await servers(sandbox) == 1
    assert await servers(sandbox) == 0
    assert "".join(heard) == "started\n"
    with pytest.raises(FileMissingError):
        async with sandbox.mcp(command=["/nowhere"]):
            pass


async def test_a_server_that_ends_ends_the_session_and_its_last_words_are_told(
    sandbox: AsyncSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with sandbox.mcp(command=COMMAND) as (read, write):
        async with ClientSession(read, write, read_timeout_seconds=ANSWER_S) as session:
            await session.initialize()
            with pytest.raises(Exception, match="[Cc]losed"):
                await said(session, "leave")
    assert r"ended with exit code 7: 'started\nlast words'" in caplog.text


async def test_what_does_not_end_by_itself_is_killed_also_after_a_cancellation(sandbox: AsyncSandbox) -> None:
    deaf = ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"]
    with anyio.CancelScope() as scope:
        async with sandbox.mcp(command=deaf):
            scope.cancel()
            await anyio.sleep_forever()
    assert [one for one in await sandbox.processes.list() if one.argv == deaf] == []


async def test_a_server_that_listens_is_reached_by_its_address(sandbox: AsyncSandbox) -> None:
    address = sandbox.mcp(port=PORT)
    with pytest.raises(StateError):
        _ = address.url
    async with address:
        assert address.url.startswith("http://127.0.0.1:") and address.url.endswith("/mcp")
        async with streamable_http_client(address.url) as (read, write):
            async with ClientSession(read, write, read_timeout_seconds=ANSWER_S) as session:
                await session.initialize()
                assert await said(session) == await host_name(sandbox)


async def test_a_sync_sandbox_has_the_address_and_no_streams(sandbox: AsyncSandbox) -> None:
    known = Sandbox.of(await sandbox.info())
    with known.mcp(port=PORT, path="/other?a=b") as address:
        assert address.url.endswith("/other?a=b")
    with pytest.raises(UnsupportedError, match="async"):
        known.mcp(command=COMMAND)
    for wrong in ({}, {"port": PORT, "command": COMMAND}, {"port": PORT, "path": "mcp"}, {"port": 0}):
        with pytest.raises(InvalidSpecError):
            known.mcp(**wrong)
    known.close()


@pytest.mark.parametrize("arguments", [["--port", str(PORT)], ["--", *COMMAND]])
async def test_a_client_that_starts_servers_uses_one_inside_by_the_proxy(
    sandbox: AsyncSandbox, module_home: Path, arguments: list[str]
) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "atoll.mcp", "proxy", "inside", *arguments],
        env={**os.environ, "ATOLL_HOME": str(module_home)},
    )
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write, read_timeout_seconds=ANSWER_S) as session:
            await session.initialize()
            assert await said(session) == await host_name(sandbox)
            assert len(await said(session, "long")) == 300_000
    ended = f"for i in $(seq 600); do pgrep -fx '{' '.join(COMMAND)}' || exit 0; sleep 0.1; done; exit 1"
    assert (await sandbox.run(ended, timeout_s=ANSWER_S)).exit_code == 0


async def test_the_proxy_passes_on_an_exit_code_and_refuses_what_is_unclear(sandbox: AsyncSandbox) -> None:
    done = await anyio.to_thread.run_sync(
        lambda: atoll("mcp", "proxy", "inside", "--", "sh", "-c", "cat; exit 3")
    )
    assert (done.returncode, done.stdout) == (3, b"")
    unclear = await anyio.to_thread.run_sync(lambda: atoll("mcp", "proxy", "inside"))
    assert unclear.returncode == 125 and b"--port" in unclear.stderr
