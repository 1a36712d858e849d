"""A program for inside that takes, writes, copies and gives back memory at random, and knows what each page has.

`python3 page_keeper.py MIB SEED`. Each page has the stamp of its last write, or zeros. What it knows is in its memory
too, so after a wake, a fork or a rollback all must still fit together. Asked by a file ``ask``, it looks at every page
and answers ``FAULTS ROUNDS`` in ``answer``; what it found at fault is in ``faults``.
"""

import mmap
import os
import random
import sys

PAGE = 4096
MOST_PAGES = 512
ZEROS = bytes(PAGE)
PRIVATE, SHARED, MEMORY_FILE, DISK_FILE = range(4)


class Block:
    """Some pages of one kind, and the number of the write that each was last written by; 0 is zeros."""

    numbers = 0

    def __init__(self, kind: int, pages: int) -> None:
        Block.numbers += 1
        self.number = Block.numbers
        self.kind = kind
        self.writes = [0] * pages
        size = pages * PAGE
        if kind == PRIVATE:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        elif kind == SHARED:
            self.memory = mmap.mmap(-1, size)
        else:
            path = f"{'/dev/shm' if kind == MEMORY_FILE else '/tmp'}/block-{os.getpid()}-{self.number}"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.unlink(path)
            os.ftruncate(file, size)
            self.memory = mmap.mmap(file, size)
            os.close(file)

    def due(self, page: int) -> bytes:
        """What a page must have."""
        write = self.writes[page]
        return b"%08x%08x" % (self.number, write * MOST_PAGES + page) * (PAGE // 16) if write else ZEROS

    def write(self, page: int, number: int) -> None:
        """Write a page anew."""
        self.writes[page] = number
        self.memory[page * PAGE : (page + 1) * PAGE] = self.due(page)

    def faults(self) -> list[str]:
        """The pages that have something else."""
        found = []
        for page in range(len(self.writes)):
            there = self.memory[page * PAGE : (page + 1) * PAGE]
            if there != self.due(page):
                at = next(
                    at for at in range(0, PAGE, 16) if there[at : at + 16] != self.due(page)[at : at + 16]
                )
                has, due = there[at : at + 16], self.due(page)[at : at + 16]
                found.append(
                    f"kind {self.kind} block {self.number} page {page} at {at}: {has!r}, not {due!r}"
                )
        return found


class Keeper:
    """All blocks, and what is done with them."""

    def __init__(self, pages: int, seed: int) -> None:
        self.most = pages
        self.dice = random.Random(seed)
        self.blocks: list[Block] = []
        self.number = 0
        self.rounds = 0
        self.found: list[str] = []

    def run(self) -> None:
        """Go on for ever."""
        actions = [self.take, self.give, self.renew, self.renew, self.drop, self.look, self.look, self.copy]
        while True:
            self.dice.choice(actions)()
            self.rounds += 1
            if os.path.exists("ask"):
                os.remove("ask")
                for block in self.blocks:
                    self.check(block)
                self.tell("answer", f"{len(self.found)} {self.rounds}")

    def take(self) -> None:
        """Take memory, and write to most of it."""
        pages = self.dice.randint(1, MOST_PAGES)
        while self.blocks and sum(len(block.writes) for block in self.blocks) + pages > self.most:
            self.give()
        block = Block(self.dice.choice([PRIVATE, PRIVATE, PRIVATE, SHARED, MEMORY_FILE, DISK_FILE]), pages)
        self.blocks.append(block)
        self.number += 1
        for page in range(pages):
            if self.dice.random() < 0.9:
                block.write(page, self.number)

    def give(self) -> None:
        """Give memory back, and look at it for the last time."""
        if self.blocks:
            block = self.blocks.pop(self.dice.randrange(len(self.blocks)))
            self.check(block)
            block.memory.close()

    def renew(self) -> None:
        """Write to some pages."""
        if self.blocks:
            block = self.dice.choice(self.blocks)
            self.number += 1
            for _ in range(self.dice.randint(1, 64)):
                block.write(self.dice.randrange(len(block.writes)), self.number)

    def drop(self) -> None:
        """Give back the pages of a range, and keep the range: what is private is zeros then."""
        private = [block for block in self.blocks if block.kind == PRIVATE]
        if private:
            block = self.dice.choice(private)
            first = self.dice.randrange(len(block.writes))
            count = self.dice.randint(1, len(block.writes) - first)
            block.memory.madvise(mmap.MADV_DONTNEED, first * PAGE, count * PAGE)
            block.writes[first : first + count] = [0] * count

    def look(self) -> None:
        """Look at some memory."""
        if self.blocks:
            self.check(self.dice.choice(self.blocks))

    def copy(self) -> None:
        """Have a child look at some memory that it shares, while both write to it."""
        private = [block for block in self.blocks if block.kind == PRIVATE]
        if not private:
            return
        block, seed = self.dice.choice(private), self.dice.random()
        child = os.fork()
        if not child:
            dice = random.Random(seed)
            found = block.faults()
            for _ in range(16):
                block.write(dice.randrange(len(block.writes)), 1)
            os._exit(min(100, len(found + block.faults())))
        self.number += 1
        for _ in range(16):
            block.write(self.dice.randrange(len(block.writes)), self.number)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            self.note([f"a child: {code} faults, in block {block.number}"])
        self.check(block)

    def check(self, block: Block) -> None:
        """Look at every page of a block."""
        self.note(block.faults())

    def note(self, faults: list[str]) -> None:
        """Remember what is wrong."""
        self.found += faults
        if faults:
            self.tell("faults", "\n".join(self.found[:100]) + "\n")

    def tell(self, path: str, text: str) -> None:
        """Write a file at once."""
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.rename(f"{path}.new", path)


if __name__ == "__main__":
    Keeper((int(sys.argv[1]) << 20) // PAGE, int(sys.argv[2])).run()
