"""The metrics of a home as the text that Prometheus reads."""

from __future__ import annotations

import ast
import asyncio
import re

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from atoll.server.api.prometheus import prometheus_routes, prometheus_text
from atoll.server.e2b.answers import Refusal, refused
from atoll.server.tokens import Tokens
from atoll.types import MetricFamily, MetricSample

TOKENS = Tokens(b"s" * 32)
LINE = re.compile(r"([a-z_:]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-z_]+)=("(?:[^"\\\n]|\\[\\n"])*")(?:,|$)')
FAMILIES = [
    MetricFamily(
        name="atoll_sandboxes",
        kind="gauge",
        help="Sandboxes that there are.",
        samples=[
            MetricSample(value=2, labels={"state": "running", "team": ""}),
            MetricSample(value=1, labels={"state": "suspended", "team": 'a"b\\c\nd'}),
        ],
    ),
    MetricFamily(name="nothing", kind="gauge", help="Nothing.", samples=[]),
    MetricFamily(
        name="usage",
        kind="summary",
        help="Tokens.",
        samples=[MetricSample(value=7.5, part="sum"), MetricSample(value=3.0, part="count")],
    ),
]


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The series of a text, as a reader of Prometheus' format finds them."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line)
            continue
        whole = LINE.fullmatch(line)
        assert whole is not None, line
        labels = LABEL.findall(whole[2] or "")
        found[whole[1], tuple((name, ast.literal_eval(value)) for name, value in labels)] = float(whole[3])
    return found


def test_each_value_has_a_line_with_its_labels() -> None:
    text = prometheus_text(FAMILIES)
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if line.startswith("# TYPE")] == [
        "# TYPE atoll_sandboxes gauge",
        "# TYPE usage summary",
    ]
    assert read(text) == {
        ("atoll_sandboxes", (("state", "running"), ("team", ""))): 2,
        ("atoll_sandboxes", (("state", "suspended"), ("team", 'a"b\\c\nd'))): 1,
        ("usage_sum", ()): 7.5,
        ("usage_count", ()): 3,
    }


def asked(given: str | None) -> httpx.Response:
    """The answer to a request with this authorization."""

    async def measured() -> list[MetricFamily]:
        return FAMILIES

    async def told(_: Request, refusal: Exception) -> Response:
        assert isinstance(refusal, Refusal)
        return refused(refusal)

    async def ask() -> httpx.Response:
        routes = list(prometheus_routes(TOKENS, measured))
        app = Starlette(routes=routes, exception_handlers={Refusal: told})
        headers = {} if given is None else {b"authorization": given.encode("latin-1")}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            return await client.get("/metrics", headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "given", [None, "Bearer", "Bearer e2b_x", f"Basic {TOKENS.metrics()}", "Bearer \xe9"]
)
def test_without_its_token_nobody_reads_them(given: str | None) -> None:
    assert asked(given).status_code == 401


def test_with_its_token_they_are_text() -> None:
    answer = asked(f"bearer {TOKENS.metrics()}")
    assert (answer.status_code, answer.text) == (200, prometheus_text(FAMILIES))
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert TOKENS.metrics() != Tokens(b"t" * 32).metrics()
