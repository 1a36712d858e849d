"""The read ahead: the memory of a restored guest that the sentry reads before the guest touches it.

The guest itself reads a page when it touches it, and waits. The sentry reads ahead one of three parts:

- With earlier pages, the pages for which the guest waited after its last wake, in that order. The rest stays
  in the files: a page that nobody reads needs no comparison at the next checkpoint.
- Without earlier pages, all pages, after a while.
- With ``MachinePlan.read_ahead`` False, nothing: copies of one checkpoint share the pages that none of them touches.
"""

from __future__ import annotations

from atoll.engines.base import MachinePlan

# Both annotations are atoll's own: see native/patches/lazy-pages, and touched-pages in
# native/patches/earlier-pages.
_ALL_PAGES_AFTER_MS = "atoll.read-ahead-after-ms"
_TOUCHED_PAGES = "atoll.read-touched"
# A guest that has just been restored needs the processors for its first answer.
_AFTER_MS = 300
_NEVER = -1


def read_ahead_annotations(plan: MachinePlan) -> dict[str, str]:
    """Return the annotations that tell the sentry what to read ahead."""
    has_earlier_pages = plan.earlier_pages is not None
    return {
        _ALL_PAGES_AFTER_MS: str(_AFTER_MS if plan.read_ahead and not has_earlier_pages else _NEVER),
        _TOUCHED_PAGES: str(plan.read_ahead and has_earlier_pages).lower(),
    }
