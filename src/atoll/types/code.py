"""Results of code in a context: text, rich results, errors."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from atoll.errors import CodeFailedError

_SHOWN_CHARACTERS = 200


class CodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel in a sandbox, whose variables stay between runs, over sleep, and in forks.

    ``cwd`` is the directory in which it started.
    """

    id: Annotated[str, Meta(min_length=1, max_length=100)]
    language: str
    cwd: str


class CodeVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of a Python context. ``value`` is the beginning of its repr."""

    name: str
    type: str
    value: str


class CodeOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that code has shown, in each form that it has.

    ``png``, ``jpeg`` and ``pdf`` are base64. ``data`` is a data frame as a list of values by column, and
    ``chart`` the data of a chart of matplotlib. ``extra`` has all other forms by MIME type. ``is_main`` marks
    the value of the last line; ``display`` shows the others.
    """

    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = None
    jpeg: str | None = None
    pdf: str | None = None
    latex: str | None = None
    json: Any = None
    javascript: str | None = None
    data: dict[str, Any] | None = None
    chart: dict[str, Any] | None = None
    extra: dict[str, Any] = {}
    is_main: bool = msgspec.field(default=False, name="is_main_result")

    @property
    def png_bytes(self) -> bytes:
        """The picture in PNG; empty if there is none.

        Raises:
            ValueError: It is no base64.
        """
        return base64.b64decode(self.png or "", validate=False)

    def __repr__(self) -> str:
        forms = [
            name
            for name in self.__struct_fields__
            if name not in ("text", "extra", "is_main") and getattr(self, name) is not None
        ]
        return f"CodeOutput(text={(self.text or '')[:_SHOWN_CHARACTERS]!r}, forms={forms})"


class CodeException(msgspec.Struct, frozen=True, kw_only=True):
    """The exception that ended a run: its class, its text, and where it was raised."""

    name: str
    value: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


class CodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run of code.

    ``outputs`` are in order; ``error`` is None if the code ended by itself. ``execution_count`` counts the
    runs of the context.
    """

    outputs: list[CodeOutput] = []
    stdout: str = ""
    stderr: str = ""
    error: CodeException | None = None
    execution_count: int | None = None

    @property
    def text(self) -> str | None:
        """The value of the last line, as text; None if it has none."""
        return next((output.text for output in reversed(self.outputs) if output.is_main), None)

    def check(self) -> CodeResult:
        """Return this result if the code raised nothing.

        Raises:
            CodeFailedError: It raised an exception; the error's ``result`` is this one.
        """
        if self.error is None:
            return self
        error = CodeFailedError(f"the code raised {self.error}")
        error.result = self
        raise error

    def __repr__(self) -> str:
        return (
            f"CodeResult(text={(self.text or '')[:_SHOWN_CHARACTERS]!r}, outputs={len(self.outputs)}, "
            f"stdout={self.stdout[-_SHOWN_CHARACTERS:]!r}, stderr={self.stderr[-_SHOWN_CHARACTERS:]!r}, "
            f"error={str(self.error) if self.error else None!r})"
        )
