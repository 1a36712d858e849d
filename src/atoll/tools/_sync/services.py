# Made by scripts/unasync.py from tools/_async/services.py: do not edit.
"""Tools for services: programs that a sandbox keeps running."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from atoll.errors import DeadlineError
from atoll.sdk import Sandbox
from atoll.tools.arguments import Directory, Line
from atoll.tools.schema import Offer
from atoll.tools.text import KEPT_BYTES, clipped, columns
from atoll.types import Restart, ServiceInfo

_MOST_COMMAND = 200
_MOST_REASON = 300
_FIRST_LINES = 20
Action = Literal["start", "stop", "restart", "remove"]
Name = Annotated[
    str,
    Meta(description="Name of the service: lower case letters, digits and -.", min_length=1, max_length=63),
]


class ServiceTools:
    """Keeps programs running.

    Args:
        sandbox: Where.
    """

    OFFERS: ClassVar[tuple[Offer, ...]] = (
        Offer("add_service", "Add a service"),
        Offer("services", "List services", reads=True),
        Offer("service_logs", "Output of a service", reads=True),
        Offer("change_service", "Start, stop or remove a service", destroys=True),
    )

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def add_service(
        self,
        name: Name,
        command: Line,
        port: Annotated[
            int | None,
            Meta(description="Port that it listens on; it is restarted when it no longer answers there."),
        ] = None,
        restart: Annotated[
            Restart, Meta(description="When it starts again after its end: always, on-failure or never.")
        ] = "always",
        schedule: Annotated[
            str | None,
            Meta(description='Run it at times instead: cron in UTC such as "0 3 * * *", or "every 10m".'),
        ] = None,
        cwd: Directory = None,
        wait_s: Annotated[
            float, Meta(description="Seconds to wait until it listens on its port.", ge=0, le=600)
        ] = 20.0,
    ) -> str:
        """Keep a program running, such as a web server, a database or a worker, and return how it is.

        It is started now, again whenever it ends, and after a reboot of the sandbox. `start` does none of
        this. The command must stay in the foreground. With `schedule` it runs once each time instead.
        """
        services = self._sandbox.services
        info = services.add(name, command, port=port, restart=restart, schedule=schedule, cwd=cwd)
        if port is None:
            return f"added: {_state_of(info)}"
        try:
            self._sandbox.ports.wait(port, timeout_s=max(wait_s, 0.1))
        except DeadlineError:
            state = _state_of(services.get(name))
            shown = self.service_logs(name, lines=_FIRST_LINES)
            return f"added, but nothing listens on port {port} yet: {state}\n{shown}"
        return f"added: {_state_of(services.get(name))}, and port {port} takes connections"

    def services(self) -> str:
        """List the services with state, pid, number of restarts, port and command."""
        rows = self._sandbox.services.list()
        return clipped(columns([_row(info) for info in rows])) or "none"

    def service_logs(
        self,
        name: Name,
        lines: Annotated[int, Meta(description="How many lines, the last ones.", ge=1, le=10_000)] = 200,
    ) -> str:
        """Return the last lines that a service has printed, in all of its runs."""
        found = self._sandbox.services.logs(name, lines=lines, max_bytes=KEPT_BYTES)
        text = "".join([output.text for output in found])
        return clipped(text.rstrip("\n")) or "it has printed nothing"

    def change_service(
        self,
        name: Name,
        action: Annotated[Action, Meta(description="start, stop, restart, or remove it for good.")],
    ) -> str:
        """Start, stop, restart or remove a service. A stopped service starts with `start`, or at a reboot."""
        services = self._sandbox.services
        if action == "remove":
            services.remove(name)
            return f"removed {name}"
        move = {"start": services.start, "stop": services.stop, "restart": services.restart}[action]
        move(name)
        return f"{name}: {_state_of(services.get(name))}"


def _row(info: ServiceInfo) -> tuple[str, ...]:
    wanted = info.spec.command
    return (
        info.name,
        _state_of(info),
        f"{info.restarts} restarts",
        f"port {info.spec.port}" if info.spec.port else "-",
        clipped(wanted if isinstance(wanted, str) else " ".join(wanted), _MOST_COMMAND),
    )


def _state_of(info: ServiceInfo) -> str:
    """The state, with the facts that a model needs to find the fault."""
    parts = [info.state if info.pid is None else f"{info.state} with pid {info.pid}"]
    if info.healthy is False:
        parts.append("unhealthy")
    if info.state in ("waiting", "ended") and info.exit_code is not None:
        parts.append(f"exit code {info.exit_code}")
    if info.state in ("waiting", "ended") and info.reason:
        parts.append(info.reason[:_MOST_REASON])
    return ", ".join(parts)
