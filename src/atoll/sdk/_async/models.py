"""The models that a home offers to its sandboxes, and what was used of them."""

from __future__ import annotations

import contextlib
from urllib.parse import urlencode

from atoll.sdk._async.api import AsyncApi
from atoll.types import ModelPrices, ModelReport, ModelSetup
from atoll.types.internal import check_kind, check_text


class AsyncModels:
    """Sets which models sandboxes may use, and shows what they have used.

    A sandbox has models with ``hosting=Hosting(models=ModelAccess(…))``. Inside, the libraries of OpenAI and Anthropic
    find them by their variables, without a key.
    """

    @staticmethod
    async def get() -> ModelSetup:
        """Return the models that the home offers. It has names of secrets, and not the keys."""
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/models", ModelSetup)

    @staticmethod
    async def set(setup: ModelSetup) -> ModelSetup:
        """Offer these models from now on, in place of all before, also to sandboxes that run.

        Raises:
            SecretNotFoundError: The home has no secret of a name.
            InvalidSpecError: A key is bound to other hosts than its provider's, or is a canary.
        """
        check_kind("setup", setup, ModelSetup)
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("PUT", "/v1/models", ModelSetup, setup)

    @staticmethod
    async def usage(
        *, sandbox: str | None = None, team: str | None = None, since: str | None = None
    ) -> ModelReport:
        """Return what was used in the last three months, and how far budgets are used now.

        Args:
            sandbox: Only by the sandbox with this id or name. A killed one has its id.
            team: Only by the sandboxes of this team.
            since: Only from this day on in UTC, as ``2026-11-28``.

        Raises:
            InvalidSpecError: ``since`` is no day.
        """
        given = {"sandbox": sandbox, "team": team, "since": since}
        query = {name: value for name, value in given.items() if value is not None}
        for name, value in query.items():
            check_text(name, value)
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", f"/v1/models/usage?{urlencode(query)}", ModelReport)

    @staticmethod
    async def prices() -> ModelPrices:
        """Return the prices by which models are charged here, and the age of the table that they come from."""
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/models/prices", ModelPrices)
