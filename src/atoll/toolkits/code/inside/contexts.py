"""The contexts: kernels with an id, whose variables stay between executions."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from .kernel import Kernel, KernelDiedError
from .languages import Language
from .results import Line

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
    os.makedirs(directory, exist_ok=True)
    return directory


class TooManyError(Exception):
    """There are as many contexts as there may be."""


class UnknownContextError(Exception):
    """No context has that id."""


@dataclass
class Context:
    """A kernel, and what clients know of it."""

    context_id: str
    language: Language
    cwd: str
    kernel: Kernel
    environment: dict[str, str] = field(default_factory=dict)

    def shown(self) -> dict[str, str]:
        """Return it as clients read it."""
        return {"id": self.context_id, "language": self.language.name, "cwd": self.cwd}


class Contexts:
    """All contexts. Each language has one of its own, for executions that name none.

    Args:
        cwd: Where contexts start that name no directory.
    """

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
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
        kernel = Kernel(language.kernel, directory)
        await kernel.start()
        made = Context(str(uuid.uuid4()), language, directory, kernel)
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
        """Start a context anew, without its variables.

        Raises:
            UnknownContextError: There is none of this id.
        """
        context = self.get(context_id)
        context.environment.clear()
        await context.kernel.restart()

    async def variables(self, context: Context) -> str:
        """Return the variables of a Python context, as JSON."""
        lines = [line async for line in context.kernel.execute(_VARIABLES_CODE, counted=False)]
        return "".join(line["text"] for line in lines if line["type"] == "stdout") or "[]"

    async def execute(
        self, context: Context, code: str, everywhere: Mapping[str, str], only_now: Mapping[str, str]
    ) -> AsyncIterator[Line]:
        """Run code and yield what comes of it.

        Args:
            context: Where.
            code: The code.
            everywhere: The sandbox's variables.
            only_now: Variables for this execution alone.
        """
        try:
            await self._set(context, {**everywhere, **only_now})
            async for line in context.kernel.execute(code):
                if line["type"] == "result" and context.language.displays_values:
                    line["is_main_result"] = True
                yield line
        except KernelDiedError:
            yield {
                "type": "error",
                "name": "KernelDied",
                "value": "the kernel ended, and its variables are gone; it was started again",
                "traceback": "",
            }
            context.environment.clear()

    async def _set(self, context: Context, wanted: Mapping[str, str]) -> None:
        """Change what differs from what the kernel has, and remove what an earlier execution alone had."""
        had = context.environment
        changes: dict[str, str | None] = {
            name: value for name, value in wanted.items() if had.get(name) != value
        }
        changes |= {name: None for name in had if name not in wanted}
        if changes and context.language.set_line:
            await context.kernel.quietly(context.language.environment(changes))
        context.environment = dict(wanted)
