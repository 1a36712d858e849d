"""Requests that the edge holds until somebody has answered."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from atoll.types import Rule
from atoll.types.internal import converted

MOST_BODY_BYTES = 256 << 10
OPS = frozenset({"ask_body", "ask", "ask_count", "asked", "unanswered"})


class HeldRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and all equal ones, as the edge tells of them.

    Args:
        again: It was told before, perhaps to an earlier supervisor.
        rule: The index of the rule.
    """

    sandbox: str
    ask: str
    again: bool
    at: float
    deadline: float
    rule: int
    count: int
    digest: str
    scheme: str
    method: str
    host: str
    port: int
    path: str
    headers: list[tuple[str, str]]
    headers_left_out: int
    body_bytes: int


class HeldListener(Protocol):
    """Hears of held requests."""

    def held(self, request: HeldRequest, rule: Rule, body: bytes) -> None:
        """A request is held."""

    def counted(self, ask_id: str, count: int) -> None:
        """So many equal requests are held now."""

    def ended(self, ask_id: str, outcome: str, passed: int) -> None:
        """A request is held no more."""

    def unanswered(self, ask_id: str, error: str) -> None:
        """The edge did not take an answer."""

    def lost(self) -> None:
        """The edge has ended, and held requests with it."""


@dataclass(eq=False, repr=False)
class HeldTalk:
    """Understands what the edge says about held requests.

    Attributes:
        listener: Hears of them; None until there is one.
    """

    listener: HeldListener | None = None
    # The pieces of a body come one after the other, and then the ask that they belong to.
    _of: tuple[str, str] | None = field(default=None, init=False)
    _body: bytearray = field(default_factory=bytearray, init=False)

    def handle(self, message: Mapping[str, Any], rules: tuple[Rule, ...]) -> None:
        """Pass on a message about a sandbox with these rules.

        Raises:
            KeyError: A part of it is missing.
            ValueError: A part means nothing. ``msgspec.ValidationError`` is one.
        """
        op, ask_id = message["op"], str(message["ask"])
        key = (str(message["sandbox"]), ask_id)
        if op == "ask_body":
            self._keep(key, int(message["offset"]), message["part"])
        elif self.listener is None:
            pass
        elif op == "ask":
            body = self._take(key)
            told = {name: value for name, value in message.items() if name != "op"}
            request = converted(told, HeldRequest)
            if len(body) != request.body_bytes or not 0 <= request.rule < len(rules):
                raise ValueError("an ask came without its whole body, or without its rule")
            self.listener.held(request, rules[request.rule], body)
        elif op == "ask_count":
            self.listener.counted(ask_id, int(message["count"]))
        elif op == "asked":
            self.listener.ended(ask_id, str(message["outcome"]), int(message["passed"]))
        elif op == "unanswered":
            self.listener.unanswered(ask_id, str(message["error"])[:200])

    def lost(self) -> None:
        """Say that the edge has ended."""
        self._of, self._body = None, bytearray()
        if self.listener is not None:
            self.listener.lost()

    def _keep(self, key: tuple[str, str], offset: int, part: str) -> None:
        if offset == 0:
            self._of, self._body = key, bytearray()
        try:
            data = base64.b64decode(part, validate=True)
        except binascii.Error as error:
            raise ValueError(f"a piece of a body is no base64: {error}") from None
        if self._of != key or offset != len(self._body) or offset + len(data) > MOST_BODY_BYTES:
            raise ValueError("a piece of a body does not follow the one before")
        self._body += data

    def _take(self, key: tuple[str, str]) -> bytes:
        body = bytes(self._body) if self._of == key else b""
        self._of, self._body = None, bytearray()
        return body
