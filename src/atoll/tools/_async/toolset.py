"""Tools on one sandbox, for a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal

from atoll.errors import AtollError, InvalidSpecError
from atoll.sdk import AsyncSandbox
from atoll.tools._async.code import AsyncCodeTools
from atoll.tools._async.commands import AsyncCommandTools
from atoll.tools._async.files import AsyncFileTools
from atoll.tools._async.place import AsyncPlace, AsyncPlaceTools
from atoll.tools._async.services import AsyncServiceTools
from atoll.tools._async.snapshots import AsyncSnapshotTools
from atoll.tools.results import ToolResult
from atoll.tools.schema import Offer, checked, description_of, schema_of

TOOL_CLASSES = (AsyncCommandTools, AsyncFileTools, AsyncCodeTools, AsyncServiceTools, AsyncSnapshotTools)


class AsyncTool:
    """A tool for a model.

    Args:
        offer: Its method, and the method's effect on a sandbox.
        target: Makes the object whose method is called.

    Attributes:
        name: Its name.
        title: Its title for people.
        description: Its description for a model.
        parameters: The JSON schema of its arguments, an object.
        reads: Whether it changes nothing.
        destroys: Whether it erases something for good.
    """

    def __init__(self, offer: Offer, kind: type[Any], target: Callable[[], object]) -> None:
        self._function: Callable[..., Any] = getattr(kind, offer.name)
        self._target = target
        self.name = offer.name
        self.title = offer.title
        self.reads = offer.reads
        self.destroys = offer.destroys
        self.description = description_of(self._function)
        self.parameters = schema_of(self._function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def call(self, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Call it. A failure is in the result, for the model to act on: no error of atoll is raised.

        Args:
            arguments: A mapping, or JSON as a model writes it.
        """
        try:
            given = checked(self._function, arguments)
            answer: str | ToolResult = await self._function(self._target(), **given)
        except AtollError as error:
            return ToolResult(f"{error.told_to('mcp')} [{error.code}]", is_error=True)
        return ToolResult(answer) if isinstance(answer, str) else answer


class AsyncTools:
    """Tools on one sandbox. Iterating gives each as an ``AsyncTool``.

    This is a context manager. Its end also ends the forwards of ports, and kills copies that were tried and
    not kept. The sandbox goes on.

    Args:
        sandbox: The sandbox to act on.
        only: The names of the tools for the model; None means all that the sandbox supports.
        without: The names of tools to leave out.

    Raises:
        InvalidSpecError: A name belongs to no tool.
    """

    def __init__(
        self, sandbox: AsyncSandbox, *, only: Collection[str] | None = None, without: Collection[str] = ()
    ) -> None:
        self._place = AsyncPlace(sandbox)
        every = [AsyncTool(offer, kind, self._maker(kind)) for kind in TOOL_CLASSES for offer in kind.OFFERS]
        every += [
            AsyncTool(offer, AsyncPlaceTools, lambda: AsyncPlaceTools(self._place))
            for offer in AsyncPlaceTools.OFFERS
        ]
        names = [tool.name for tool in every]
        unknown = sorted({*(only or ()), *without} - set(names))
        if unknown:
            raise InvalidSpecError(
                f"there is no tool {', '.join(unknown)}", hint=f"choose of {', '.join(names)}"
            )
        self._tools = {
            tool.name: tool
            for tool in every
            if (only is None or tool.name in only) and tool.name not in without
        }

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox that the tools act on."""
        return self._place.sandbox

    def __iter__(self) -> Iterator[AsyncTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> AsyncTool:
        return self._tools[name]

    async def __aenter__(self) -> AsyncTools:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the forwards of ports and kill the copies that were not kept. Idempotent."""
        await self._place.close()

    async def call(self, name: str, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Call the tool of a name, as a model asked for it.

        Args:
            name: The tool's name.
            arguments: A mapping, or JSON as a model writes it.
        """
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult(f"there is no tool {name}: call one of {', '.join(self._tools)}", is_error=True)
        return await tool.call(arguments)

    def as_openai(self, api: Literal["responses", "chat"] = "responses") -> list[dict[str, Any]]:
        """Return the ``tools`` argument for OpenAI's APIs.

        Args:
            api: ``responses``, or ``chat`` for Chat Completions and its imitations.
        """
        if api not in ("responses", "chat"):
            raise InvalidSpecError(f"there is no api {api!r}", hint="give responses or chat")
        described = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in self
        ]
        if api == "chat":
            return [{"type": "function", "function": each} for each in described]
        return [{"type": "function", "strict": False, **each} for each in described]

    def as_anthropic(self) -> list[dict[str, Any]]:
        """Return the ``tools`` argument for Anthropic's Messages API."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
            for tool in self
        ]

    def _maker(self, kind: type[Any]) -> Callable[[], object]:
        return lambda: kind(self._place.sandbox)
