"""Notes which public methods of the SDK the cases called, and which there are."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

PUBLIC = {
    "e2b": (
        "Sandbox",
        "AsyncSandbox",
        "Template",
        "AsyncTemplate",
        "Volume",
        "AsyncVolume",
        "Secret",
        "AsyncSecret",
    ),
    "e2b.sandbox_sync.commands.command": ("Commands",),
    "e2b.sandbox_async.commands.command": ("Commands",),
    "e2b.sandbox_sync.commands.command_handle": ("CommandHandle",),
    "e2b.sandbox_async.commands.command_handle": ("AsyncCommandHandle",),
    "e2b.sandbox_sync.commands.pty": ("Pty",),
    "e2b.sandbox_async.commands.pty": ("Pty",),
    "e2b.sandbox_sync.filesystem.filesystem": ("Filesystem",),
    "e2b.sandbox_async.filesystem.filesystem": ("Filesystem",),
    "e2b.sandbox_sync.filesystem.watch_handle": ("WatchHandle",),
    "e2b.sandbox_async.filesystem.watch_handle": ("AsyncWatchHandle",),
    "e2b.sandbox_sync.git": ("Git",),
    "e2b.sandbox_async.git": ("Git",),
    "e2b.sandbox_sync.paginator": ("SandboxPaginator", "SnapshotPaginator"),
    "e2b.sandbox_async.paginator": ("AsyncSandboxPaginator", "AsyncSnapshotPaginator"),
}
_seen: set[CodeType] = set()


def listen() -> None:
    """Note every function of the SDK that is called from now on, in any thread."""
    threading.setprofile(_note)
    sys.setprofile(_note)


def _note(frame: FrameType, event: str, _: object) -> None:
    if event == "call":
        _seen.add(frame.f_code)


def write() -> None:
    """Write the public methods, by whether they were called, to the file that ``ATOLL_CALLS`` names."""
    sys.setprofile(None)
    called: dict[str, bool] = {}
    for module, names in PUBLIC.items():
        for name in names:
            cls = getattr(importlib.import_module(module), name)
            face = "async " if "async" in module or name.startswith("Async") else ""
            for method in (one for one in dir(cls) if not one.startswith("_")):
                codes = _codes(inspect.getattr_static(cls, method), cls, method)
                if codes:
                    label = f"{face}{name.removeprefix('Async')}.{method}"
                    called[label] = called.get(label, False) or bool(codes & _seen)
    Path(os.environ["ATOLL_CALLS"]).write_text(json.dumps(called))


def _codes(static: object, cls: type, method: str) -> set[CodeType]:
    """The code of a method, in all the forms in which the SDK has it."""
    parts = getattr(static, "__dict__", {})
    # the SDK's methods that serve as class methods too are two functions behind one name
    forms = [
        static,
        getattr(cls, method, None),
        *parts.values(),
        getattr(cls, parts.get("class_method_name", ""), None),
    ]
    found = set()
    for form in forms:
        form = getattr(form, "__func__", None) or getattr(form, "fget", None) or form
        form = inspect.unwrap(form) if callable(form) else form
        if isinstance(code := getattr(form, "__code__", None), CodeType) and "e2b" in code.co_filename:
            found.add(code)
    return found
