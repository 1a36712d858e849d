"""Policies as text: TOML and JSON, with errors that say where."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from atoll.errors import InvalidSpecError
from atoll.policy.check import fault_of
from atoll.types import Policy
from atoll.types.internal import converted

_HEADER = re.compile(r"""\s*\[\[\s*(?:rules|"rules"|'rules')\s*\]\]""")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_IN_RULE = re.compile(r"`\$\.rules\[(\d+)\]")
_LINE_CHARACTERS = 100
_Place = Callable[[int], str]


def policy_from_text(text: str) -> Policy:
    """Return the policy of a text in JSON, which begins with a brace, or in TOML, checked.

    Raises:
        InvalidSpecError: The text is neither, is no valid policy, or has no key at all: a file that is empty
            by mistake would deny everything.
    """
    read, place = _read_json(text) if text.lstrip().startswith("{") else _read_toml(text)
    if not read:
        raise InvalidSpecError(
            "the policy is empty: it has no rule, so it denies everything",
            hint="`none` denies everything, and `internet` allows it; `atoll docs network` shows rules",
        )
    return _policy(read, place)


def policy_from_toml(text: str) -> Policy:
    """Return the policy of a TOML text, checked.

    Raises:
        InvalidSpecError: The text is no TOML, or no valid policy; the message says in which line the rule
            concerned begins.
    """
    return _policy(*_read_toml(text))


def policy_from_json(text: str | bytes) -> Policy:
    """Return the policy of a JSON text, checked.

    Raises:
        InvalidSpecError: The text is no JSON, has a key twice, or is no valid policy.
    """
    return _policy(*_read_json(text))


def to_toml(policy: Policy) -> str:
    """Return a policy as TOML that ``policy_from_toml`` reads; defaults are left out."""
    fields: dict[str, Any] = msgspec.to_builtins(policy)
    rules = fields.pop("rules", ())
    proxy = fields.pop("proxy", None)
    blocks = [_table("", fields)] if fields else []
    blocks += [_table("[proxy]", proxy)] if proxy else []
    blocks += [_table("[[rules]]", rule) for rule in rules]
    return "\n".join(blocks)


def _read_toml(text: str) -> tuple[object, _Place]:
    """Return the content of the text, and a function that gives the line of a rule."""
    try:
        read = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError(f"the policy is no TOML: {error}") from None
    rules = read.get("rules")
    count = len(rules) if isinstance(rules, list) else 0
    lines = [number for number, line in enumerate(text.splitlines(), 1) if _HEADER.match(line)]
    # Rules of an inline array, or a text that looks like a rule: the number of the rule must do.
    return read, lambda rule: f"line {lines[rule]}: " if len(lines) == count else ""


def _read_json(text: str | bytes) -> tuple[object, _Place]:
    try:
        return json.loads(text, object_pairs_hook=_once), lambda _: ""
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError(f"the policy is no JSON: {error}") from None


def _policy(read: object, place: _Place) -> Policy:
    try:
        policy = converted(read, Policy)
    except msgspec.ValidationError as error:
        found = _IN_RULE.search(str(error))
        number = int(found[1]) if found else None
        where = "" if number is None else f"{place(number)}rule {number + 1}: "
        raise InvalidSpecError(
            f"{where}{error}", hint="`atoll docs reference/policy` has every key"
        ) from None
    if (fault := fault_of(policy)) is not None:
        where = "" if fault.rule is None else place(fault.rule)
        raise InvalidSpecError(f"{where}{fault.text}", hint=fault.hint)
    return policy


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return found


def _table(header: str, fields: Mapping[str, Any]) -> str:
    lines = [header] if header else []
    for key, value in fields.items():
        line = f"{_key(key)} = {_value(value)}"
        if isinstance(value, list | tuple) and len(line) > _LINE_CHARACTERS:
            line = "\n".join([f"{_key(key)} = [", *(f"  {_value(each)}," for each in value), "]"])
        lines.append(line)
    return "\n".join(lines) + "\n"


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _value(text)


def _value(value: Any) -> str:
    if isinstance(value, str):
        # JSON escapes every character that TOML wants escaped, except one.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)
