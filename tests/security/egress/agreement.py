"""What the wire does with a request, and what the test of a policy says that it does."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from hypothesis import strategies as st

from atoll.errors import InvalidSpecError
from atoll.policy import check_policy
from atoll.supervisor.lifecycle.egress_control import EgressControl
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.types import Policy, Rule
from tests.integration.network.testbed import PUBLIC
from tests.security.egress.ground import EVIL, GOOD, Ground

_HOSTS = ((), (GOOD,), ("*.example.com",), ("*",), (EVIL,))
_PATHS = ((), ("/a",), ("/a/*",), ("/**",), ("/A/**", "/b"))
_PORTS = ((), ("plain",), ("tls",), ("plain", "tls"), ("1-65535",))
_INSIDE = "10.9.9.9"
_RANGES = (("198.51.100.0/24",), ("203.0.113.0/24",), ("10.9.0.0/16",), ("10.0.0.0/8", "198.51.100.7"))
_TARGETS = (
    "/", "/a", "/A", "/a/b", "/a/../b", "/a/%2e%2e/b", "/a%2Fb", "//a", "/a;x=1", "/a/b;x", "/%61", "/a%252fb", "/a%00",
    "/a/b%5cc", "/a?q=1", "/a?q=2", "/a?q=1&q=2", "/a?q=1;q=2", "/a?Q=1", "/a?_method=DELETE",
    "/a/%", "/a/%C3%A9", "/a/%ff",
)  # fmt: skip
_BODIES = (
    "",
    '{"model": "a"}',
    '{"model": "b"}',
    '{"model": "a", "model": "b"}',
    '{"Model": "a"}',
    "model=a",
    "[1",
)
_HEADERS: tuple[dict[str, str], ...] = (
    {}, {"X-A": "1"}, {"X-A": "2"}, {"X_A": "1"}, {"X-A": "1", "X_A": "2"}, {"X-HTTP-Method-Override": "DELETE"},
    {"Content-Encoding": "gzip"}, {"X-Original-URL": "/b"}, {"Connection": "x-a", "X-A": "1"},
)  # fmt: skip
_TYPES = ("", "application/json", "application/json; charset=utf-16", "text/plain")


def _rules() -> st.SearchStrategy[dict[str, Any]]:
    optional = {
        "methods": st.sampled_from((("GET",), ("POST",), ("GET", "POST"), ("DELETE",))),
        "paths": st.sampled_from(_PATHS),
        "query": st.just({"q": ("1",)}),
        "headers": st.just({"x-a": ("1",)}),
        "max_body_bytes": st.sampled_from((0, 14)),
        "json": st.just({"model": ("a",)}),
        "protocol": st.sampled_from(("tcp", "http")),
        "addresses": st.sampled_from(_RANGES),
    }
    return st.fixed_dictionaries(
        {
            "action": st.sampled_from(("allow", "allow", "allow", "deny", "unplug")),
            "hosts": st.sampled_from(_HOSTS),
            "ports": st.sampled_from(_PORTS),
            "told": st.booleans(),
        },
        optional=cast(Any, optional),
    )


def _requests() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "secured": st.booleans(),
            "host": st.sampled_from((GOOD, GOOD, GOOD, EVIL)),
            "method": st.sampled_from(("GET", "POST", "DELETE", "get", "TRACE")),
            "target": st.sampled_from(_TARGETS),
            "headers": st.sampled_from(_HEADERS),
            "type": st.sampled_from(_TYPES),
            "body": st.sampled_from(_BODIES),
        }
    )


def cases() -> st.SearchStrategy[dict[str, Any]]:
    """Policies, each with a few requests, as ``agree`` takes them."""
    return st.fixed_dictionaries(
        {
            "rules": st.lists(_rules(), min_size=1, max_size=5),
            "mode": st.sampled_from(("enforce", "enforce", "enforce", "observe")),
            "passthrough": st.sampled_from(((), (), (GOOD,))),
            "leads": st.sampled_from(
                (PUBLIC, PUBLIC, PUBLIC, _INSIDE, None)
            ),  # None: the name does not exist
            "requests": st.lists(_requests(), min_size=3, max_size=5),
        }
    )


async def agree(ground: Ground, text: str) -> None:
    """Make the requests of a case, and ask about each of them.

    Raises:
        AssertionError: The wire did something else than the test of the policy said.
    """
    case = json.loads(text)
    policy = _policy(case, ground)
    control = _control(ground)
    ground.apply(policy)
    if case["leads"] is None:
        del ground.names.names[GOOD]
    else:
        ground.names_change(good=case["leads"])
    for asked in case["requests"]:
        port = ground.tls_port if asked["secured"] else ground.port
        headers = {**asked["headers"], **({"Content-Type": asked["type"]} if asked["type"] else {})}
        scheme = "https" if asked["secured"] else "http"
        question = {
            "scheme": scheme,
            "method": asked["method"],
            "url": f"{scheme}://{asked['host']}:{port}{asked['target']}",
            "headers": [list(pair) for pair in headers.items()],
            "body": base64.b64encode(asked["body"].encode()).decode() if asked["body"] else None,
        }
        verdict = await control.judge(policy, None, question, asked["host"], port)
        expected = verdict.action == "allow" or verdict.observed
        passed, rule = await _made(ground, asked, port, headers)
        assert passed == expected, f"{policy}\n{question}\nthe test says {verdict}, the wire passed: {passed}"
        if rule is not None and not verdict.observed:
            said = None if verdict.rule is None else f"r{verdict.rule}"
            assert rule == (said or ""), (
                f"{policy}\n{question}\nthe test says {verdict}, the wire says {rule!r}"
            )


def _policy(case: dict[str, Any], ground: Ground) -> Policy:
    """The policy, without the rules that could never match."""
    ports = {"plain": ground.port, "tls": ground.tls_port}
    policy = Policy(mode=case["mode"], passthrough=tuple(case["passthrough"]))
    for rule in case["rules"]:
        name = f"r{len(policy.rules)}"
        made = {**rule, "name": name, "ports": [ports.get(port, port) for port in rule["ports"]]}
        if made.pop("told") and made["action"] == "allow":
            made["set_headers"] = {"X-Rule": name}
        more = msgspec.structs.replace(policy, rules=(*policy.rules, msgspec.convert(made, Rule)))
        with contextlib.suppress(InvalidSpecError):
            check_policy(more)
            policy = more
    return policy


async def _made(
    ground: Ground, asked: dict[str, Any], port: int, headers: dict[str, str]
) -> tuple[bool, str | None]:
    """Whether a request passed, and by which rule that was decided, if the wire tells."""
    ground.expects = True
    before = len(ground.raw())
    lines = {"Host": f"{asked['host']}:{port}", **headers, "Connection": "close"}
    if "Connection" in headers:
        lines["Connection"] = f"close, {headers['Connection']}"
    if asked["body"]:
        lines["Content-Length"] = str(len(asked["body"]))
    head = f"{asked['method']} {asked['target']} HTTP/1.1\r\n"
    text = head + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n" + asked["body"]
    address = await ground.address(asked["host"])
    if asked["secured"]:
        heard = await ground.talk_tls(address, asked["host"], text.encode())
    else:
        heard = await ground.talk(address, port, text.encode())
    status, _, rest = heard.partition(b"\r\n")
    if b" 200 " in status:
        sent = ground.raw()[before:]
        told = sent.partition(b"X-Rule: ")[2].partition(b"\r\n")[0].decode()
        return True, told or None
    if b"application/json" in rest:
        refusal = json.loads(rest.partition(b"\r\n\r\n")[2])
        return False, refusal["rule"] or ""
    return False, None


def _control(ground: Ground) -> EgressControl:
    return EgressControl(
        inventory=cast(Any, None),
        teams=cast(Any, SimpleNamespace(follow=lambda _: None, ceiling_of=lambda _: None)),
        secrets=cast(Any, SimpleNamespace(follow=lambda _: None, canaries_for=lambda _: {})),
        decisions=cast(Any, None),
        alarms=cast(Any, None),
        inspection=ground.inspection,
        relay=ground.relay,
        passwords=cast(Any, None),
        models=cast(Any, SimpleNamespace(follow=lambda _: None)),
        registries=PackageRegistries(dict),
        clock=time.time,
    )
