"""A program for inside that stamps all of its memory again and again: private, shared with a child, and of a file.

It checks every page before it stamps it, so a memory that was not taken at one moment is noticed. Asked by a file
``ask-NAME``, it answers ``FAULTS ROUNDS`` in ``answer-NAME``.
"""

import mmap
import os

PAGE = 4096
PRIVATE_BYTES = 24 << 20
SHARED_BYTES = 2 << 20


def blocks() -> list[mmap.mmap]:
    """Private memory, memory shared with children, and a mapped file of memory."""
    file = os.open("/dev/shm/stamps", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.ftruncate(file, SHARED_BYTES)
    return [
        mmap.mmap(-1, PRIVATE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
        mmap.mmap(-1, SHARED_BYTES),
        mmap.mmap(file, SHARED_BYTES),
    ]


def stamp(name: str, memory: list[mmap.mmap]) -> None:
    """Stamp for ever, beginning at the second round."""
    rounds, faults = 1, 0
    while True:
        old, new = rounds.to_bytes(8, "little"), (rounds + 1).to_bytes(8, "little")
        for block in memory:
            for place in range(0, len(block), PAGE):
                faults += block[place : place + 8] != old
                block[place : place + 8] = new
        rounds += 1
        if os.path.exists(f"ask-{name}"):
            os.remove(f"ask-{name}")
            with open("answer", "w") as answer:
                answer.write(f"{faults} {rounds}")
            os.rename("answer", f"answer-{name}")


def main() -> None:
    """Stamp in two processes: the child shares all private pages with its parent until one of them writes."""
    memory = blocks()
    for block in memory:
        for place in range(0, len(block), PAGE):
            block[place : place + 16] = (1).to_bytes(8, "little") + os.urandom(8)
    os.mkdir("of-child")  # before anybody can ask there
    if os.fork():
        stamp("parent", memory)
    else:
        os.chdir("of-child")
        stamp("child", memory[:1])


if __name__ == "__main__":
    main()
