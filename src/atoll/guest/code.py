"""The protocol of the code interpreter's server inside a sandbox, without input or output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from atoll.errors import AgentError, AtollError, InvalidSpecError, NotFoundError, QuotaError
from atoll.guest.answers import check_values
from atoll.guest.requests import GuestRequest
from atoll.types import CodeContext, CodeException, CodeOutput, CodeResult, CodeVariable
from atoll.types.internal import converted, from_json

CODE_PORT = 49999
"""Where the server listens, as clients of E2B's code interpreter expect."""
LONGEST_LINE = 32 << 20
LARGEST_RUN = 64 << 20
_MESSAGE_CHARACTERS = 500
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_Executions = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53))]
_JSON = (("Content-Type", "application/json"),)


def run_code(
    code: str,
    *,
    context_id: str | None,
    language: str | None,
    env: Mapping[str, str] | None,
    timeout_s: float | None,
) -> GuestRequest:
    """Ask to run code in a context, or in a language's default one, for at most ``timeout_s`` seconds."""
    body = {
        "code": code,
        "context_id": context_id,
        "language": language,
        "env_vars": dict(env or {}),
        "timeout_s": timeout_s,
    }
    return _post("/execute", body)


def create_context(language: str | None, cwd: str | None) -> GuestRequest:
    """Ask for a new context."""
    return _post("/contexts", {"language": language, "cwd": cwd})


def list_contexts() -> GuestRequest:
    """Ask for all contexts."""
    return GuestRequest("GET", "/contexts")


def delete_context(context_id: str) -> GuestRequest:
    """Ask to end a context."""
    return GuestRequest("DELETE", f"/contexts/{quote(context_id, safe='')}")


def change_context(context_id: str, how: str) -> GuestRequest:
    """Ask to ``restart`` or ``interrupt`` a context."""
    return GuestRequest("POST", f"/contexts/{quote(context_id, safe='')}/{how}")


def list_variables(context_id: str) -> GuestRequest:
    """Ask for the variables of a context."""
    return GuestRequest("GET", f"/contexts/{quote(context_id, safe='')}/variables")


def context_from(body: bytes) -> CodeContext:
    """Read a context."""
    context: CodeContext = _read(body, CodeContext)
    return context


def contexts_from(body: bytes) -> list[CodeContext]:
    """Read a list of contexts."""
    contexts: list[CodeContext] = _read(body, list[CodeContext])
    return contexts


def variables_from(body: bytes) -> list[CodeVariable]:
    """Read a list of variables."""
    variables: list[CodeVariable] = _read(body, list[CodeVariable])
    return variables


def code_error_from(status: int, body: bytes) -> AtollError:
    """Return the error in an answer with a status of 400 or more."""
    said = body[: 4 * _MESSAGE_CHARACTERS].decode("utf-8", "replace").strip()[:_MESSAGE_CHARACTERS]
    message = said or f"the code interpreter answered with status {status}"
    if status == 404:
        return NotFoundError(message, hint="`code.contexts()` lists the contexts")
    if status == 429:
        return QuotaError(message)
    if status in (400, 413):
        return InvalidSpecError(message)
    return AgentError(message)


class RunReader:
    """Puts the lines of a run together, within bounds, and checks their kinds.

    Attributes:
        ended: Whether the last line has come.
        is_late: Whether the server interrupted the run when its time was over.
        loss: Why the context then lost its variables; empty if it did not.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._bytes = 0
        self._outputs: list[CodeOutput] = []
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._error: CodeException | None = None
        self._count: int | None = None
        self.ended = False
        self.is_late = False
        self.loss = ""

    def feed(self, data: bytes) -> Iterator[tuple[str, str | CodeOutput]]:
        """Take a piece, and yield each completed item: ``stdout`` or ``stderr`` with text, or a ``result``.

        Raises:
            AgentError: The piece breaks the protocol, or the answer is too long.
        """
        self._bytes += len(data)
        self._rest += data
        if self._bytes > LARGEST_RUN or len(self._rest) > LONGEST_LINE:
            raise AgentError(
                f"the run wrote more than {LARGEST_RUN >> 20} MiB", hint="write to a file instead"
            )
        if b"\n" not in data:  # a long line comes in many pieces, none of which is worth a copy of it
            return
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            if line.strip():
                yield from self._take(_read(line, dict[str, Any]))

    def result(self) -> CodeResult:
        """Return all of it.

        Raises:
            AgentError: The last line has not come.
        """
        if not self.ended:
            raise AgentError("the code interpreter ended in the middle of the run", hint="run it again")
        return CodeResult(
            outputs=self._outputs,
            stdout=self.written("stdout"),
            stderr=self.written("stderr"),
            error=self._error,
            execution_count=self._count,
        )

    def written(self, stream: str) -> str:
        """Return the output to ``stdout`` or ``stderr`` so far."""
        return "".join(self._texts[stream])

    def _take(self, line: dict[str, Any]) -> Iterator[tuple[str, str | CodeOutput]]:
        kind = line.pop("type", None)
        try:
            if kind in ("stdout", "stderr"):
                text = converted(line.get("text", ""), str)
                self._texts[kind].append(text)
                yield kind, text
            elif kind == "result":
                output = converted(line, CodeOutput)
                self._outputs.append(output)
                yield "result", output
            elif kind == "error":
                raised = converted(line, CodeException)
                self._error = msgspec.structs.replace(raised, traceback=_COLOURS.sub("", raised.traceback))
            elif kind == "number_of_executions":
                self._count = converted(line.get("execution_count"), _Executions | None)
            elif kind == "timed_out":
                self.is_late = True
                self.loss = converted(line.get("loss"), str)[:_MESSAGE_CHARACTERS]
            elif kind == "end_of_execution":
                self.ended = True
        except msgspec.ValidationError as error:
            raise AgentError(f"the code interpreter sent a line of another kind: {error}") from error


def _post(target: str, body: object) -> GuestRequest:
    return GuestRequest("POST", target, _JSON, json.dumps(body).encode())


def _read(body: bytes, kind: Any) -> Any:
    check_values(body)
    try:
        return from_json(body, kind)
    except msgspec.DecodeError as error:
        raise AgentError(f"the code interpreter answered against its protocol: {error}") from error
