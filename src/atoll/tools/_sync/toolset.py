# Made by scripts/unasync.py from tools/_async/toolset.py: do not edit.
"""Tools on one sandbox, for a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal

from atoll.errors import AtollError, InvalidSpecError
from atoll.sdk import Sandbox
from atoll.tools._sync.code import CodeTools
from atoll.tools._sync.commands import CommandTools
from atoll.tools._sync.files import FileTools
from atoll.tools._sync.place import Place, PlaceTools
from atoll.tools._sync.services import ServiceTools
from atoll.tools._sync.snapshots import SnapshotTools
from atoll.tools.results import ToolResult
from atoll.tools.schema import Offer, checked, description_of, schema_of

TOOL_CLASSES = (CommandTools, FileTools, CodeTools, ServiceTools, SnapshotTools)


class Tool:
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

    def call(self, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Call it. A failure is in the result, for the model to act on: no error of atoll is raised.

        Args:
            arguments: A mapping, or JSON as a model writes it.
        """
        try:
            given = checked(self._function, arguments)
            answer: str | ToolResult = self._function(self._target(), **given)
        except AtollError as error:
            return ToolResult(f"{error.told_to('mcp')} [{error.code}]", is_error=True)
        return ToolResult(answer) if isinstance(answer, str) else answer


class Tools:
    """Tools on one sandbox. Iterating gives each as an ``Tool``.

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
        self, sandbox: Sandbox, *, only: Collection[str] | None = None, without: Collection[str] = ()
    ) -> None:
        self._place = Place(sandbox)
        every = [Tool(offer, kind, self._maker(kind)) for kind in TOOL_CLASSES for offer in kind.OFFERS]
        every += [
            Tool(offer, PlaceTools, lambda: PlaceTools(self._place))
            for offer in PlaceTools.OFFERS
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
    def sandbox(self) -> Sandbox:
        """The sandbox that the tools act on."""
        return self._place.sandbox

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the forwards of ports and kill the copies that were not kept. Idempotent."""
        self._place.close()

    def call(self, name: str, arguments: Mapping[str, Any] | str) -> ToolResult:
        """Call the tool of a name, as a model asked for it.

        Args:
            name: The tool's name.
            arguments: A mapping, or JSON as a model writes it.
        """
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult(f"there is no tool {name}: call one of {', '.join(self._tools)}", is_error=True)
        return tool.call(arguments)

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
