# Made by scripts/unasync.py from sdk/_async/secrets.py: do not edit.
"""The secrets of a home."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from atoll.protocol import SecretRequest, SecretUpdate
from atoll.sdk._sync.api import Api, ref
from atoll.sdk._sync.volumes import team_query
from atoll.types import SecretInfo
from atoll.types.internal import check_secret_value, copied, texts_of

_Secrets = list[SecretInfo]


class Secrets:
    """Keeps values that no sandbox sees. A policy's rule puts them into requests, outside the sandbox.

    A secret has an id, and a name that is unique among those of its team; None means no team. Where a method
    takes either, it looks for a name among those of ``team``. No method returns a value.
    """

    @staticmethod
    def create(
        name: str,
        value: str,
        *,
        hosts: Iterable[str] = (),
        metadata: Mapping[str, str] | None = None,
        canary: bool = False,
        team: str | None = None,
    ) -> SecretInfo:
        """Store a secret, encrypted.

        Args:
            name: 1 to 128 letters, digits, ``-`` and ``_``; upper and lower case are the same.
            value: 1 byte to 64 KiB of text, in one line.
            hosts: The only hosts that may ever get the value, such as ``api.example.com`` and
                ``*.example.com``. Empty means that policies decide.
            metadata: Labels.
            canary: Make it a fake: a sandbox that sends it is unplugged.
            team: The team that owns the secret. Only its sandboxes can use it.

        Raises:
            InvalidSpecError: The name, the value, a host or a label is invalid.
            NameTakenError: Another secret of the team has that name.
            TeamNotFoundError: There is no such team.
            HostError: The key that encrypts secrets cannot be used.
        """
        body = SecretRequest(
            name=name,
            value=check_secret_value(value),
            hosts=_patterns(hosts),
            metadata=copied("metadata", metadata),
            canary=canary,
            team=team,
        )
        with contextlib.closing(Api()) as api:
            return api.call("POST", "/v1/secrets", SecretInfo, body)

    @staticmethod
    def list(*, team: str | None = None) -> _Secrets:
        """List the secrets of the home, or of one team, oldest first."""
        with contextlib.closing(Api()) as api:
            return api.call("GET", f"/v1/secrets{team_query(team)}", _Secrets)

    @staticmethod
    def get(id_or_name: str, *, team: str | None = None) -> SecretInfo:
        """Return the info of a secret, without its value.

        Raises:
            SecretNotFoundError: No secret has that id or name.
        """
        with contextlib.closing(Api()) as api:
            return api.call("GET", _path(id_or_name, team), SecretInfo)

    @staticmethod
    def update(
        id_or_name: str,
        value: str | None = None,
        *,
        hosts: Iterable[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        team: str | None = None,
    ) -> SecretInfo:
        """Replace a secret's value, its hosts or its labels.

        None leaves one as it is. From now on requests get the new value, also those of sandboxes that run
        already.

        Raises:
            SecretNotFoundError: No secret has that id or name.
            InvalidSpecError: Something given is invalid, or nothing is given.
        """
        body = SecretUpdate(
            value=None if value is None else check_secret_value(value),
            hosts=None if hosts is None else _patterns(hosts),
            metadata=None if metadata is None else copied("metadata", metadata),
        )
        with contextlib.closing(Api()) as api:
            return api.call("POST", _path(id_or_name, team), SecretInfo, body)

    @staticmethod
    def delete(id_or_name: str, *, team: str | None = None) -> None:
        """Erase a secret. Rules that name it refuse their requests from now on.

        Raises:
            SecretNotFoundError: No secret has that id or name.
        """
        with contextlib.closing(Api()) as api:
            api.delete(_path(id_or_name, team))


def _path(id_or_name: str, team: str | None) -> str:
    return f"/v1/secrets/{ref(id_or_name)}{team_query(team)}"


def _patterns(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return names of hosts as they are sent.

    Raises:
        InvalidSpecError: They are one text, or not texts.
    """
    return tuple(texts_of("hosts", hosts, hint='give a list, such as ["api.example.com"]'))
