"""How long one sandbox runs."""

from __future__ import annotations

from atoll.protocol import KeepAwakeRequest, LeaseRequest
from atoll.sdk._async.api import LONG_S, AsyncApi
from atoll.types import Lifecycle, SandboxInfo
from atoll.types.internal import check_number


class AsyncLeases:
    """Gives a sandbox the methods that say how long it runs."""

    _api: AsyncApi
    _path: str

    async def set_lease(self, ttl_s: float | None, *, extend_only: bool = False) -> SandboxInfo:
        """Make the lease end ``ttl_s`` seconds from now, whatever it was.

        The lifecycle says what happens then.

        This holds for the current run. The next resume begins a lease of the length in the lifecycle.

        Args:
            ttl_s: Seconds. 0 ends the lease now, and None removes it.
            extend_only: Do not change a lease that ends later or never.

        Raises:
            StateError: The sandbox sleeps. Give ``resume`` a ``ttl_s`` instead.
            InvalidSpecError: ``ttl_s`` is not a valid length.
            QuotaError: The team's quota does not allow such a lease.
        """
        Lifecycle(ttl_s=ttl_s).check()
        body = LeaseRequest(ttl_s=ttl_s, extend_only=extend_only)
        return await self._api.call("POST", f"{self._path}/lease", SandboxInfo, body, timeout_s=LONG_S)

    async def keep_awake(self, seconds: float) -> SandboxInfo:
        """Wake the sandbox, and let it count as active for this long, whatever it does.

        This concerns the idle times of its lifecycle, not its lease. It ends by itself, even if this process
        dies. Inside, a program does the same for up to an hour by writing seconds into
        ``/run/atoll/keep-awake``.

        Args:
            seconds: 0 to 86,400. 0 ends an earlier request.

        Raises:
            AsleepError: The sandbox sleeps, and use does not wake it.
            InvalidSpecError: ``seconds`` is invalid.
        """
        check_number("seconds", seconds, least=0, most=86_400, hint="give 0 to 86,400 seconds")
        body = KeepAwakeRequest(seconds=seconds)
        return await self._api.call("POST", f"{self._path}/keep-awake", SandboxInfo, body, timeout_s=LONG_S)
