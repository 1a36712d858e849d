"""The egress policy of one sandbox, and its decisions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from atoll.errors import SandboxNotFoundError
from atoll.policy import Suggestion, check_policy, suggest
from atoll.protocol import DecisionsPage, EgressTest, Registries
from atoll.sdk._async.api import AsyncApi
from atoll.sdk._io_async import sleep
from atoll.types import EgressDecision, EgressPolicy, EgressVerdict, Policy
from atoll.types.internal import check_network, check_text

_POLL_S = 0.5


class AsyncEgress:
    """Tells the verdicts on a sandbox's requests, and the decisions of its policy. Nothing here wakes it."""

    def __init__(self, api: AsyncApi, path: str) -> None:
        self._api = api
        self._path = f"{path}/egress"

    async def test(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
        policy: EgressPolicy | None = None,
    ) -> EgressVerdict:
        """Return the verdict on a request from the sandbox. The server gets nothing.

        A name that the policy knows is resolved on the host, as for a connection of the sandbox. A name that
        leads to no address, or to one that no rule opens, is denied.

        Args:
            method: The method, such as ``GET``.
            url: The address. ``tcp://example.com:22`` asks about a connection that is not HTTP.
            headers: Headers of the request.
            body: Its body.
            policy: Judge by this policy instead of the sandbox's own.

        Raises:
            InvalidSpecError: The address or the policy is invalid.
            EdgeError: The process that judges requests does not answer.
        """
        for name, text in (("method", method), ("url", url)):
            check_text(name, text)
        checked(policy)
        wanted = EgressTest(method=method, url=url, headers=dict(headers or {}), body=body, network=policy)
        return await self._api.call("POST", f"{self._path}/test", EgressVerdict, wanted)

    async def registries(self) -> dict[str, tuple[str, ...]]:
        """Return the hosts that the sandbox reaches by the policy ``packages``; none under another policy.

        They come by the name of the package client that uses them on the sandbox's host. A client without hosts names
        no registry, and its packages are refused. ``ATOLL_PACKAGE_HOSTS`` stands for the hosts of that setting.
        """
        return (await self._api.call("GET", f"{self._path}/registries", Registries)).clients

    async def decisions(self, *, follow: bool = False) -> AsyncIterator[EgressDecision]:
        """Iterate over the decisions, oldest first.

        Args:
            follow: Continue with new decisions until the sandbox is killed.
        """
        offset, end = 0, None
        while True:
            try:
                page = await self._api.call("GET", f"{self._path}/decisions?offset={offset}", DecisionsPage)
            except SandboxNotFoundError:
                if offset and follow:
                    return
                raise
            stood, offset = offset, page.offset
            end = page.end if end is None else end
            for decision in page.decisions:
                yield decision
            if not follow and (offset >= end or offset == stood):
                return
            if offset == stood:
                await sleep(_POLL_S)

    async def suggest(self) -> Suggestion:
        """Return the smallest policy that covers what the sandbox has reached so far, to be read by a person.

        Let the sandbox work under a policy with ``mode="observe"`` first.
        """
        return suggest([decision async for decision in self.decisions()])


def checked(policy: EgressPolicy | None) -> None:
    """Refuse a value that is no policy, before it is sent.

    Raises:
        InvalidSpecError: It is no policy, or one of its rules is invalid or can never match.
    """
    if policy is not None:
        check_network(policy)
    if isinstance(policy, Policy):
        check_policy(policy)
