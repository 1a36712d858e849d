"""The settings from the environment, read once when the supervisor starts."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from atoll.engines import DEFAULT_ENGINE, ENGINES
from atoll.errors import InvalidSpecError
from atoll.types.internal import converted

MIB = 1 << 20
ALERT_RULES = ("refusals", "canary", "unplugged", "host", "secret", "budget")
_MOST = 1e9
_ALERTS_MOST = 1_000_000
_LOW_MOST = 50.0
# More would wait for the supervisor itself, which needs some 15 ms of a processor for each copy.
_RESTORES_MOST = 8


def restores_for(processors: int) -> int:
    """How many machines to restore at once: each keeps a processor busy for nine tenths of the time."""
    return min(processors + 1, _RESTORES_MOST)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All ``ATOLL_*`` variables that the supervisor knows.

    Args:
        pool_size: ``ATOLL_POOL_SIZE``: warm machines to keep for each image in use, beside one for restores;
            0 keeps none.
        idle_exit_s: ``ATOLL_IDLE_EXIT_S``: seconds without a running sandbox or a client until it exits.
        idle_pause_s: ``ATOLL_IDLE_PAUSE_S``: idle seconds until a sandbox is paused if its lifecycle sets no
            time; 0 means never.
        idle_suspend_s: ``ATOLL_IDLE_SUSPEND_S``: the same for a suspend.
        agent_timeout_s: ``ATOLL_AGENT_TIMEOUT_S``: time limit of each call to a guest agent, in seconds.
        restores_at_once: ``ATOLL_RESTORES``: how many machines one fork restores at the same time.
        disk: ``ATOLL_DISK``: ``auto`` uses the best kind of disk that the home can have, ``engine`` the
            engine's own.
        registry_mirrors: ``ATOLL_REGISTRY_MIRRORS``: ``HOST=MIRROR,MIRROR`` entries, separated by spaces.
        insecure_registries: ``ATOLL_INSECURE_REGISTRIES``: hosts, with ports, that plain http may be used
            for.
        audit_gib: ``ATOLL_AUDIT_GIB``: the GiB of the audit log beyond which its oldest file is removed.
        audit_anchor: ``ATOLL_AUDIT_ANCHOR``: a command, quoted as for a shell, that gets the audit log's newest
            head on its standard input once a minute, or nothing.
        audit_clients: ``ATOLL_AUDIT_CLIENTS``: ``on`` notes the programs and files that clients tell of in the
            audit log, ``off`` notes none.
        audit_late: ``ATOLL_AUDIT_LATE``: ``refuse`` refuses new requests of sandboxes that rules judge while the
            audit log cannot be written in time, ``go-on`` lets them pass.
        image_gib: ``ATOLL_IMAGE_GIB``: the most GiB that an image from a registry may have, unpacked.
        checksum_mib_s: ``ATOLL_CHECKSUM_MIB_S``: the most MiB to read in a second for checksums of frozen layers;
            0 computes none.
        disk_low_percent: ``ATOLL_DISK_LOW_PERCENT``: the supervisor makes room when less than this percentage
            of the home's file system is free; 0 never makes any.
        host_memory_free_mib: ``ATOLL_HOST_MEMORY_FREE_MIB``: the MiB of the host's memory that sandboxes leave
            free; None means 10 %, at least 1 GiB and at most a quarter, and 0 leaves nothing.
        meminfo: ``ATOLL_MEMINFO``: the file that tells the host's memory, in the form of ``/proc/meminfo``.
        package_hosts: ``ATOLL_PACKAGE_HOSTS``: further hosts of package registries, beside those of this
            host's own clients, separated by spaces.
        cpu_latency: ``ATOLL_CPU_LATENCY``: ``auto`` keeps idle processors quick to wake while sandboxes work,
            ``off`` asks the kernel for nothing.
        engine: ``ATOLL_ENGINE``: the engine of new sandboxes. Others keep theirs.
        engine_flags: ``ATOLL_ENGINE_FLAGS``: further flags for the engine's current program, separated by
            spaces.
        secrets_keyring: ``ATOLL_SECRETS_KEYRING``: ``on`` keeps the key of the secrets in the system's keyring,
            ``off`` in a file of the home.
        ask_webhook: ``ATOLL_ASK_WEBHOOK``: the address that asks are posted to, or nothing.
        ask_notify: ``ATOLL_ASK_NOTIFY``: where asks are pushed to, as apprise takes it, separated by spaces.
        otel_endpoint: ``ATOLL_OTEL_ENDPOINT``: where spans of requests are sent to, or nothing.
        alert_webhook: ``ATOLL_ALERT_WEBHOOK``: the address that alerts are posted to, or nothing.
        alert_rules: ``ATOLL_ALERT_RULES``: the rules that raise alerts, separated by spaces, or ``none``.
        alert_refusals: ``ATOLL_ALERT_REFUSALS``: so many refusals of a sandbox in a minute raise one.
        alerts_a_minute: ``ATOLL_ALERTS_A_MINUTE``: the most alerts of one rule and team in a minute.
        log_level: ``ATOLL_LOG``: ``debug``, ``info``, ``warning`` or ``error``.
    """

    pool_size: int = 1
    idle_exit_s: float = 60.0
    idle_pause_s: float = 0.0
    idle_suspend_s: float = 900.0
    agent_timeout_s: float = 10.0
    restores_at_once: int = msgspec.field(default_factory=lambda: restores_for(processors()))
    disk: str = "auto"
    registry_mirrors: str = ""
    insecure_registries: str = ""
    audit_gib: float = 4
    audit_anchor: str = ""
    audit_clients: str = "on"
    audit_late: str = "refuse"
    image_gib: float = 64
    checksum_mib_s: float = 128
    disk_low_percent: float = 3
    host_memory_free_mib: float | None = None
    meminfo: str = "/proc/meminfo"
    package_hosts: str = ""
    cpu_latency: str = "auto"
    engine: str = DEFAULT_ENGINE
    engine_flags: str = ""
    secrets_keyring: str = "off"
    ask_webhook: str = ""
    ask_notify: str = ""
    otel_endpoint: str = ""
    alert_webhook: str = ""
    alert_rules: str = " ".join(ALERT_RULES)
    alert_refusals: int = 30
    alerts_a_minute: int = 10
    log_level: str = "info"

    def mirrors(self) -> dict[str, list[str]]:
        """The mirrors of each registry, by its host.

        Raises:
            InvalidSpecError: The setting cannot be read.
        """
        found: dict[str, list[str]] = {}
        for rule in self.registry_mirrors.split():
            host, _, mirrors = rule.partition("=")
            if not host or not all(mirrors.split(",")) or "://" in rule:
                raise InvalidSpecError(
                    f"ATOLL_REGISTRY_MIRRORS has the invalid rule {rule!r}",
                    hint="give HOST=MIRROR or HOST=MIRROR,MIRROR",
                )
            found.setdefault(host, []).extend(mirrors.split(","))
        return found

    def anchor_argv(self) -> list[str]:
        """The command that gets the heads of the audit log, and its arguments; empty for none.

        Raises:
            InvalidSpecError: The quotes of the setting have no end.
        """
        try:
            return shlex.split(self.audit_anchor)
        except ValueError as error:
            hint = "give a command and its arguments, quoted as for a shell"
            raise InvalidSpecError(f"ATOLL_AUDIT_ANCHOR cannot be read: {error}", hint=hint) from None

    def insecure(self) -> list[str]:
        """The hosts that plain http may be used for.

        Raises:
            InvalidSpecError: An entry is not a host.
        """
        hosts = self.insecure_registries.replace(",", " ").split()
        for host in hosts:
            if "/" in host:
                raise InvalidSpecError(
                    f"ATOLL_INSECURE_REGISTRIES has {host!r}", hint="give HOST or HOST:PORT"
                )
        return hosts


_LOG_LEVELS = ("debug", "info", "warning", "error")
_VARIABLES: dict[str, tuple[str, type]] = {
    "ATOLL_POOL_SIZE": ("pool_size", int),
    "ATOLL_IDLE_EXIT_S": ("idle_exit_s", float),
    "ATOLL_IDLE_PAUSE_S": ("idle_pause_s", float),
    "ATOLL_IDLE_SUSPEND_S": ("idle_suspend_s", float),
    "ATOLL_AGENT_TIMEOUT_S": ("agent_timeout_s", float),
    "ATOLL_RESTORES": ("restores_at_once", int),
    "ATOLL_DISK": ("disk", str),
    "ATOLL_REGISTRY_MIRRORS": ("registry_mirrors", str),
    "ATOLL_INSECURE_REGISTRIES": ("insecure_registries", str),
    "ATOLL_AUDIT_GIB": ("audit_gib", float),
    "ATOLL_AUDIT_ANCHOR": ("audit_anchor", str),
    "ATOLL_AUDIT_CLIENTS": ("audit_clients", str),
    "ATOLL_AUDIT_LATE": ("audit_late", str),
    "ATOLL_IMAGE_GIB": ("image_gib", float),
    "ATOLL_CHECKSUM_MIB_S": ("checksum_mib_s", float),
    "ATOLL_DISK_LOW_PERCENT": ("disk_low_percent", float),
    "ATOLL_HOST_MEMORY_FREE_MIB": ("host_memory_free_mib", float),
    "ATOLL_MEMINFO": ("meminfo", str),
    "ATOLL_PACKAGE_HOSTS": ("package_hosts", str),
    "ATOLL_CPU_LATENCY": ("cpu_latency", str),
    "ATOLL_ENGINE": ("engine", str),
    "ATOLL_ENGINE_FLAGS": ("engine_flags", str),
    "ATOLL_SECRETS_KEYRING": ("secrets_keyring", str),
    "ATOLL_ASK_WEBHOOK": ("ask_webhook", str),
    "ATOLL_ASK_NOTIFY": ("ask_notify", str),
    "ATOLL_OTEL_ENDPOINT": ("otel_endpoint", str),
    "ATOLL_ALERT_WEBHOOK": ("alert_webhook", str),
    "ATOLL_ALERT_RULES": ("alert_rules", str),
    "ATOLL_ALERT_REFUSALS": ("alert_refusals", int),
    "ATOLL_ALERTS_A_MINUTE": ("alerts_a_minute", int),
    "ATOLL_LOG": ("log_level", str),
}


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings from ``environ``. A setting that it does not name keeps its default.

    Raises:
        InvalidSpecError: A variable has a value that cannot be read or is invalid.
    """
    values: dict[str, object] = {}
    for variable, (field, kind) in _VARIABLES.items():
        text = environ.get(variable)
        if text is None or text == "":
            continue
        try:
            values[field] = kind(text)
        except ValueError:
            raise InvalidSpecError(f"{variable} is {text!r}", hint=f"give a value like {kind(1)!r}") from None
    settings = converted(values, Settings)
    if settings.pool_size < 0:
        raise InvalidSpecError(f"ATOLL_POOL_SIZE is {settings.pool_size}", hint="give 0 or more")
    if settings.restores_at_once < 1:
        raise InvalidSpecError(f"ATOLL_RESTORES is {settings.restores_at_once}", hint="give 1 or more")
    for name in ("idle_exit_s", "agent_timeout_s", "audit_gib", "image_gib"):
        if not 0 < getattr(settings, name) < _MOST:
            raise InvalidSpecError(
                f"{_variable(name)} is {getattr(settings, name):g}",
                hint=f"give more than 0 and less than {_MOST:g}",
            )
    for name in ("checksum_mib_s", "idle_pause_s", "idle_suspend_s", "host_memory_free_mib"):
        if getattr(settings, name) is not None and not 0 <= getattr(settings, name) < _MOST:
            raise InvalidSpecError(
                f"{_variable(name)} is {getattr(settings, name):g}",
                hint=f"give 0 or more and less than {_MOST:g}",
            )
    if not 0 <= settings.disk_low_percent <= _LOW_MOST:
        raise InvalidSpecError(
            f"ATOLL_DISK_LOW_PERCENT is {settings.disk_low_percent:g}", hint=f"give 0 to {_LOW_MOST:g}"
        )
    if settings.engine not in ENGINES:
        raise InvalidSpecError(
            f"ATOLL_ENGINE is {settings.engine!r}", hint=f"engines: {', '.join(sorted(ENGINES))}"
        )
    if settings.disk not in ("auto", "engine"):
        raise InvalidSpecError(f"ATOLL_DISK is {settings.disk!r}", hint="give auto or engine")
    if settings.cpu_latency not in ("auto", "off"):
        raise InvalidSpecError(f"ATOLL_CPU_LATENCY is {settings.cpu_latency!r}", hint="give auto or off")
    if settings.audit_late not in ("refuse", "go-on"):
        raise InvalidSpecError(f"ATOLL_AUDIT_LATE is {settings.audit_late!r}", hint="give refuse or go-on")
    for name in ("secrets_keyring", "audit_clients"):
        if getattr(settings, name) not in ("on", "off"):
            raise InvalidSpecError(f"{_variable(name)} is {getattr(settings, name)!r}", hint="give on or off")
    settings.anchor_argv()
    _check_webhook("ATOLL_ASK_WEBHOOK", settings.ask_webhook)
    _check_webhook("ATOLL_ALERT_WEBHOOK", settings.alert_webhook)
    _check_alerts(settings)
    if settings.log_level not in _LOG_LEVELS:
        hint = f"give {', '.join(_LOG_LEVELS[:-1])} or {_LOG_LEVELS[-1]}"
        raise InvalidSpecError(f"ATOLL_LOG is {settings.log_level!r}", hint=hint)
    return settings


def _check_alerts(settings: Settings) -> None:
    unknown = set(settings.alert_rules.split()) - {*ALERT_RULES, "none"}
    if unknown:
        raise InvalidSpecError(
            f"ATOLL_ALERT_RULES has {min(unknown)!r}", hint=f"rules: {' '.join(ALERT_RULES)}; or none"
        )
    for name in ("alert_refusals", "alerts_a_minute"):
        if not 1 <= getattr(settings, name) <= _ALERTS_MOST:
            raise InvalidSpecError(
                f"{_variable(name)} is {getattr(settings, name)}", hint=f"give 1 to {_ALERTS_MOST}"
            )


def _check_webhook(variable: str, url: str) -> None:
    """Refuse an address that nothing must be posted to. It may hold a secret, so the error does not repeat it."""
    if url and not _is_webhook(url):
        raise InvalidSpecError(
            f"{variable} is not an address that can be posted to",
            hint="give https://HOST/PATH, or http://127.0.0.1:PORT/PATH; without a user, a password or a #part",
        )


def _is_webhook(url: str) -> bool:
    try:
        at = urlsplit(url)
        port = at.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and "#" not in url and "@" not in at.netloc
    if not plain or not at.hostname or port == 0:
        return False
    return at.scheme == "https" or (at.scheme == "http" and _is_loopback(at.hostname))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _variable(name: str) -> str:
    return next(variable for variable, (field, _) in _VARIABLES.items() if field == name)
