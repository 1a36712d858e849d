"""Notes in the audit log each request that is more than a question."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.requests import Request

from atoll.errors import AtollError
from atoll.protocol import CALLER_HEADER, told_caller
from atoll.supervisor.state.acts import Acts
from atoll.supervisor.state.inventory import Inventory
from atoll.types import Delegation, Progress

_VERBS = {"POST": "create", "PUT": "replace", "DELETE": "delete"}
# Their bodies are too long for a query, so they are asked by POST. And what a client that has left never got.
_QUESTIONS = frozenset(
    {
        "audit.verify",
        "egress.test",
        "requests.delete",
        "sandboxes.diff",
        "sandboxes.network.test",
        "sandboxes.told",
        "snapshots.verify",
        "verified-images",
    }
)
# Verbs that stand alone in their path.
_ALONE = frozenset({"drain", "fsck", "unplug-all", "verified-images"})
Report = Callable[[Progress], None]
Work = Callable[[Report], Coroutine[Any, Any, object]]


class _Asked(NamedTuple):
    act: str
    caller: str | None
    named: dict[str, str]
    sandbox_id: str | None
    team: str | None
    delegation: str | None


@dataclass(eq=False, repr=False)
class RequestActs:
    """Notes requests. One is refused while the audit log cannot be written."""

    acts: Acts
    inventory: Inventory

    def noted(self, request: Request, work: Work) -> Work:
        """Return the work of a request, which notes how it ended."""
        asked = self._asked(request)
        if asked is None:
            return work

        async def noting(report: Report) -> object:
            self.acts.check()
            try:
                result = await work(report)
            except BaseException as error:
                self._note(asked, None, error)
                raise
            self._note(asked, result, None)
            return result

        return noting

    def refused(self, request: Request, error: Exception) -> None:
        """Note a request that was refused before its work began."""
        asked = self._asked(request)
        if asked is not None:
            self._note(asked, None, error)

    def _asked(self, request: Request) -> _Asked | None:
        route = request.scope.get("route")
        act = None if route is None else act_of(request.method, route.path)
        if act is None:
            return None
        named = {name: str(value) for name, value in request.path_params.items()}
        # Before the work, because a killed sandbox is not found any more.
        caller = told_caller(request.headers.get(CALLER_HEADER))
        return _Asked(act, caller, named, *self._sandbox(act, named))

    def _note(self, asked: _Asked, result: object, error: BaseException | None) -> None:
        sandbox_id = asked.sandbox_id or getattr(result, "sandbox_id", None)
        self.acts.asked(
            asked.act,
            caller=asked.caller,
            named={name: value for name, value in asked.named.items() if value != sandbox_id},
            sandbox_id=sandbox_id,
            team=asked.team or _team(asked.act, asked.named, result),
            delegation=asked.delegation or _delegation(result),
            error=error,
        )

    def _sandbox(self, act: str, named: dict[str, str]) -> tuple[str | None, str | None, str | None]:
        """The id of the sandbox that is named, its team, and what it acts under."""
        if not act.startswith("sandboxes.") or "ref" not in named:
            return None, None, None
        try:
            sandbox = self.inventory.sandbox(named["ref"])
        except AtollError:
            return None, None, None
        return sandbox.sandbox_id, sandbox.row.team, sandbox.row.delegation_uid


def act_of(method: str, path: str) -> str | None:
    """The act that a request to a route is: the nouns of its path, and a verb; None for a question."""
    parts = path.strip("/").split("/")
    words = [part for part in parts if part != "v1" and not part.startswith("{")]
    if method == "GET":
        return None
    is_named = parts[-1].startswith("{")
    # What follows a name is a verb by itself, as in ``/v1/sandboxes/{ref}/pause``.
    is_verb = not is_named and (len(words) > 1 or words[-1] in _ALONE)
    if method != "POST" or not is_verb:
        words.append("update" if method == "POST" and is_named else _VERBS[method])
    act = ".".join(words)
    return None if act in _QUESTIONS else act


def _team(act: str, named: dict[str, str], result: object) -> str | None:
    if act.startswith("teams."):
        return named.get("name") or getattr(result, "name", None)
    team = getattr(result, "team", None) or getattr(getattr(result, "info", None), "team", None)
    return team if isinstance(team, str) else None


def _delegation(result: object) -> str | None:
    delegation = getattr(result, "delegation", None)
    return delegation.uid if isinstance(delegation, Delegation) else None
