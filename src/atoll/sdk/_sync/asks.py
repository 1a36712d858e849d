# Made by scripts/unasync.py from sdk/_async/asks.py: do not edit.
"""The acts of sandboxes that wait for a person's answer."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlencode

from atoll.errors import AskNotFoundError, AtollError, InvalidSpecError, SupervisorError
from atoll.sdk._sync.api import Api
from atoll.sdk._sync.page_stream import PageStream
from atoll.sdk._io_sync import Background, call, sleep
from atoll.types import Answer, Ask, AskPage
from atoll.types.internal import check_number, check_text

_AGAIN_S = 0.5
_SETTLE_S = 30.0
_log = logging.getLogger("atoll")

_Asks = list[Ask]
# A name of one word, which the sync SDK's generator unwraps.
_Verdict = bool | Answer | None
Decide = Callable[[Ask], _Verdict] | Callable[[Ask], _Verdict]
"""Answers an ask: True approves it once, False denies it, and None leaves it to others."""


class Asks:
    """Shows what waits for an answer, and answers it. The first answer counts."""

    @staticmethod
    def list(*, sandbox: str | None = None) -> _Asks:
        """List the asks that wait, oldest first, without their bodies.

        Args:
            sandbox: Only those of the sandbox with this id or name.
        """
        with contextlib.closing(Api()) as api:
            return (api.call("GET", f"/v1/asks{_query(sandbox)}", AskPage)).asks

    @staticmethod
    def get(ask_id: str) -> Ask:
        """Return an ask that waits with its body, or one that has ended lately without it.

        Raises:
            AskNotFoundError: There is none.
        """
        check_text("ask_id", ask_id)
        with contextlib.closing(Api()) as api:
            return api.call("GET", _path(ask_id), Ask)

    @staticmethod
    def follow(*, sandbox: str | None = None) -> Iterator[Ask]:
        """Iterate over the asks that wait and then over new ones, each once, with its body. It never ends.

        While it runs, somebody is there who can answer: without anybody, requests are refused at once.

        Args:
            sandbox: Only those of the sandbox with this id or name.

        Raises:
            SandboxNotFoundError: There is no such sandbox, or none any more.
        """
        with (
            contextlib.closing(Api()) as api,
            contextlib.closing(Following(api, sandbox)) as following,
        ):
            for ask in following:
                yield ask

    @staticmethod
    def approve(ask: Ask, *, for_s: float = 0.0, always: bool = False) -> Ask:
        """Let exactly the act pass that was shown, and return the ask as it is then.

        If the rule demands two approvals, it waits on for the other one. Its ``outcome`` is ``pending`` then.

        Args:
            ask: The ask, as it was shown.
            for_s: For so many seconds, let further requests with the same method, host, path and query pass,
                whatever their bodies are.
            always: Write the rule ``ask.always`` into the sandbox's policy.

        Raises:
            AskNotFoundError: Somebody has answered before, or its time is over.
            AskAnswerError: The same key or user has approved it already, or the edge has not confirmed it.
            InvalidSpecError: ``for_s`` is invalid, or no rule can allow just this.
        """
        check_number("for_s", for_s, least=0, hint="give seconds, or 0 for this one alone")
        return _answer(ask, Answer(digest=ask.digest, allow=True, for_s=for_s, always=always))

    @staticmethod
    def deny(ask: Ask, reason: str = "") -> Ask:
        """Refuse the act, and return the ask as it is then.

        Args:
            ask: The ask.
            reason: A sentence for the agent, of at most 500 characters.

        Raises:
            AskNotFoundError: Somebody has answered before, or its time is over.
            InvalidSpecError: The reason is no plain line.
        """
        check_text("reason", reason)
        return _answer(ask, Answer(digest=ask.digest, allow=False, reason=reason))


class Following:
    """Iterates over asks as they come, across restarts of the supervisor."""

    def __init__(self, api: Api, sandbox: str | None) -> None:
        self._api = api
        self._path = f"/v1/asks/follow{_query(sandbox)}"
        self._pages = PageStream(api, AskPage)
        self._first: AskPage | None = None
        self._ended = False

    def begin(self) -> None:
        """Have asks come from now on: from here on, somebody is there who can answer."""
        self._first = self._pages.begin(self._path)

    def __iter__(self) -> Iterator[Ask]:
        shown: set[str] = set()
        while not self._ended:
            try:
                if self._first is None:
                    self.begin()
                while (page := self._first or self._pages.next()) is not None:
                    self._first = None
                    waiting = {ask.ask_id for ask in page.asks}
                    for ask in page.asks:
                        if ask.ask_id not in shown and (whole := self._whole(ask.ask_id)) is not None:
                            yield whole
                    shown = waiting
            except AtollError as error:
                if self._ended:
                    return
                if not isinstance(error, SupervisorError):
                    raise
            if not self._ended:
                sleep(_AGAIN_S)

    def _whole(self, ask_id: str) -> Ask | None:
        """An ask with its body; None if it has ended meanwhile."""
        try:
            ask = self._api.call("GET", _path(ask_id), Ask)
        except AskNotFoundError:
            return None
        return ask if ask.outcome == "pending" else None

    def end(self) -> None:
        """End the iteration, from any thread or task."""
        self._ended = True
        self._pages.abort()

    def close(self) -> None:
        """Drop what was not read."""
        self._pages.close()


class Answering:
    """Answers the asks of a sandbox by a function, while the context lasts."""

    def __init__(self, sandbox_id: str, decide: Decide) -> None:
        if not callable(decide):
            raise InvalidSpecError(
                "on_ask takes a function", hint="give one that takes an Ask and returns a bool"
            )
        self._sandbox_id = sandbox_id
        self._decide = decide
        self._background = Background()
        self._api: Api | None = None
        self._following: Following | None = None

    def __enter__(self) -> None:
        self._api = Api()
        self._following = Following(self._api, self._sandbox_id)
        try:
            self._following.begin()
        except BaseException:
            self._api.close()
            raise
        self._background.__enter__()
        self._background.start(self._run, self._following)

    def __exit__(self, *error: object) -> None:
        if self._following is not None:
            self._following.end()
        try:
            self._background.__exit__(*error)  # type: ignore[arg-type]
        finally:
            if self._following is not None:
                self._following.close()
            if self._api is not None:
                self._api.close()

    def _run(self, following: Following) -> None:
        try:
            for ask in following:
                self._background.start(self._one, ask)
        except AtollError as error:  # the sandbox is killed
            _log.info("asks of sandbox %s are not answered any more: %s", self._sandbox_id, error)

    def _one(self, ask: Ask) -> None:
        try:
            said = call(self._decide, ask)
        except Exception:  # a person or the deadline decides then
            _log.exception("the function for ask %s failed", ask.ask_id)
            return
        if said is None:
            return
        answer = said if isinstance(said, Answer) else Answer(digest=ask.digest, allow=said is True)
        try:
            _answer(ask, answer)
        except AskNotFoundError:
            return  # somebody else was faster
        except AtollError as error:
            _log.warning("the answer to ask %s does not count: %s", ask.ask_id, error)


def _answer(ask: Ask, answer: Answer) -> Ask:
    with contextlib.closing(Api()) as api:
        path = f"{_path(ask.ask_id)}/answer"
        return api.call("POST", path, Ask, answer, timeout_s=_SETTLE_S)


def _path(ask_id: str) -> str:
    return f"/v1/asks/{quote(ask_id, safe='')}"


def _query(sandbox: str | None) -> str:
    if sandbox is None:
        return ""
    check_text("sandbox", sandbox)
    return f"?{urlencode({'sandbox': sandbox})}"
