# Made by scripts/unasync.py from sdk/_async/code.py: do not edit.
"""Code that runs in a sandbox in contexts, which keep their variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from atoll.errors import (
    DeadlineError,
    ExecTimeoutError,
    NotFoundError,
    SandboxNotFoundError,
    UnsupportedError,
)
from atoll.guest import (
    CODE_PORT,
    GuestRequest,
    RunReader,
    change_context,
    code_error_from,
    context_from,
    contexts_from,
    create_context,
    delete_context,
    list_contexts,
    list_variables,
    run_code,
    variables_from,
)
from atoll.sdk._sync.agent import SILENCE_S, Agent, bytes_of
from atoll.sdk._sync.http import Answer
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.sdk._foreign import Part
from atoll.sdk._io_sync import call
from atoll.sdk._telling import code_line
from atoll.types import CodeContext, CodeOutput, CodeResult, CodeVariable, ExecResult, GuestPath
from atoll.types.internal import check_text, copied, path_text

_CALL_S = 120.0
# the server inside interrupts the code, and kills code that runs on; the client waits this much longer for
# its answer
_GRACE_S = 10.0
_INTERRUPTED = 130
_ERROR_BYTES = 64 * 1024
_ANSWER_BYTES = 16 << 20

_Contexts = list[CodeContext]
TextCallback = Callable[[str], Any]
OutputCallback = Callable[[CodeOutput], Any]


class Code(Part):
    """Runs code in contexts: kernels of Jupyter, whose variables stay, over sleep and in forks, too.

    The sandbox must be made from the template ``code-interpreter-v1`` (`atoll template install
    code-interpreter-v1`), or one built on it. Each language has a context of its own for runs that name none.

    Every method may raise UnsupportedError (the sandbox has no code interpreter), AgentError (its server
    answers against the protocol), and what every use of a sandbox raises.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._pool = agent.pool(CODE_PORT)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of sandbox {self._agent.sandbox_id}>"

    def run(
        self,
        code: str,
        *,
        language: str | None = None,
        context: CodeContext | str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = 60.0,
        on_stdout: TextCallback | None = None,
        on_stderr: TextCallback | None = None,
        on_output: OutputCallback | None = None,
    ) -> CodeResult:
        """Run code and return its results. An exception in it is part of the result.

        A call that is cancelled or runs out of time interrupts the code; the variables stay. Code that still
        runs 5 seconds later is killed with its kernel, and the context loses its variables.

        Args:
            code: The code. The value of its last line is the main output.
            language: ``python`` (also None), ``javascript``, ``typescript`` or ``bash``.
            context: Where to run it; None is the language's own context.
            env: Variables of the environment for this run alone. In Java they are system properties.
            timeout_s: Seconds until it is interrupted; None waits for ever.
            on_stdout: Called with each piece of text as it is written.
            on_stderr: The same for standard error.
            on_output: Called with each output as it is shown.

        Raises:
            InvalidSpecError: The language is not known, or both language and context are given.
            NotFoundError: There is no such context.
            ExecTimeoutError: It ran past ``timeout_s`` and was interrupted. Its message says whether the
                variables stay.
        """
        check_text("code", code)
        check_timeout(timeout_s)
        request = run_code(
            code,
            context_id=None if context is None else _id_of(context),
            language=language,
            env=copied("env", env),
            timeout_s=timeout_s,
        )
        bound_s = None if timeout_s is None else timeout_s + _GRACE_S
        reader = RunReader()
        callbacks = {"stdout": on_stdout, "stderr": on_stderr, "result": on_output}
        try:
            answer = self._ask(request, Deadline(bound_s, silence_s=SILENCE_S))
            self._agent.tell(code_line(code))
            for piece in bytes_of(answer):
                for kind, value in reader.feed(piece):
                    callback = callbacks[kind]
                    if callback is not None:
                        call(callback, value)
        except DeadlineError as error:
            if timeout_s is None:
                raise
            raise self._late(
                reader, timeout_s, "may still run: the code interpreter does not answer"
            ) from error
        if reader.is_late:
            kept = reader.loss or "the context keeps its variables"
            raise self._late(reader, timeout_s, f"was interrupted; {kept}")
        return reader.result()

    def _late(self, reader: RunReader, timeout_s: float | None, then: str) -> ExecTimeoutError:
        error = ExecTimeoutError(
            f"the code did not end within {timeout_s} s, and {then}",
            hint="give a longer timeout_s, or None for no limit",
            sandbox_id=self._agent.sandbox_id,
        )
        error.result = ExecResult(
            exit_code=_INTERRUPTED,
            stdout_bytes=reader.written("stdout").encode(),
            stderr_bytes=reader.written("stderr").encode(),
        )
        return error

    def create_context(
        self, language: str | None = None, *, cwd: GuestPath | None = None
    ) -> CodeContext:
        """Start a new context.

        Args:
            language: As for ``run``.
            cwd: The directory in which it starts, made if it is missing; None is the user's home.

        Raises:
            InvalidSpecError: The language is not known.
            QuotaError: There are 64 contexts already.
        """
        directory = None if cwd is None else path_text(cwd)
        return context_from(self._call(create_context(language, directory)))

    def contexts(self) -> _Contexts:
        """List the contexts, oldest first."""
        return contexts_from(self._call(list_contexts()))

    def delete_context(self, context: CodeContext | str) -> None:
        """End a context; its variables are gone.

        Raises:
            NotFoundError: There is no such context.
        """
        self._call(delete_context(_id_of(context)))

    def restart(self, context: CodeContext | str) -> None:
        """Restart a context. Its variables are gone.

        Raises:
            NotFoundError: There is no such context.
        """
        self._call(change_context(_id_of(context), "restart"))

    def interrupt(self, context: CodeContext | str) -> None:
        """Interrupt the code of a context, as Ctrl-C does; its variables stay.

        Raises:
            NotFoundError: There is no such context.
        """
        self._call(change_context(_id_of(context), "interrupt"))

    def variables(self, context: CodeContext | str) -> list[CodeVariable]:
        """List the variables of a Python context.

        Raises:
            NotFoundError: There is no such context.
            InvalidSpecError: Its language is not Python.
        """
        return variables_from(self._call(list_variables(_id_of(context))))

    def _call(self, request: GuestRequest) -> bytes:
        answer = self._ask(request, Deadline(_CALL_S))
        return answer.read_all(_ANSWER_BYTES)

    def _ask(self, request: GuestRequest, deadline: Deadline) -> Answer:
        try:
            answer = self._pool.ask(request, deadline, repeatable=request.method == "GET")
        except SandboxNotFoundError:
            raise
        except NotFoundError as error:
            raise UnsupportedError(
                f"sandbox {self._agent.sandbox_id} has no code interpreter",
                hint="create one with `--template code-interpreter-v1`; `atoll template install code-interpreter-v1` "
                "makes that template",
                sandbox_id=self._agent.sandbox_id,
            ) from error
        if answer.status >= 400:
            with contextlib.closing(answer):
                error_told = code_error_from(answer.status, answer.read_all(_ERROR_BYTES))
            error_told.sandbox_id = self._agent.sandbox_id
            raise error_told
        return answer


def _id_of(context: CodeContext | str) -> str:
    name = context.id if isinstance(context, CodeContext) else context
    check_text("context", name)
    return name
