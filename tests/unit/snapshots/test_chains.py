from __future__ import annotations

from collections import defaultdict

from atoll.snapshots import Merges, replaced, run_to_merge


def test_a_short_stack_is_left_alone() -> None:
    assert run_to_merge(tuple("abcdefghijklmnop"), defaultdict(int)) is None


def test_the_smallest_neighbours_are_merged_and_the_oldest_of_those() -> None:
    stack = tuple("abcdefghijklmnopq")
    assert run_to_merge(stack, dict.fromkeys(stack, 1)) == tuple("jklmnopq")
    assert run_to_merge(stack, {**dict.fromkeys(stack, 1), "m": 100}) == tuple("efghijkl")


def test_a_run_is_replaced_wherever_it_lies() -> None:
    assert replaced(tuple("abcd"), ("b", "c"), "M") == ("a", "M", "d")
    assert replaced(tuple("abcd"), ("a", "b", "c", "d"), "M") == ("M",)


def test_a_stack_with_a_part_of_the_run_stays() -> None:
    assert replaced(tuple("bcd"), ("a", "b"), "M") == ("b", "c", "d")
    assert replaced((), ("a", "b"), "M") == ()


def test_a_chain_that_grows_for_ever_stays_short_and_copies_each_byte_a_few_times() -> None:
    sizes: dict[str, int] = {}
    stack: tuple[str, ...] = ()
    copied = 0
    for number in range(1000):
        sizes[f"s{number}"] = 1
        stack = (f"s{number}", *stack)
        if run := run_to_merge(stack, sizes):
            sizes[f"m{number}"] = sum(sizes[layer] for layer in run)
            copied += sizes[f"m{number}"]
            stack = replaced(stack, run, f"m{number}")
        assert len(stack) <= 16
    assert copied < 4 * 1000


def test_merged_layers_shorten_stacks_until_they_are_forgotten() -> None:
    merges = Merges()
    merges.add(("a", "b"), "M")
    merges.add(("M", "c"), "N")
    merges.add(("x", "y"), "Z")
    assert merges.shorter(tuple("abcd")) == ("N", "d")
    assert merges.useful([tuple("abcd"), tuple("bcd")]) == {"M", "N"}
    merges.forget_but({"M"})
    assert merges.shorter(tuple("abcd")) == ("M", "c", "d")
    assert merges.shorter(tuple("xy")) == ("x", "y")
