"""The tool that runs code in contexts."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Image
from pydantic import Field

from atoll.mcp.text import section
from atoll.mcp.tools.adding import Tools
from atoll.mcp.tools.arguments import Which
from atoll.mcp.tools.commands import Seconds
from atoll.mcp.workplace import Workplace
from atoll.types import CodeResult

_MOST_PICTURES = 8
_MOST_PICTURE_BYTES = 4 << 20


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tool."""
    tools.add(Code(workplace).run_code, title="Run code")


class Code:
    """Runs code in the contexts of a sandbox.

    Args:
        workplace: Has the sandboxes.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    async def run_code(
        self,
        code: Annotated[
            str, Field(description="The code; the value of its last line is shown.", min_length=1)
        ],
        sandbox: Which = None,
        language: Annotated[str, Field(description="python, javascript, typescript or bash.")] = "python",
        timeout_s: Seconds = 120.0,
    ) -> list[Any]:
        """Run code as in a notebook: variables stay between calls. Charts are returned as pictures.

        The sandbox must be made from the template code-interpreter-v1.
        """
        used = await self._workplace.sandbox(sandbox, busy_s=timeout_s)
        result = await used.code.run(code, language=language, timeout_s=timeout_s)
        pictures = [output.png_bytes for output in result.outputs if output.png][:_MOST_PICTURES]
        small = [picture for picture in pictures if len(picture) <= _MOST_PICTURE_BYTES]
        return [_told(result), *(Image(data=picture, format="png") for picture in small)]


def _told(result: CodeResult) -> str:
    shown = "\n".join(output.text for output in result.outputs if output.text)
    parts = [section("stdout", result.stdout), section("stderr", result.stderr), section("result", shown)]
    if result.error is not None:
        parts.append(section("error", result.error.traceback or str(result.error)))
    return "".join(parts) or "done"
