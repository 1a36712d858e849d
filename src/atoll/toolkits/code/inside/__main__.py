"""Serves on a port of the sandbox: ``python -m PACKAGE DIRECTORY LANGUAGE…``.

Contexts start in the directory. Each language has one from the beginning.
"""

from __future__ import annotations

import asyncio
import json
import os
import site
import socket
import sys

import uvicorn

from .app import App
from .contexts import Contexts
from .languages import LANGUAGES

PORT = 49999
# longer than the SDK keeps a connection for its next request
KEEP_S = 640


async def main(cwd: str, languages: list[str]) -> None:
    """Start the contexts that most clients use, so that a snapshot has them, and serve.

    ``/health`` succeeds once each of them has run something through the server: the first run loads much that
    a snapshot should have, too.
    """
    # a kernel finds packages that are installed here later only if the directory is there when it starts
    os.makedirs(site.getusersitepackages(), exist_ok=True)
    contexts = Contexts(cwd)
    for name in languages:
        language = LANGUAGES[name]
        kernel = (await contexts.default(language)).kernel
        for code in language.first_runs:
            await kernel.quietly(code)
    app = App(contexts)
    config = uvicorn.Config(app.asgi(), log_level="warning", access_log=False, timeout_keep_alive=KEEP_S)
    # it takes connections from now on, and answers once the server has begun
    listener = socket.create_server(("0.0.0.0", PORT), backlog=config.backlog)
    serving = asyncio.create_task(uvicorn.Server(config).serve(sockets=[listener]))
    for name in languages:
        await _run_nothing(name)
    app.is_ready = True
    await serving


async def _run_nothing(language: str) -> None:
    body = json.dumps({"code": "", "language": language}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(
        b"POST /execute HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    await reader.read()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
