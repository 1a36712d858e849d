"""A tool's answer, in forms that a model can read."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from atoll.tools.text import KEPT_BYTES, MOST_CHARACTERS, section
from atoll.types import ExecResult

_FORMATS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}


@dataclass(frozen=True)
class Picture:
    """A picture that a tool answers.

    Args:
        data: Its bytes.
        format: ``png``, ``jpeg``, ``gif`` or ``webp``.
    """

    data: bytes
    format: str

    @property
    def media_type(self) -> str:
        """Such as ``image/png``."""
        return f"image/{self.format}"

    @property
    def base64(self) -> str:
        """The bytes in base64."""
        return base64.b64encode(self.data).decode()

    @property
    def url(self) -> str:
        """The picture as a ``data:`` address."""
        return f"data:{self.media_type};base64,{self.base64}"


@dataclass(frozen=True)
class ToolResult:
    """A tool's answer. ``str()`` of it is its text.

    Args:
        text: Its text for a model, bounded; empty if there is only a picture.
        pictures: Its pictures for a model.
        is_error: Whether the tool has failed; the text then gives the reason and a remedy.
    """

    text: str
    pictures: tuple[Picture, ...] = ()
    is_error: bool = False

    def __str__(self) -> str:
        return self.text

    def as_anthropic(self) -> list[dict[str, Any]]:
        """Return the content of a ``tool_result`` of Anthropic's Messages API."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": self.text}] if self.text else []
        for picture in self.pictures:
            source = {"type": "base64", "media_type": picture.media_type, "data": picture.base64}
            blocks.append({"type": "image", "source": source})
        return blocks

    def as_openai(self) -> str | list[dict[str, Any]]:
        """Return the ``output`` of a ``function_call_output`` of OpenAI's Responses API."""
        if not self.pictures:
            return self.text
        parts: list[dict[str, Any]] = [{"type": "input_text", "text": self.text}] if self.text else []
        parts += [{"type": "input_image", "image_url": picture.url} for picture in self.pictures]
        return parts


def told(result: ExecResult, most: int = MOST_CHARACTERS) -> str:
    """Return the exit code and the program's output."""
    parts = [f"exit code: {result.exit_code}\n"]
    if result.memory_kill is not None:
        parts.append(f"{result.memory_kill}\n")
    if result.truncated:
        parts.append(f"only the last {KEPT_BYTES:,} bytes of a stream are kept\n")
    parts.append(section("stdout", result.stdout, most))
    parts.append(section("stderr", result.stderr, most // 2))
    return "".join(parts)


def image_kind(content: bytes) -> str | None:
    """Return the format of a picture that clients can show, by its first bytes; None for anything else."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    return next((kind for begin, kind in _FORMATS.items() if content.startswith(begin)), None)
