"""The published SDKs, each version in an environment of its own that later runs find again."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from tests.environments import made_once, python_with, run
from tests.homes import CACHE

JS = Path(__file__).parent / "js"


def python_sdk(version: str) -> Path:
    """The interpreter of an environment that has this version of the Python SDK, and pytest."""
    return python_with(f"e2b-{version}", f"e2b=={version}", "pytest", "anyio", "httpx")


def javascript_sdk() -> Path:
    """A project with the JavaScript SDK and the cases."""
    wanted = hashlib.sha256((JS / "package.json").read_bytes()).hexdigest()[:12]
    name = f"e2b-js-{wanted}"
    with made_once(name) as directory:
        if directory is not None:
            directory.mkdir()
            shutil.copy(JS / "package.json", directory)
            run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], cwd=directory)
    for case in JS.glob("*.*js"):
        shutil.copy(case, CACHE / name)
    return CACHE / name
