"""Turns the paths of requests that were seen into a few patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MOST_SIBLINGS = 8
MOST_PATHS = 64
_DEEPEST = 16
_LONGEST_SEGMENT = 64
_ID = re.compile(r"\d+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{7,}")
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[a-z])((?=.*[A-Z])[A-Za-z0-9_=-]{16,}|[a-z0-9]{20,})")

_Tree = dict[str, "_Tree"]
_END = "/"
"""The key of a path that ends here: no segment has this text."""


def path_patterns(paths: Iterable[str]) -> tuple[str, ...]:
    """Return patterns that match all of these paths, without query; each begins with ``/``.

    Numbers, hashes and other ids become ``*``. Where more than 8 segments follow the same beginning, ``/**``
    takes their place.
    """
    tree: _Tree = {}
    for path in paths:
        branch = tree
        for segment in path.removeprefix("/").split("/"):
            branch = branch.setdefault(_general(segment), {})
        branch[_END] = {}
    depth = _DEEPEST
    while len(found := sorted(_patterns(tree, "", depth))) > MOST_PATHS:
        depth -= 1
    return tuple(found)


def _general(segment: str) -> str:
    is_id = len(segment) > _LONGEST_SEGMENT or _ID.fullmatch(segment) or _RANDOM.fullmatch(segment)
    return "*" if is_id else segment


def _patterns(tree: _Tree, prefix: str, depth: int) -> Iterator[str]:
    """The patterns of a tree whose segments come after the prefix, which has no last ``/``."""
    if _END in tree:
        yield prefix
    below = [segment for segment in tree if segment != _END]
    if below and (depth == 0 or len(below) > MOST_SIBLINGS):
        yield f"{prefix}/**"
        return
    ids_end_here = _END in tree.get("*", {})
    for segment in below:
        matched = ids_end_here and segment not in ("*", "") and set(tree[segment]) == {_END}
        if not matched:  # by the * beside it
            yield from _patterns(tree[segment], f"{prefix}/{segment}", depth - 1)
