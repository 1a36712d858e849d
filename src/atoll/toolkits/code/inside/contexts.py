"""The contexts: kernels with an id, whose variables stay between executions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from .kernel import GRACE_S, Kernel, KernelDiedError
from .languages import Language
from .results import Line, stderr_line
from .surroundings import Surroundings

MOST = 64
_VARIABLES_CODE = """
def _atoll_variables():
    import json
    shell = get_ipython()
    print(json.dumps([
        {'name': name, 'type': type(value).__name__, 'value': repr(value)[:200]}
        for name, value in list(shell.user_ns.items())
        if not name.startswith('_') and name not in shell.user_ns_hidden
    ]))
_atoll_variables()
del _atoll_variables
"""


def _made(top: str, path: str) -> str:
    directory = os.path.normpath(os.path.join(top, path))
    try:
        os.makedirs(directory, exist_ok=True)
    except PermissionError:
        # the user is as good as root
        owner = ["-o", str(os.getuid()), "-g", str(os.getgid())]
        made = subprocess.run(["sudo", "-n", "install", "-d", *owner, directory], capture_output=True)
        if made.returncode:
            raise
    if not os.access(directory, os.X_OK):
        raise PermissionError(
            f"{directory} cannot be entered; give the sandbox's user the right to, or name another cwd"
        )
    return directory


class TooManyError(Exception):
    """There are already as many contexts as allowed."""


class UnknownContextError(Exception):
    """No context has that id."""


@dataclass
class Context:
    """A kernel, and what clients know of it.

    ``environment`` has the variables that the kernel has, and ``machine_id`` is the sandbox in which its
    random numbers began.
    """

    context_id: str
    language: Language
    cwd: str
    kernel: Kernel
    machine_id: str
    environment: dict[str, str] = field(default_factory=dict)

    def shown(self) -> dict[str, str]:
        """Return it as clients read it."""
        return {"id": self.context_id, "language": self.language.name, "cwd": self.cwd}

    def loss(self) -> str:
        """Return why the variables are gone, once for each loss; empty if they are not."""
        why, self.kernel.lost = self.kernel.lost, ""
        if why:
            self.environment = {}
        return why


class Contexts:
    """All contexts. Each language has one of its own, for executions that name none.

    Args:
        cwd: The directory of contexts that name none.
        grace_s: Seconds that a run may continue after an interruption.
    """

    def __init__(self, cwd: str, *, grace_s: float = GRACE_S) -> None:
        self._cwd = cwd
        self._grace_s = grace_s
        self._contexts: dict[str, Context] = {}
        self._defaults: dict[str, Context] = {}
        self._starting = asyncio.Lock()

    def all(self) -> list[Context]:
        """Return all contexts, oldest first."""
        return list(self._contexts.values())

    def get(self, context_id: str) -> Context:
        """Return a context.

        Raises:
            UnknownContextError: There is none of this id.
        """
        try:
            return self._contexts[context_id]
        except KeyError:
            raise UnknownContextError(context_id) from None

    async def create(self, language: Language, cwd: str | None) -> Context:
        """Start a context.

        Raises:
            TooManyError: There are too many.
            OSError: Its directory cannot be made.
        """
        if len(self._contexts) >= MOST:
            raise TooManyError
        directory = await asyncio.to_thread(_made, self._cwd, cwd or ".")
        around = await asyncio.to_thread(Surroundings.read)
        kernel = Kernel(language.kernel, directory, self._grace_s)
        await kernel.start()
        made = Context(str(uuid.uuid4()), language, directory, kernel, around.machine_id)
        self._contexts[made.context_id] = made
        return made

    async def default(self, language: Language) -> Context:
        """Return the context of a language, started when it is first needed."""
        async with self._starting:
            known = self._defaults.get(language.kernel)
            if known is None or known.context_id not in self._contexts:
                known = self._defaults[language.kernel] = await self.create(language, None)
            return known

    async def delete(self, context_id: str) -> None:
        """End a context.

        Raises:
            UnknownContextError: There is none of this id.
        """
        context = self.get(context_id)
        del self._contexts[context_id]
        await context.kernel.stop()

    async def restart(self, context_id: str) -> None:
        """Restart a context. Its variables are gone.

        Raises:
            UnknownContextError: There is none of this id.
        """
        context = self.get(context_id)
        await context.kernel.restart()
        context.kernel.lost, context.environment = "", {}

    async def variables(self, context: Context) -> str:
        """Return the variables of a Python context, as JSON."""
        lines = [line async for line in context.kernel.execute(_VARIABLES_CODE, counted=False)]
        return "".join(line["text"] for line in lines if line["type"] == "stdout") or "[]"

    async def execute(
        self, context: Context, code: str, around: Surroundings, only_now: Mapping[str, str]
    ) -> AsyncGenerator[Line]:
        """Run code and yield its lines. Closing the iteration early interrupts the code.

        Args:
            context: The context to run it in.
            code: The code.
            around: The sandbox as it is now.
            only_now: Variables for this execution alone.
        """
        unknown = ""

        def prepare() -> str:
            nonlocal unknown
            unknown = context.loss()
            return _preparation(context, around, only_now)

        try:
            async with contextlib.aclosing(context.kernel.execute(code, prepare=prepare)) as lines:
                async for line in lines:
                    if unknown:
                        yield stderr_line(f"before this run, {unknown}\n")
                        unknown = ""
                    if line["type"] == "result" and context.language.displays_values:
                        line["is_main_result"] = True
                    yield line
        except KernelDiedError:
            yield {"type": "error", "name": "KernelDied", "value": context.loss(), "traceback": ""}


def _preparation(context: Context, around: Surroundings, only_now: Mapping[str, str]) -> str:
    """Return code that fits a kernel to the sandbox: its variables, and random numbers that no copy has.

    It sets only variables that differ, and takes back those of an earlier execution alone.
    """
    had, wanted = context.environment, {**around.environment, **only_now}
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if had.get(name) != value}
    # the kernel has inherited this program's
    changes |= {name: os.environ.get(name) for name in had if name not in wanted}
    context.environment = wanted
    parts = [context.language.environment(changes)]
    if context.machine_id != around.machine_id:
        context.machine_id = around.machine_id
        parts.append(context.language.seed())
    return "\n".join(part for part in parts if part)
