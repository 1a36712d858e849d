"""What the edge says of requests that belong to a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from atoll.network.model_talk import ModelUsage
from atoll.types.internal import converted

_Count = Annotated[int, Meta(ge=0, le=1 << 53)]
_Micros = Annotated[int, Meta(ge=0, le=4_000_000_000_000_000)]


class ModelSpan(msgspec.Struct, frozen=True, kw_only=True):
    """What a request to the gateway of models was.

    Args:
        operation: As OpenTelemetry names it; empty if it has no name for it.
        asked: The model that the guest asked for.
        provider: The provider that has served it, by its name in the home; empty if none has.
        dialect: Whose API the provider speaks.
        name: The model that has served it.
        estimated: Whether the provider did not count the tokens to the end.
    """

    operation: str
    asked: str
    provider: str
    dialect: str
    name: str
    usage: ModelUsage
    estimated: bool


class EdgeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has ended.

    Args:
        trace: The id of its trace, as the guest says.
        parent: The id of the span that it belongs to, as the guest says.
        began_us: When it began, in Unix microseconds.
        took_us: How long it took, in microseconds.
        status: The status of the answer; 0 if there was none.
        action: What the policy decided; empty if no rule has judged it.
        rule: The name or number of the rule; empty if there is none.
        sent_bytes: The size of its body.
        received_bytes: The size of the answer's body.
        error: The code of a refusal, or ``aborted``; empty if the answer came to its end.
        model: What it was, if it was to a model.
    """

    trace: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    parent: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    began_us: _Micros
    took_us: _Micros
    method: str
    scheme: str
    host: str
    port: int
    status: int
    action: str
    rule: str
    sent_bytes: _Count
    received_bytes: _Count
    error: str
    model: ModelSpan | None = None


SpanListener = Callable[[str, Sequence[EdgeSpan]], None]


@dataclass(eq=False, repr=False)
class SpanTalk:
    """Understands what the edge says of spans.

    Attributes:
        listener: Called with the id of a sandbox and its spans. Without one the edge makes none.
    """

    listener: SpanListener | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the edge is to tell of spans."""
        return self.listener is not None

    def handle(self, message: Mapping[str, Any]) -> None:
        """Pass on a message.

        Raises:
            KeyError: A part of it is missing.
            ValueError: It means nothing. ``msgspec.ValidationError`` is one.
        """
        if self.listener is not None:
            self.listener(str(message["sandbox"]), converted(message["spans"], list[EdgeSpan]))
