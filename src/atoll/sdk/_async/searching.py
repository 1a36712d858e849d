"""Searches the files of a sandbox. The guest writes the whole answer, so every part of it is bounded."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.errors import AgentError
from atoll.guest import Search, matches_from, search_end_from, search_files
from atoll.sdk._async.agent import SILENCE_S, AsyncAgent, AsyncFrames
from atoll.sdk._bytes import MIB
from atoll.sdk._deadline import Deadline
from atoll.types import SearchMatch, SearchResult
from atoll.types.internal import texts_of

MATCHES_BYTES = 8 * MIB
# JSON has six characters for some bytes, and names around the values
_FRAMES_BYTES = 64 * MIB


def globs_of(glob: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the globs of one argument."""
    if glob is None or isinstance(glob, str):
        glob = () if glob is None else (glob,)
    return tuple(texts_of("glob", glob))


async def searched(agent: AsyncAgent, wanted: Search, timeout_s: float | None) -> SearchResult:
    """Search and return the matches, sorted by path and line. Leaving early ends the search inside."""
    deadline = Deadline(timeout_s, silence_s=SILENCE_S)
    frames = AsyncFrames(await agent.open(search_files(wanted), deadline, repeatable=True))
    found: list[SearchMatch] = []
    size = 0
    try:
        while (frame := await frames.next()).kind != "x":
            size += len(frame.payload)
            found += matches_from(frame.payload)
            if len(found) > wanted.max_matches or size > _FRAMES_BYTES:
                raise AgentError("the guest agent sent more matches than asked for")
        end = search_end_from(frame.payload)
        await frames.until_end()
    finally:
        frames.close()
    if end.error:
        raise AgentError(f"the search failed inside: {end.error}", sandbox_id=agent.sandbox_id)
    found.sort(key=lambda match: (match.path, match.line))
    return SearchResult(
        matches=found, files_searched=end.files, unreadable_files=end.unreadable, truncated=end.truncated
    )
