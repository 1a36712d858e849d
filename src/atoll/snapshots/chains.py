"""Long stacks, and which of their layers to merge. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Stack = tuple[str, ...]
"""Ids of frozen layers, the top one first, over an image."""

LONGEST = 16
_RUNS = range(8, 3, -1)


def run_to_merge(stack: Stack, size_bytes: Mapping[str, int]) -> Stack | None:
    """Return the neighbouring layers of a stack to merge, at most 8.

    None if it is not longer than ``LONGEST``. It picks the run whose biggest layer is smallest. In 1,000
    layers of one size, each byte is then copied four times.
    """
    if len(stack) <= LONGEST:
        return None
    runs = [stack[at : at + count] for count in _RUNS for at in range(len(stack) - count, -1, -1)]
    return min(runs, key=lambda run: (max(size_bytes[layer] for layer in run), -len(run)))


def replaced(stack: Stack, run: Stack, merged: str) -> Stack:
    """Return the stack with ``merged`` in place of a run of its layers; unchanged if it has no such run."""
    for at in range(len(stack) - len(run) + 1):
        if stack[at : at + len(run)] == run:
            return (*stack[:at], merged, *stack[at + len(run) :])
    return stack


class Merges:
    """The merged layers with which stacks can be shortened."""

    def __init__(self) -> None:
        self._made: dict[Stack, str] = {}

    def add(self, run: Stack, merged: str) -> None:
        """Note that a layer was merged from a run of others."""
        self._made[run] = merged

    def shorter(self, stack: Stack) -> Stack:
        """Return the stack with a merged layer wherever there is one."""
        for run, merged in self._made.items():
            stack = replaced(stack, run, merged)
        return stack

    def useful(self, stacks: Iterable[Stack]) -> set[str]:
        """Return the merged layers that can shorten one of these stacks."""
        found: set[str] = set()
        made = list(self._made.items())
        for stack in stacks:
            for run, merged in made:
                shorter = replaced(stack, run, merged)
                if shorter != stack:
                    found.add(merged)
                stack = shorter
        return found

    def forget_but(self, layers: set[str]) -> None:
        """Forget merged layers that are not among these."""
        self._made = {run: merged for run, merged in self._made.items() if merged in layers}
