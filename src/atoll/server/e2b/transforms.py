"""Changes of requests, as E2B's clients ask for them in ``network.rules``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from atoll.policy import is_internal, matches_host, plain_pattern
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.wire import NetworkRule
from atoll.types import Inject, Rule

NO_IDENTITY = "Sandbox IAM workload tokens are not available for your team."
_HOSTS_MOST = 10
_HOST_CHARS_MOST = 128
_TRANSFORMS_MOST = 1
_HEADERS_MOST = 20
_NAME_CHARS_MOST = 64
_VALUE_BYTES_MOST = 2048
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SECRET = re.compile(r"\$\{e2b\.secrets\.([A-Za-z0-9_-]{1,128})\}")
_IDENTITY = re.compile(r"\$\{e2b\.identity\.tokens\.[^{}\x00-\x1f]+\}")


@dataclass(frozen=True)
class Change:
    """The changes to requests to the hosts of a pattern. A client may also ask for no change."""

    host: str
    set_headers: dict[str, str] = field(default_factory=dict)
    inject: tuple[Inject, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether anything is changed."""
        return bool(self.set_headers or self.inject)

    def rule(self, hosts: tuple[str, ...], addresses: tuple[str, ...] = ()) -> Rule:
        """Return the rule that allows requests there, with the change."""
        return Rule(
            name=f"rules of {self.host}",
            hosts=hosts,
            addresses=addresses,
            set_headers=self.set_headers,
            inject=self.inject,
        )


def changes_of(rules: Mapping[str, list[NetworkRule]] | None) -> list[Change]:
    """Return the changes asked for, in the order in which they are tried.

    An exact name is before the patterns, and the longest pattern before the others.

    Raises:
        Refusal: A rule is invalid (400), or asks for more than this server supports (501).
    """
    asked = rules or {}
    if len(asked) > _HOSTS_MOST:
        raise Refusal(400, f"Network rules can have at most {_HOSTS_MOST} domains.")
    changes: dict[str, Change] = {}
    for domain, given in asked.items():
        change = _change(domain, given)
        if change.host in changes:
            raise Refusal(400, f'Rule domain "{domain}" is given twice.')
        changes[change.host] = change
    ordered = sorted(changes.values(), key=lambda change: (change.host.startswith("*"), -len(change.host)))
    # an empty change matters only as an exception
    return [
        one
        for one in ordered
        if one.changes or any(covers(other.host, one.host) for other in ordered if other.changes)
    ]


def covers(pattern: str, other: str) -> bool:
    """Whether this pattern matches every name of the other. Neither is ``*``."""
    return pattern == other or (pattern.startswith("*.") and matches_host(pattern, other.removeprefix("*.")))


def _change(domain: str, given: list[NetworkRule]) -> Change:
    host = _host(domain)
    if len(given) > _TRANSFORMS_MOST:
        raise Refusal(400, f'Domain "{domain}" can have at most {_TRANSFORMS_MOST} transform rule.')
    headers = next((rule.transform.headers or {} for rule in given if rule.transform is not None), {})
    if len(headers) > _HEADERS_MOST:
        raise Refusal(400, f'Domain "{domain}" can have at most {_HEADERS_MOST} headers per rule.')
    if len({name.lower() for name in headers}) < len(headers):
        raise Refusal(400, f'Domain "{domain}" has a header twice, in upper and lower case.')
    plain: dict[str, str] = {}
    inject: list[Inject] = []
    for name, value in headers.items():
        _check_header(domain, name, value)
        secret = _secret(domain, name, value)
        if secret is None:
            plain[name] = value
        else:
            inject.append(secret)
    return Change(host, plain, tuple(inject))


def _host(domain: str) -> str:
    if not domain:
        raise Refusal(400, "Rule domain must not be empty.")
    if len(domain) > _HOST_CHARS_MOST:
        raise Refusal(400, f'Rule domain "{domain}" exceeds maximum length of {_HOST_CHARS_MOST} characters.')
    host = plain_pattern(domain)
    # a rule that names this host, or a sandbox, would open ports of it
    if host is None or host == "*" or is_internal(host):
        raise Refusal(400, f'Rule domain "{domain}" is not a valid domain name.')
    return host


def _check_header(domain: str, name: str, value: str) -> None:
    if not name:
        raise Refusal(400, f'Header name in rule for domain "{domain}" must not be empty.')
    where = f'in rule for domain "{domain}"'
    if len(name) > _NAME_CHARS_MOST:
        raise Refusal(
            400,
            f'Header name "{name[:80]}" {where} exceeds maximum length of {_NAME_CHARS_MOST} characters.',
        )
    if not _TOKEN.fullmatch(name):
        raise Refusal(400, f'Header name "{name}" {where} must contain only valid HTTP token characters.')
    if _CONTROL.search(value):
        raise Refusal(400, f'Value for header "{name}" {where} contains invalid characters.')
    if len(value.encode()) > _VALUE_BYTES_MOST:
        raise Refusal(
            400,
            f'Value for header "{name}" {where} exceeds maximum length of {_VALUE_BYTES_MOST} characters.',
        )


def _secret(domain: str, name: str, value: str) -> Inject | None:
    """Return the injection of the secrets of a header's value; None for a value without a secret."""
    where = f'for header "{name}" in rule for domain "{domain}"'
    if _has_malformed(value):
        raise Refusal(400, f"Value {where} has a malformed placeholder.")
    if _IDENTITY.search(value):
        raise Refusal(400, NO_IDENTITY)
    if not _SECRET.search(value):
        return None
    texts = _SECRET.split(value)  # a text, a name, a text, …
    parts = [f"{{{part.lower()}}}" if at % 2 else _plain(part) for at, part in enumerate(texts)]
    return Inject(key=name, format="".join(parts))


def _plain(text: str) -> str:
    """A text as it stands for itself in a format."""
    return text.replace("{", "{{").replace("}", "}}")


def _has_malformed(value: str) -> bool:
    begins = (found.start() for found in re.finditer(r"\$\{e2b\.", value))
    return any(not _SECRET.match(value, begin) and not _IDENTITY.match(value, begin) for begin in begins)
