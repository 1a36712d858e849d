"""The names that OpenTelemetry gives to the use of models. Only this file has them, as they may still change.

They are those of its semantic conventions for generative AI. There, the tokens of a cache are among those of the input,
and here they are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - the name of a metric
_TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
_PROVIDER, _MODEL = "gen_ai.provider.name", "gen_ai.request.model"
_INPUT, _OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
_OF_INPUT = {
    "cache_read": "gen_ai.usage.cache_read.input_tokens",
    "cache_write": "gen_ai.usage.cache_creation.input_tokens",
}
_ATTRIBUTES = {
    "operation": "gen_ai.operation.name",
    "provider": _PROVIDER,
    "model": _MODEL,
    "served": "gen_ai.response.model",
    "output": _OUTPUT,
    **_OF_INPUT,
}

_Fact = TypeVar("_Fact", bound=str | int | float | None)


def gen_ai_attributes(details: Mapping[str, _Fact]) -> dict[str, _Fact | int]:
    """A request to a model with the names of OpenTelemetry.

    Args:
        details: What is known of it, under the audit log's names, and the model that was ``served``. A fact
            for which OpenTelemetry has no name keeps its own.
    """
    named: dict[str, _Fact | int] = {
        _ATTRIBUTES.get(name, name): value for name, value in details.items() if name != "input"
    }
    if "input" in details:
        named[_INPUT] = sum(_count(details.get(name)) for name in ("input", *_OF_INPUT))
    return named


def gen_ai_labels(
    provider: str, model: str, tokens: Literal["input", "output"] | None = None
) -> dict[str, str]:
    """The labels of a metric about a model, as Prometheus spells the names.

    Args:
        tokens: Which tokens it counts, if it counts tokens.
    """
    labels = {_PROVIDER: provider, _MODEL: model}
    if tokens is not None:
        labels[_TOKEN_TYPE] = tokens
    return {prometheus_name(name): value for name, value in labels.items()}


def prometheus_name(name: str) -> str:
    """A name of OpenTelemetry as Prometheus spells it."""
    return name.replace(".", "_")


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
