"""The metrics of the home, as the text that Prometheus reads, for its owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.sdk import AsyncHousekeeping
from atoll.server.e2b.answers import Refusal
from atoll.server.tokens import Tokens, bearer, same
from atoll.types import MetricFamily, MetricSample

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def prometheus_routes(
    tokens: Tokens, measured: Callable[[], Awaitable[list[MetricFamily]]] = AsyncHousekeeping.metrics
) -> Sequence[Route]:
    """Return ``/metrics``. No team's key opens it, because it tells of all teams."""

    async def metrics(request: Request) -> Response:
        if not same(bearer(request.headers) or "", tokens.metrics()):
            raise Refusal(401, "Invalid metrics token")
        return Response(prometheus_text(await measured()), media_type=_TEXT)

    return [Route("/metrics", metrics)]


def prometheus_text(families: Iterable[MetricFamily]) -> str:
    """Return metrics as text. One without a value is left out."""
    return "".join(line + "\n" for family in families if family.samples for line in _lines(family))


def _lines(family: MetricFamily) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        yield f"{_series(family.name, sample)} {_number(sample.value)}"


def _series(name: str, sample: MetricSample) -> str:
    name = f"{name}_{sample.part}" if sample.part else name
    labels = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in sample.labels.items())
    return f"{name}{{{labels}}}" if labels else name


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
