"""A tiny notebook kernel that runs inside the sandbox: it keeps variables in memory and answers on a port.

Each connection sends one piece of Python and gets back what it printed, so any client, at any later time,
talks to the same process with the same variables.
"""

import contextlib
import io
import socketserver
import traceback

VARIABLES: dict[str, object] = {}


class Cell(socketserver.StreamRequestHandler):
    """One connection: code in until the client ends its half, printed text out."""

    def handle(self) -> None:
        """Run the code among the variables that earlier cells left."""
        code = self.rfile.read().decode()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(code, VARIABLES)
            except Exception:
                traceback.print_exc(file=printed)
        self.wfile.write(printed.getvalue().encode())


with socketserver.TCPServer(("0.0.0.0", 7000), Cell) as server:
    print("ready", flush=True)
    server.serve_forever()
