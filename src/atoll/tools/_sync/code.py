# Made by scripts/unasync.py from tools/_async/code.py: do not edit.
"""The tool that runs code in contexts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from atoll.sdk import Sandbox
from atoll.tools.arguments import Seconds
from atoll.tools.results import Picture, ToolResult
from atoll.tools.schema import Offer
from atoll.tools.text import section
from atoll.types import CodeResult

_MOST_PICTURES = 8
_MOST_PICTURE_BYTES = 4 << 20


class CodeTools:
    """Runs code in the contexts of a sandbox.

    Args:
        sandbox: Where.
    """

    OFFERS: ClassVar[tuple[Offer, ...]] = (Offer("run_code", "Run code"),)

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def run_code(
        self,
        code: Annotated[
            str, Meta(description="The code; the value of its last line is shown.", min_length=1)
        ],
        language: Annotated[str, Meta(description="python, javascript, typescript or bash.")] = "python",
        timeout_s: Seconds = 120.0,
    ) -> ToolResult:
        """Run code as in a notebook: variables stay between calls. Charts are returned as pictures.

        The sandbox must be made from the template code-interpreter-v1.
        """
        result = self._sandbox.code.run(code, language=language, timeout_s=timeout_s)
        pictures = [output.png_bytes for output in result.outputs if output.png][:_MOST_PICTURES]
        small = [each for each in pictures if each is not None and len(each) <= _MOST_PICTURE_BYTES]
        return ToolResult(_told(result), tuple(Picture(each, "png") for each in small))


def _told(result: CodeResult) -> str:
    shown = "\n".join(output.text for output in result.outputs if output.text)
    parts = [section("stdout", result.stdout), section("stderr", result.stderr), section("result", shown)]
    if result.error is not None:
        parts.append(section("error", result.error.traceback or str(result.error)))
    return "".join(parts) or "done"
