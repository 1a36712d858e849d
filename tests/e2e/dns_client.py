"""Runs inside a sandbox: asks the name server again and again over one TCP connection.

The file ``STATE`` always has the number of answers, or the name of the error that ended the connection.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

NAME_SERVER = ("10.254.0.1", 53)
STATE = "/tmp/answers"  # noqa: S108
QUESTION = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + b"\x04name\x07invalid\x00" + struct.pack(">2H", 1, 1)


def tell(text: str) -> None:
    """Write the state, never half of it."""
    aside = Path(f"{STATE}.new")
    aside.write_text(text)
    os.rename(aside, STATE)


def main() -> None:
    """Ask until the connection ends."""
    with socket.create_connection(NAME_SERVER) as connection:
        answers = connection.makefile("rb")
        count = 0
        while True:
            try:
                connection.sendall(struct.pack(">H", len(QUESTION)) + QUESTION)
                (length,) = struct.unpack(">H", answers.read(2))
                answers.read(length)
            except (OSError, struct.error) as error:
                tell(type(error).__name__)
                return
            count += 1
            tell(str(count))
            time.sleep(0.1)


if __name__ == "__main__":
    main()
