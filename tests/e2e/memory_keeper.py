"""A program for inside that keeps memory of random bytes: `python3 memory_keeper.py MIB`.

It answers to the file ``ask`` in ``answer``. ``change N`` renews the first N MiB, ``spread`` one page in each MiB, and
``sum`` tells the checksum of everything.
"""

import hashlib
import mmap
import os
import sys
import time

MIB = 1 << 20


def main() -> None:
    """Serve for ever."""
    size = int(sys.argv[1])
    memory = mmap.mmap(-1, size * MIB)
    for number in range(size):
        memory[number * MIB : (number + 1) * MIB] = os.urandom(MIB)
    tell("ready")
    while True:
        if not os.path.exists("ask"):
            time.sleep(0.01)
            continue
        with open("ask") as ask:
            what, *numbers = ask.read().split()
        os.remove("ask")
        if what == "change":
            for number in range(int(numbers[0])):
                memory[number * MIB : (number + 1) * MIB] = os.urandom(MIB)
        elif what == "spread":
            for number in range(size):
                memory[number * MIB : number * MIB + mmap.PAGESIZE] = os.urandom(mmap.PAGESIZE)
        tell(hashlib.sha256(memory).hexdigest() if what == "sum" else "done")


def tell(text: str) -> None:
    """Answer."""
    with open("answer.new", "w") as answer:
        answer.write(text)
    os.rename("answer.new", "answer")


if __name__ == "__main__":
    main()
