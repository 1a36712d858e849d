"""What the edge says of models: what it needs of budgets, what requests cost, and what it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from atoll.types.internal import converted

MODEL_OPS = frozenset({"need", "billed", "returned"})


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a request. ``input`` is without those of the cache."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0

    @property
    def tokens(self) -> int:
        """All of them, as budgets count them."""
        return self.input + self.cache_read + self.cache_write + self.output


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """It wants to spend at least so much more of a budget."""

    id: int
    budget: str
    tokens: int
    nanos: int


class Billed(msgspec.Struct, frozen=True, kw_only=True):
    """A request has ended, and this is what it cost.

    Args:
        at: When its reservation was made, in Unix seconds.
        asked: The model that the guest asked for.
        estimated: Whether the provider did not count it to its end.
        budgets: Where it was reserved.
    """

    id: int
    at: float
    sandbox: str
    asked: str
    provider: str
    model: str
    usage: ModelUsage
    nanos: int
    status: int
    ending: Literal["whole", "cut", "broken", "refused"]
    estimated: bool
    budgets: list[str]


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """It spends no more of this."""

    id: int
    budget: str
    tokens: int
    nanos: int


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What it may still spend of a budget, with what it has said and nobody has settled."""

    tokens: int = 0
    nanos: int = 0


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor has become its owner.

    Args:
        edge: The name of this process.
        budgets: What it holds of each budget.
    """

    edge: str
    budgets: dict[str, Holding]


ModelMessage = Need | Billed | Returned | Began
_KINDS: dict[str, type[ModelMessage]] = {
    "need": Need,
    "billed": Billed,
    "returned": Returned,
    "holds": Began,
}


class ModelListener(Protocol):
    """Hears of models, in the order in which the edge spoke."""

    def heard(self, message: ModelMessage) -> None:
        """The edge has said something. ``Began`` comes first, and says that answers to earlier ones are void."""


class Channel(Protocol):
    """Tells the edge something."""

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""

    def send_document(self, message: dict[str, Any], document: object) -> None:
        """Send a message with something of any size."""


@dataclass(eq=False, repr=False)
class ModelTalk:
    """Speaks with the edge of models. Each edge that starts learns which there are.

    Attributes:
        listener: Hears of what it says; None until there is one.
    """

    listener: ModelListener | None = field(default=None)
    _document: object = field(default=None, init=False)
    _channel: Channel | None = field(default=None, init=False)

    def offer(self, document: object) -> None:
        """Have the edge know the providers, their keys, the aliases and the prices from now on."""
        self._document = document
        if self._channel is not None:
            with contextlib.suppress(OSError):  # it ends, and the next one gets this
                self._channel.send_document({"op": "models"}, document)

    def begun(self, channel: Channel, holds: Mapping[str, Any] | None) -> None:
        """Speak with an edge that runs.

        Args:
            holds: What it holds of budgets. None is an edge without models.

        Raises:
            OSError: It has ended, or what it holds means nothing.
        """
        if holds is None:
            return
        self._channel = channel
        if self._document is not None:
            channel.send_document({"op": "models"}, self._document)
        try:
            self.handle(holds)
        except ValueError as error:
            raise OSError(f"what it holds of budgets means nothing: {error}") from None

    def ended(self) -> None:
        """Speak with no edge until the next one has begun."""
        self._channel = None

    def allot(self, number: int, budget: str, given: object) -> None:
        """Answer a ``Need`` with an allotment, as a struct. An edge that is gone does not hear of it."""
        self._tell({"op": "allot", "id": number, "budget": budget, **msgspec.to_builtins(given)})

    def give_back(self) -> bool:
        """Have the edge return all that no open request needs. False: none runs."""
        self._tell({"op": "give_back"})
        return self._channel is not None

    def settled(self, number: int) -> None:
        """Say that a message is on the disk."""
        self._tell({"op": "settled", "id": number})

    def handle(self, message: Mapping[str, Any]) -> None:
        """Pass on a message.

        Raises:
            ValueError: It means nothing. ``msgspec.ValidationError`` is one.
        """
        if self.listener is not None:
            told = {name: value for name, value in message.items() if name != "op"}
            self.listener.heard(converted(told, _KINDS[message["op"]]))

    def _tell(self, message: dict[str, Any]) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):  # it ends, and the next one says what it holds
                self._channel.send(message)
