# Made by scripts/unasync.py from sdk/_async/services.py: do not edit.
"""The services of one sandbox: programs that it keeps running."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from atoll.errors import InvalidSpecError, ServiceNotFoundError
from atoll.guest import Verb, kept_from, move_service, service_output
from atoll.sdk._sync.agent import SILENCE_S, Agent, Frames
from atoll.sdk._sync.api import LONG_S, Api, ref
from atoll.sdk._sync.programs import Command, program_of
from atoll.sdk._bytes import MIB
from atoll.sdk._deadline import Deadline
from atoll.sdk._foreign import Part
from atoll.sdk._output import STREAM_OF, Decoder, LastLines
from atoll.types import HealthCheck, Output, Restart, Rows, ServiceInfo, ServiceOptions, ServiceSpec
from atoll.types.internal import check_number, check_service_name

_KEPT_MOST_BYTES = 4 * MIB
_LOGS_S = 60.0


class Services(Part):
    """Adds services to a sandbox, and tells their states. Get it from ``sandbox.services``.

    A service starts when it is added, and each time the sandbox boots from its disk. When its sandbox sleeps,
    forks or is rolled back, it continues as every program does.
    """

    def __init__(self, api: Api, agent: Agent, path: str) -> None:
        self._api = api
        self._agent = agent
        self._path = f"{path}/services"

    def add(
        self,
        name: str,
        command: Command,
        *,
        restart: Restart = "always",
        health: HealthCheck | str | None = None,
        port: int | None = None,
        schedule: str | None = None,
        **options: Unpack[ServiceOptions],
    ) -> ServiceInfo:
        """Add a service and start it. This wakes the sandbox.

        Args:
            name: Unique in the sandbox: 1 to 63 lower case letters, digits and dashes.
            command: A shell line (str), or a program and its arguments (a list). It must keep running in the
                foreground. At its end, the rest of its process group is killed.
            restart: When it starts again after its end: ``"always"``, ``"on-failure"`` (an exit code other
                than 0, or a failed health check) or ``"never"``. The pause before that grows from 0.2 to 30
                seconds, until it has run for 10 seconds.
            health: How to tell whether it works: a shell line that exits with 0, or a ``HealthCheck``. None
                checks that its port, if it has one, takes connections.
            port: The port that it listens on.
            schedule: Run it once each time, in UTC: ``"every 10m"``, or five fields as in cron, like
                ``"0 3 * * *"``. Each run wakes a sandbox that sleeps. If runs were missed while no supervisor
                ran, one follows at its next start. None keeps the service running.
            **options: ``cwd``, ``env`` and ``user`` as in ``run``, and ``timeout_s``, the seconds until a run
                of a schedule is killed, 3,600 unless given. Snapshots contain ``env``, so do not put secrets
                there.

        Raises:
            InvalidSpecError: An argument is invalid, ``user`` is unknown, or there are 64 services already.
            NameTakenError: The sandbox has a service with that name.
            FileMissingError: ``cwd`` is not in the sandbox.
            UnsupportedError: The sandbox's agent comes from an older atoll.
        """
        timeout_s = options.get("timeout_s", 3600.0)
        program = program_of(
            command,
            cwd=options.get("cwd"),
            env=options.get("env"),
            user=options.get("user"),
            timeout_s=timeout_s,
            stdin=False,
        )
        if health is not None and not isinstance(health, (str, HealthCheck)):
            raise InvalidSpecError(f"health is {health!r}", hint="give a shell line, or a HealthCheck")
        spec = ServiceSpec(
            name=name,
            command=program.line if program.line is not None else list(program.argv or ()),
            restart=restart,
            health=HealthCheck(command=health) if isinstance(health, str) else health,
            port=port,
            cwd=program.cwd,
            env=dict(program.env),
            user=program.user,
            schedule=schedule,
            timeout_s=timeout_s,
        ).check()
        return self._api.call("POST", self._path, ServiceInfo, spec, timeout_s=LONG_S)

    def list(self) -> Rows[ServiceInfo]:
        """Return all services and their states, oldest first, without waking the sandbox."""
        return Rows(self._api.call("GET", self._path, list[ServiceInfo]))

    def get(self, name: str) -> ServiceInfo:
        """Return one service and its state, without waking the sandbox.

        Raises:
            ServiceNotFoundError: The sandbox has no such service.
        """
        check_service_name(name)
        for info in self.list():
            if info.name == name:
                return info
        raise ServiceNotFoundError(
            f"sandbox {self._agent.sandbox_id} has no service {name!r}",
            hint="`atoll service ls` lists them",
            sandbox_id=self._agent.sandbox_id,
        )

    def start(self, name: str) -> None:
        """Start a service that does not run. This wakes the sandbox.

        Raises:
            ServiceNotFoundError: The sandbox has no such service.
        """
        self._move(name, "start")

    def stop(self, name: str) -> None:
        """Stop a service until ``start``, or until the sandbox boots again. This wakes the sandbox.

        Its process group gets SIGTERM, and SIGKILL after 10 seconds.

        Raises:
            ServiceNotFoundError: The sandbox has no such service.
        """
        self._move(name, "stop")

    def restart(self, name: str) -> None:
        """Stop a service, if it runs, and start it again. This wakes the sandbox.

        Raises:
            ServiceNotFoundError: The sandbox has no such service.
        """
        self._move(name, "restart")

    def _move(self, name: str, verb: Verb) -> None:
        check_service_name(name)
        self._agent.call(move_service(name, verb))

    def remove(self, name: str) -> None:
        """Stop a service and forget it with its output. This wakes the sandbox.

        Raises:
            ServiceNotFoundError: The sandbox has no such service.
        """
        check_service_name(name)
        self._api.delete(f"{self._path}/{ref(name)}")

    def logs(
        self, name: str, *, follow: bool = False, lines: int | None = 1000, max_bytes: int = MIB
    ) -> Iterator[Output]:
        """Iterate over the last output of a service, from all of its runs. This wakes the sandbox.

        The sandbox keeps the last MiB.

        Args:
            name: The service.
            follow: Continue with new output until the service is removed. Output that comes faster than it is
                read is left out.
            lines: How many of the last lines to begin with, of both streams together: 1,000 unless given.
                None means all that is kept.
            max_bytes: How many bytes of it at most, a MiB unless given.

        Raises:
            ServiceNotFoundError: The sandbox has no such service.
            StateError: The sandbox was put to sleep meanwhile.
            DeadlineError: Without ``follow``, it took over a minute.
        """
        check_service_name(name)
        if lines is not None:
            check_number("lines", lines, least=0, whole=True, hint="give how many lines, or None for all")
        check_number("max_bytes", max_bytes, least=0, whole=True, hint="give how many bytes, 0 or more")
        earlier = LastLines(lines, min(max_bytes, _KEPT_MOST_BYTES))
        deadline = Deadline(None if follow else _LOGS_S, silence_s=SILENCE_S)
        frames = Frames(self._agent.open(service_output(name, follow=follow), deadline))
        decoder = Decoder()
        try:
            left = kept_from((frames.next()).payload)
            ended = False
            while left > 0 and not ended:
                frame = frames.next()
                ended = frame.kind == "x"
                if frame.kind in STREAM_OF:
                    earlier.add(frame.kind, frame.payload)
                    left -= len(frame.payload)
            for kind, data in earlier.pieces():
                yield decoder.output(STREAM_OF[kind], data)
            while follow and not ended:
                frame = frames.next()
                ended = frame.kind == "x"
                if frame.kind in STREAM_OF:
                    output = decoder.output(STREAM_OF[frame.kind], frame.payload)
                    if output.text:
                        yield output
            for output in decoder.rest():
                yield output
        finally:
            frames.close()
