"""Seals the passwords of upstream proxies before policies are stored, and opens them for the relay."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from atoll.errors import AtollError, InvalidSpecError
from atoll.policy import SEALED, login_of, with_password
from atoll.secrets import Belonging, Vault
from atoll.types import EgressPolicy, Policy
from atoll.types.internal import PASSWORD_MASK

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class ProxyPasswords:
    """Seals and opens them. A sealed one opens only for its team, its proxy and its user.

    Args:
        vault: Returns the home's vault, made now if ``may_create`` says so and the home has no secrets.
    """

    vault: Callable[..., Vault]

    async def seal(
        self, network: EgressPolicy, team: str | None, before: EgressPolicy | None = None
    ) -> EgressPolicy:
        """Return the stored form of a checked policy.

        Args:
            team: The team whose sandbox it is for.
            before: The stored policy that it replaces, whose password ``***`` stands for.

        Raises:
            InvalidSpecError: The password is ``***``, and there is none before it for this proxy and user.
            HostError: The key cannot be made or used.
        """
        if not isinstance(network, Policy) or network.proxy is None:
            return network
        place, password = login_of(network.proxy)
        if password is None:
            return network
        if password == PASSWORD_MASK:
            sealed = _sealed_before(place, before)
        else:
            vault = await asyncio.to_thread(self.vault, may_create=True)
            data = vault.seal(password, _belonging(team, place))
            sealed = SEALED + base64.urlsafe_b64encode(data).decode().rstrip("=")
        return _replaced(network, sealed)

    def open(self, network: EgressPolicy, team: str | None) -> EgressPolicy:
        """Return a stored policy as the relay uses it. A password that cannot be opened stays sealed."""
        if not isinstance(network, Policy) or network.proxy is None:
            return network
        place, password = login_of(network.proxy)
        if password is None or not password.startswith(SEALED):
            return network
        text = password.removeprefix(SEALED)
        try:
            data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return _replaced(network, self.vault().open(data, _belonging(team, place)))
        except (AtollError, ValueError) as error:
            _log.warning("the password of an upstream proxy cannot be opened: %s", type(error).__name__)
            return network


def _sealed_before(place: str, before: EgressPolicy | None) -> str:
    if isinstance(before, Policy) and before.proxy is not None:
        old_place, sealed = login_of(before.proxy)
        # To send it to another proxy would give it away.
        if old_place == place and sealed is not None:
            return sealed
    raise InvalidSpecError(
        "the proxy's password is masked, and no password is stored for this proxy and user",
        hint="write the password in place of ***",
    )


def _replaced(network: Policy, password: str) -> Policy:
    if network.proxy is None:
        return network
    return msgspec.structs.replace(network, proxy=with_password(network.proxy, password))


def _belonging(team: str | None, place: str) -> Belonging:
    fixed: dict[str, Any] = {"version": 1, "hosts": (), "canary": False}
    # No secret has such an id, so none opens in its place.
    return Belonging(team=team, secret_id="proxy", name=place, **fixed)
