"""One replacement in a file's bytes, and what to say when the old text is not there exactly once. Pure."""

from __future__ import annotations

import difflib

from atoll.errors import EditError, InvalidSpecError

_SHOWN_PLACES = 5
_SHOWN_LINES = 12
_SHOWN_CHARS = 160
# the file is the guest's, and made to it, the comparison of a line takes milliseconds
_SEEN_LINES = 20_000
_COMPARED_LINES = 100
_PLACES = 10
_ALIKE = 0.6


def edited(path: str, content: bytes, old: str, new: str) -> bytes:
    """Return the content with ``old`` replaced by ``new``.

    All bytes around it stay as they are, also those that are not UTF-8.

    Raises:
        InvalidSpecError: ``old`` is empty, or equals ``new``.
        EditError: ``old`` is not in the content exactly once. The message says where it is, or what is near.
    """
    for name, value in (("old", old), ("new", new)):
        if not isinstance(value, str):
            raise InvalidSpecError(f"{name} is no text", hint="give old and new as str")
    if not old:
        raise InvalidSpecError("old is empty", hint="give text of the file, or use `write` for a whole file")
    if old == new:
        raise InvalidSpecError("old and new are the same text", hint="give the text that shall replace old")
    sought = old.encode()
    count = content.count(sought)
    if count == 1:
        return content.replace(sought, new.encode(), 1)
    if count:
        raise EditError(
            f"the old text is in {path} {count} times, at line {_places(content, sought)}",
            hint="give more of the text around the one that you mean",
        )
    raise _missing(path, content.decode("utf-8", "replace"), old)


def _places(content: bytes, sought: bytes) -> str:
    lines: list[int] = []
    at = content.find(sought)
    while at >= 0 and len(lines) <= _SHOWN_PLACES:
        lines.append(content.count(b"\n", 0, at) + 1)
        at = content.find(sought, at + len(sought))
    shown = ", ".join(map(str, lines[:_SHOWN_PLACES]))
    return f"{shown}, ..." if len(lines) > _SHOWN_PLACES else shown


def _missing(path: str, text: str, old: str) -> EditError:
    if "\r\n" in text and old.replace("\r\n", "\n") in text.replace("\r\n", "\n"):
        return EditError(
            f"the old text is not in {path}: the lines of the file end with CR LF",
            hint=r"write its line ends as \r\n in old and new",
        )
    near = _near(text.splitlines(), old.splitlines() or [old])
    if near is None:
        return EditError(
            f"the old text is not in {path}, and nothing in it is like it", hint="read the file again"
        )
    return EditError(
        f"the old text is not in {path}. The nearest is from line {near[0]}:\n{near[1]}",
        hint="copy the text from the file, with its spaces",
    )


def _near(lines: list[str], sought: list[str]) -> tuple[int, str] | None:
    """Find the lines that are most like the sought ones: the number of the first, and their text."""
    wanted = [line.strip()[:_SHOWN_CHARS] for line in sought]
    # the line of the old text that says most is looked for; where it may be, the others are compared too
    offset = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    around = wanted[max(0, offset - _SHOWN_LINES // 2) :][:_SHOWN_LINES]
    lead = min(offset, _SHOWN_LINES // 2)

    def likeness(number: int) -> float:
        there = lines[max(0, number - lead) :][: len(around)]
        pairs = zip(around, there, strict=False)
        return sum(_ratio(line, other.strip()[:_SHOWN_CHARS]) for line, other in pairs)

    places = _alike(lines, wanted[offset])
    if not places:
        return None
    first = max(0, max(places, key=likeness) - offset)
    shown = lines[first : first + min(len(wanted), _SHOWN_LINES)]
    return first + 1, "\n".join(line[:_SHOWN_CHARS] for line in shown)


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def _alike(lines: list[str], wanted: str) -> list[int]:
    """Return the numbers of the few lines that are most like one line."""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    found: list[tuple[float, int]] = []
    left = _COMPARED_LINES
    for number, line in enumerate(lines[:_SEEN_LINES]):
        matcher.set_seq1(line.strip()[:_SHOWN_CHARS])
        if matcher.real_quick_ratio() > _ALIKE and matcher.quick_ratio() > _ALIKE:
            if (ratio := matcher.ratio()) > _ALIKE:
                found.append((-ratio, number))
            left -= 1
        if not left:
            break
    return [number for _, number in sorted(found)[:_PLACES]]
