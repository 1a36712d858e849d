"""Services: programs that a sandbox keeps running."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, get_args

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.brief import brief
from atoll.types.given import GuestPath, check_choice, check_number, check_text, check_texts
from atoll.types.schedules import schedule_of

Restart = Literal["always", "on-failure", "never"]
ServiceState = Literal["running", "waiting", "stopped", "ended", "asleep"]
SERVICES_MOST = 64
SERVICES_BYTES_MOST = 256 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MOST_S = 86_400


class HealthCheck(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A check whether a service works: by a command, or else by its port.

    Args:
        command: A shell line that exits with 0 while the service works. None connects to the service's port.
        every_s: Seconds from one check to the next. A service that has not yet passed one is checked more often.
        timeout_s: Seconds that a check may take.
        failures: How many checks in a row must fail for the service to be restarted.
        grace_s: Seconds from its start in which failed checks do not count, unless one has passed.
    """

    command: str | None = None
    every_s: float = 10.0
    timeout_s: float = 5.0
    failures: int = 3
    grace_s: float = 30.0

    def check(self) -> HealthCheck:
        """Return this check if it is valid.

        Raises:
            InvalidSpecError: A value is invalid; the message says which.
        """
        if self.command is not None and not check_text("the command of health", self.command):
            raise InvalidSpecError("the command of health is empty", hint="give a shell line, or a port")
        for name in ("every_s", "timeout_s"):
            check_number(
                name, getattr(self, name), least=0.1, most=_MOST_S, hint="give 0.1 to 86,400 seconds"
            )
        check_number("grace_s", self.grace_s, least=0, most=_MOST_S, hint="give 0 to 86,400 seconds")
        check_number("failures", self.failures, least=1, most=1000, whole=True, hint="give 1 to 1,000")
        return self


class ServiceSpec(
    msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A program that a sandbox keeps running.

    Args:
        name: Unique in the sandbox: 1 to 63 lower case letters, digits and dashes, without a dash at the start.
        command: A shell line (str), or a program and its arguments (a list).
        restart: When it starts again after its end: ``"always"``, ``"on-failure"`` (an exit code other than 0,
            or a failed health check) or ``"never"``.
        health: How to tell whether it works. None checks its port, if it has one.
        port: The port that it listens on.
        cwd: Directory in the sandbox; None means the user's own directory.
        env: Variables on top of the sandbox's.
        user: Name of a user in the sandbox; None means the default user.
        schedule: When it runs, once each time: five fields as in cron, in UTC, or ``every 10m``. None keeps
            it running.
        timeout_s: Seconds until a run of a schedule is killed.
        added_at: Set when it is added with a schedule, in Unix seconds: its first run is after that.
    """

    name: str
    command: str | list[str]
    restart: Restart = "always"
    health: HealthCheck | None = None
    port: int | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    user: str | None = None
    schedule: str | None = None
    timeout_s: float = 3600.0
    added_at: float = 0.0

    def __repr__(self) -> str:
        return brief(self, "name", "command", "port", "schedule")

    def check(self) -> ServiceSpec:
        """Return this spec if it is valid. Supervisors check too, since clients can send anything.

        Raises:
            InvalidSpecError: A value is invalid; the message says which.
        """
        check_service_name(self.name)
        parts = [self.command] if isinstance(self.command, str) else self.command
        for part in parts:
            check_text("a part of the command", part)
        if not parts or not parts[0] or any("\0" in part for part in parts):
            raise InvalidSpecError(
                "the command is empty, or has a NUL", hint="give a shell line, or a list of arguments"
            )
        check_choice("restart", self.restart, get_args(Restart))
        if self.port is not None:
            check_number("port", self.port, least=1, most=65535, whole=True, hint="give 1 to 65535")
        if self.health is not None:
            self.health.check()
            if self.health.command is None and self.port is None:
                raise InvalidSpecError(
                    "the health check has neither a command nor a port", hint="give one of the two"
                )
        if self.schedule is not None:
            check_text("schedule", self.schedule)
            schedule_of(self.schedule)
            if self.health is not None or self.port is not None:
                raise InvalidSpecError(
                    "a service with a schedule has no port and no health check", hint="leave them out"
                )
        check_number("timeout_s", self.timeout_s, least=1, most=_MOST_S, hint="give 1 to 86,400 seconds")
        for name in ("cwd", "user"):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))
        check_texts("env", self.env)
        return self


class ServiceOptions(TypedDict, total=False):
    """The arguments of ``services.add`` that concern its program; each means the same in ``ServiceSpec``."""

    cwd: GuestPath | None
    env: Mapping[str, str] | None
    user: str | None
    timeout_s: float


class ServiceRun(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A run of a service by its schedule. Times are Unix seconds.

    ``ended_at`` is None while it runs. ``reason`` says why there is no ``exit_code``.
    """

    at: float
    ended_at: float | None = None
    exit_code: int | None = None
    reason: str | None = None


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A service and its state. Times are Unix seconds.

    ``state`` is ``"running"``, ``"waiting"`` (to be started again), ``"stopped"`` (somebody asked for that),
    ``"ended"`` (its ``restart`` does not start it again), or ``"asleep"``, while its sandbox does not run.
    The other values are then unknown. ``since`` is when that began. ``healthy`` is None until a check has
    decided, and without one. ``exit_code`` and ``reason`` are of its last end.

    One with a schedule is ``"waiting"`` until its next time, ``next_at``. ``last_run`` is known while it sleeps.
    """

    spec: ServiceSpec
    state: ServiceState
    pid: int | None = None
    restarts: int = 0
    healthy: bool | None = None
    exit_code: int | None = None
    since: float | None = None
    reason: str | None = None
    last_run: ServiceRun | None = None
    next_at: float | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.spec.name

    def __repr__(self) -> str:
        return brief(self, "name", "state", "healthy", "restarts")


def check_service_name(name: object) -> None:
    """Refuse a value that cannot be the name of a service.

    Raises:
        InvalidSpecError: It cannot be one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSpecError(
            f"{str(name)[:100]!r} is not the name of a service",
            hint="use 1 to 63 lowercase letters, digits and dashes, without a dash at the start",
        )


def check_services(services: Sequence[ServiceSpec]) -> None:
    """Refuse services that one sandbox cannot have.

    Raises:
        InvalidSpecError: One is invalid, two have the same name, or they are too many or too large.
    """
    if not isinstance(services, Sequence):
        raise InvalidSpecError(f"services is {services!r}"[:300], hint="give a list of ServiceSpec")
    for each in services:
        if not isinstance(each, ServiceSpec):
            raise InvalidSpecError(f"{each!r} is not a service", hint="give atoll's ServiceSpec")
        each.check()
    if len({each.name for each in services}) != len(services):
        raise InvalidSpecError("two services have the same name", hint="give each a name of its own")
    if len(services) > SERVICES_MOST:
        raise InvalidSpecError(f"there are {len(services)} services", hint=f"give at most {SERVICES_MOST}")
    if len(msgspec.json.encode(list(services))) > SERVICES_BYTES_MOST:
        raise InvalidSpecError("the services are over 256 KiB", hint="put large values into files")
