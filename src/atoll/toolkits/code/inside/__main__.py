"""Serves on a port of the sandbox: ``python -m PACKAGE DIRECTORY LANGUAGE…``.

Contexts start in the directory, and those of the languages are there from the beginning.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn

from .app import App
from .contexts import Contexts
from .languages import LANGUAGES

PORT = 49999


async def main(cwd: str, languages: list[str]) -> None:
    """Start the contexts that most clients use, so that a snapshot has them, and serve."""
    contexts = Contexts(cwd)
    for name in languages:
        await contexts.default(LANGUAGES[name])
    config = uvicorn.Config(
        App(contexts).asgi(), host="0.0.0.0", port=PORT, log_level="warning", access_log=False
    )
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
