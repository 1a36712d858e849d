#!/usr/bin/env python3
"""Serve a directory of wheels as a package index, on a free port of this machine: wheel_index.py DIRECTORY FILE

The address for pip's ``--index-url`` is written into FILE once it answers. It ends when it is killed. It needs
nothing but Python, so that it runs where nothing is installed yet.
"""

from __future__ import annotations

import functools
import hashlib
import html
import os
import re
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def project_of(wheel: Path) -> str:
    """The name of a wheel's project, as pip asks for it."""
    return re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower()


class Index(SimpleHTTPRequestHandler):
    """The simple API of Python's package indexes: a page for each project, with links to its wheels."""

    def do_GET(self) -> None:
        """Answer with the page of a project, or with a wheel."""
        asked = re.fullmatch(r"/simple/([a-z0-9-]+)/", self.path)
        if asked is None:
            super().do_GET()
            return
        wheels = [path for path in Path(self.directory).glob("*.whl") if project_of(path) == asked[1]]
        if not wheels:
            self.send_error(404)
            return
        page = "<!DOCTYPE html>\n" + "".join(link(path) for path in sorted(wheels))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page.encode())))
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@functools.cache
def link(wheel: Path) -> str:
    with wheel.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    name = html.escape(wheel.name)
    return f'<a href="/{name}#sha256={checksum}">{name}</a>\n'


def main() -> None:
    directory, told = sys.argv[1:]
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Index, directory=directory))
    aside = f"{told}.part"
    Path(aside).write_text(f"http://127.0.0.1:{server.server_port}/simple/\n")
    os.replace(aside, told)
    server.serve_forever()


if __name__ == "__main__":
    main()
