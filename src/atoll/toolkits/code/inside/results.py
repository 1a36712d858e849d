"""Turns a kernel's messages into the lines that clients read.

The format is that of E2B's code interpreter, with additions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

# The names that clients know, by MIME type.
_NAMES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
_MOST_TRACEBACK = 64 * 1024

Line = dict[str, Any]


def line_of(kind: str, content: Mapping[str, Any]) -> Line | None:
    """Return the line for a message of a kernel; None if clients need not see it.

    Args:
        kind: The type of the message.
        content: Its content.
    """
    if kind == "stream":
        name = "stderr" if content.get("name") == "stderr" else "stdout"
        return _text_line(name, str(content.get("text", "")))
    if kind in ("execute_result", "display_data"):
        return _result(content.get("data", {}), is_main=kind == "execute_result")
    if kind == "error":
        return _error(content)
    if kind == "execute_input":
        return {"type": "number_of_executions", "execution_count": content.get("execution_count")}
    return None


def stderr_line(text: str) -> Line:
    """Return a line with a text for standard error."""
    return _text_line("stderr", text)


def _text_line(stream: str, text: str) -> Line:
    return {"type": stream, "text": text, "timestamp": time.time_ns()}


def _result(data: Mapping[str, Any], *, is_main: bool) -> Line:
    line: Line = {"type": "result", "is_main_result": is_main}
    extra: dict[str, Any] = {}
    for mime, value in data.items():
        name = _NAMES.get(mime)
        if name is None:
            extra[mime] = value
        else:
            line[name] = "".join(value) if isinstance(value, list) and mime != "application/json" else value
    if isinstance(line.get("text"), str):
        # IPython shows the repr of a string
        text = line["text"]
        if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and is_main:
            line["text"] = text[1:-1]
    if extra:
        line["extra"] = extra
    return line


def _error(content: Mapping[str, Any]) -> Line:
    traceback = "\n".join(str(part) for part in content.get("traceback", ()))
    return {
        "type": "error",
        "name": str(content.get("ename", "Error")),
        "value": str(content.get("evalue", "")),
        "traceback": traceback[-_MOST_TRACEBACK:],
    }
