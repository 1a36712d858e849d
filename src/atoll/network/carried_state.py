"""The relay's knowledge of one guest."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from atoll.network.channel import Message
from atoll.network.flows import Flow
from atoll.network.relay import Relay
from atoll.types.internal import converted


class CarriedState:
    """The relay's knowledge of one guest. While no relay runs, it is the knowledge of a new one.

    Args:
        relay: The relay of the home.
        link_id: The relay's name for the guest.
    """

    def __init__(self, relay: Relay, link_id: str) -> None:
        self.relay = relay
        self._link_id = link_id

    @property
    def is_fresh(self) -> bool:
        """Whether the guest got data only a moment ago, and may have had no time to handle it."""
        return bool(self._asked("fresh", False))

    @property
    def is_asking(self) -> bool:
        """Whether it waits for an answer about a name."""
        return bool(self._asked("asked", False))

    @property
    def owes_servers(self) -> bool:
        """Whether something that the guest has sent, or a connection that it wants, has not got out yet."""
        return bool(self._asked("owes", False))

    def flows(self) -> list[Flow]:
        """Return the connections that are open now."""
        return converted(self._asked("flows", []), list[Flow])

    def kept(self, known: Collection[Flow]) -> int | None:
        """The number of the guest's connections if all would only be reset; None if it has others.

        Args:
            known: The connections that are reset if the relay no longer carries this guest.
        """
        answer = self._asked("kept", 0, document=list(known))
        return None if answer is None else int(answer)

    async def names(self) -> dict[str, str]:
        """Return the name of each address that the guest was given, the least recently used first.

        Raises:
            OSError: The relay does not run, and does not start.
        """
        await self.relay.start()
        answer = self.relay.call({**self._message("ask"), "what": "names"})
        return {each["address"]: each["name"] for each in answer["content"]["names"]}

    def _asked(self, what: str, otherwise: Any, *, document: object = None) -> Any:
        try:
            answer = self.relay.call({**self._message("ask"), "what": what}, document=document)
        except (ConnectionError, TimeoutError):
            return otherwise
        return answer["content"][what]

    def _message(self, op: str) -> Message:
        return {"op": op, "link": self._link_id}
