"""Other machines reach programs, files and ports of sandboxes through `atoll serve`, and nothing else of them."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from e2b import CommandExitException, ConnectionConfig, TimeoutException
from e2b import Sandbox as RemoteSandbox
from packaging.version import Version
from tests.e2e.command_line import said
from tests.e2e.listening import until_listening
from tests.e2e.server import Server
from tests.integration.network.web import certified
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Request, TextMessage

from atoll import Lifecycle, Sandbox
from atoll.errors import StateError
from atoll.secrets import home_authority
from atoll.server.tokens import Tokens, read_secret

BOUND_S = 60.0
PORT = 8000
AGENT = 49983


def start_port_server(box: Sandbox, *certificate: str) -> None:
    box.files.write("/tmp/port_server.py", (Path(__file__).parent / "port_server.py").read_bytes())
    box.start(["python3", "/tmp/port_server.py", str(PORT), *certificate])
    until_listening(box, PORT)


@pytest.fixture(scope="module")
def box(server: Server) -> Iterator[Sandbox]:
    """A sandbox of the team `default`, in which a server listens that proxies get wrong."""
    del server
    with Sandbox.create(team="default") as made:
        start_port_server(made)
        yield made


def token_of(sandbox_id: str, home: Path, kind: str = "access") -> str:
    tokens = Tokens(read_secret(home / "server"))
    return str(getattr(tokens, kind)(sandbox_id))


def headers_of(sandbox_id: str, port: int) -> dict[str, str]:
    return {"e2b-sandbox-id": sandbox_id, "e2b-sandbox-port": str(port)}


@pytest.fixture
def port(server: Server, box: Sandbox) -> Iterator[httpx.Client]:
    """A client of the server inside."""
    with httpx.Client(base_url=server.url, headers=headers_of(box.id, PORT), timeout=BOUND_S) as client:
        yield client


@pytest.fixture
def agent(server: Server, box: Sandbox, module_home: Path) -> Iterator[httpx.Client]:
    """A client of the sandbox's agent, with the token."""
    headers = headers_of(box.id, AGENT) | {"x-access-token": token_of(box.id, module_home)}
    with httpx.Client(base_url=server.url, headers=headers, timeout=BOUND_S) as client:
        yield client


def remote(server: Server, box: Sandbox, home: Path) -> RemoteSandbox:
    """The E2B SDK's own sandbox, as its `create` makes one."""
    token = token_of(box.id, home)
    headers = headers_of(box.id, AGENT) | {"X-Access-Token": token}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("E2B_DEBUG", raising=False)
        return RemoteSandbox(
            sandbox_id=box.id,
            sandbox_domain=None,
            envd_version=Version("0.6.13"),
            envd_access_token=token,
            traffic_access_token=None,
            connection_config=ConnectionConfig(
                api_key=server.key,
                api_url=server.url,
                sandbox_url=server.url,
                extra_sandbox_headers=headers,
            ),
        )


# programs and files, with E2B's own SDK


def test_the_e2b_sdk_runs_programs_and_moves_files(server: Server, box: Sandbox, module_home: Path) -> None:
    there = remote(server, box, module_home)
    assert there.commands.run("echo out; echo err >&2", timeout=BOUND_S).stdout == "out\n"
    with pytest.raises(CommandExitException):
        there.commands.run("exit 7", timeout=BOUND_S)
    there.files.write("/tmp/größe", "text")
    assert there.files.read("/tmp/größe") == "text"
    assert there.is_running()


def test_a_command_is_given_input_while_it_runs(server: Server, box: Sandbox, module_home: Path) -> None:
    there = remote(server, box, module_home)
    command = there.commands.run("read line; echo got $line", background=True, stdin=True, timeout=BOUND_S)
    there.commands.send_stdin(command.pid, "word\n")
    assert command.wait().stdout == "got word\n"


def test_a_large_file_goes_both_ways(agent: httpx.Client, box: Sandbox) -> None:
    data = bytes(range(256)) * (1 << 16)
    sent = agent.post(
        "/files?path=/tmp/large", content=data, headers={"content-type": "application/octet-stream"}
    )
    assert sent.status_code == 200
    assert agent.get("/files?path=/tmp/large").content == data
    assert agent.get("/files?path=/tmp/large", headers={"range": "bytes=5-7"}).content == data[5:8]
    pieces = (data[at : at + 100_000] for at in range(0, len(data), 100_000))
    sent = agent.post(
        "/files?path=/tmp/chunks", content=pieces, headers={"content-type": "application/octet-stream"}
    )
    assert sent.status_code == 200
    assert box.files.read_bytes("/tmp/chunks") == data


# who may


def test_without_the_token_nothing_of_the_agent_answers_but_its_health(server: Server, box: Sandbox) -> None:
    with httpx.Client(base_url=server.url, headers=headers_of(box.id, AGENT)) as nobody:
        assert nobody.get("/health").status_code == 204
        for answer in (
            nobody.get("/metrics"),
            nobody.get("/envs"),
            nobody.post("/process.Process/List", json={}),
            nobody.get("/metrics", headers={"x-access-token": "wrong"}),
        ):
            assert answer.status_code == 401
            assert answer.json()["message"].startswith("unauthorized access")
        missing = nobody.get("/files?path=/etc/passwd")
        assert (missing.status_code, missing.json()["message"]) == (401, "missing signature query parameter")
        wrong = nobody.get("/files?path=/etc/passwd", headers={"x-access-token": "wrong"})
        assert wrong.json()["message"] == "access token present in header but does not match"


@pytest.mark.parametrize(
    "path",
    [
        "/init",
        "/freeze",
        "/fsfreeze",
        "/atoll/init",
        "/atoll/exec",
        "/%61toll/init",
        "//atoll/init",
        "/./init",
    ]
    + ["/process.Process/../atoll/init", "/process.Process/%2e%2e/init", "/health/", "/files/../init"],
)
def test_what_the_supervisor_asks_of_the_agent_nobody_else_can(
    server: Server, box: Sandbox, path: str, module_home: Path
) -> None:
    token = token_of(box.id, module_home)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {box.id}\r\nE2b-Sandbox-Port: {AGENT}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as raw:
        raw.sendall(f"{head}X-Access-Token: {token}\r\nContent-Length: 0\r\n\r\n".encode())
        assert raw.recv(65536).startswith(b"HTTP/1.1 404 ")


def test_signed_addresses_open_one_file_and_need_no_sandbox_named(
    server: Server, box: Sandbox, module_home: Path
) -> None:
    there = remote(server, box, module_home)
    there.files.write("/tmp/signed", "content")
    address = there.download_url("/tmp/signed", user="user", use_signature_expiration=3600)
    assert box.id not in address
    assert httpx.get(address).text == "content"
    assert httpx.get(address.replace("signed", "other")).json()["message"] == "invalid signature"
    # a header must not name another user than was signed
    assert httpx.get(address, headers={"authorization": "Basic cm9vdDo="}).text == "content"
    upload = there.upload_url("/tmp/uploaded", user="user", use_signature_expiration=3600)
    assert httpx.post(upload, files={"file": b"from far"}).status_code == 200
    assert there.files.read("/tmp/uploaded") == "from far"
    expired = there.download_url("/tmp/signed", user="user", use_signature_expiration=-10)
    assert httpx.get(expired).json() == {"message": "signature is already expired", "code": 401}


def test_private_ports_need_the_traffic_token(server: Server, module_home: Path) -> None:
    attributes = {"e2b_mask_host": "inside-${PORT}.test"}
    with Sandbox.create(team="default", ports="closed", attributes=attributes) as private:
        start_port_server(private)
        with httpx.Client(
            base_url=server.url, headers=headers_of(private.id, PORT), timeout=BOUND_S
        ) as client:
            refused = client.get("/request")
            assert refused.status_code == 403
            assert refused.json()["message"] == (
                "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing"
            )
            token = token_of(private.id, module_home, "traffic")
            told = client.get("/request", headers={"e2b-traffic-access-token": token}).text.lower()
            assert token not in told
            assert f"host: inside-{PORT}.test" in told
            assert client.get("/health", headers={"e2b-sandbox-port": str(AGENT)}).status_code == 204
            (copy,) = private.fork()
            with copy:
                assert (copy.info().ports, private.info().ports) == ("closed", "closed")
                assert client.get("/request", headers=headers_of(copy.id, PORT)).status_code == 403


def test_ports_that_speak_https_are_reached_in_tls(server: Server, module_home: Path, tmp_path: Path) -> None:
    certificate = certified(home_authority(tmp_path / "ca.pem"), ["other.example"], tmp_path / "server.pem")
    with Sandbox.create(
        team="default", attributes={"e2b_https_ports": f"{PORT} x -1 99999 {AGENT + 1}"}
    ) as secure:
        secure.files.write("/tmp/server.pem", certificate.read_bytes())
        start_port_server(secure, "/tmp/server.pem")
        secure.start(["python3", "-m", "http.server", str(AGENT + 1)])
        until_listening(secure, AGENT + 1)
        with httpx.Client(
            base_url=server.url, headers=headers_of(secure.id, PORT), timeout=BOUND_S
        ) as client:
            assert [client.get("/plain").text for _ in range(3)] == ["plain"] * 3
            assert client.get("/chunks").text == "onetwo"
            assert client.get("/old").text == "until the end"
            assert "GET /request" in client.get("/request").text
            with pytest.raises(httpx.RemoteProtocolError):
                client.get("/cut")
            plain = client.get("/", headers={"e2b-sandbox-port": str(AGENT + 1)})
            assert plain.status_code == 502
            assert "does not answer in TLS" in plain.json()["message"]
            closed = client.get("/", headers={"e2b-sandbox-port": "9"})
            assert closed.json()["message"] == "The sandbox is running but port is not open"
        opened = Socket(server, secure, "/socket")
        with opened.raw:
            assert isinstance(opened.next(), AcceptConnection)
            opened.send(BytesMessage(data=b"x" * 60_000))
            answer = b""
            while len(answer) < 60_000:
                event = opened.next()
                assert isinstance(event, BytesMessage)
                answer += event.data
            assert answer == b"x" * 60_000


def test_a_sandbox_that_says_so_needs_no_token(server: Server) -> None:
    with Sandbox.create(team="default", attributes={"e2b_secure": "0"}) as open_to_all:
        headers = headers_of(open_to_all.id, AGENT)
        assert httpx.get(f"{server.url}/metrics", headers=headers, timeout=BOUND_S).status_code == 200


def test_a_sandbox_of_no_team_is_for_this_machine_alone(server: Server) -> None:
    with Sandbox.create() as local:
        answer = httpx.get(f"{server.url}/health", headers=headers_of(local.id, AGENT))
        assert (answer.status_code, answer.json()["message"]) == (502, "The sandbox was not found")


# where to


def test_a_closed_port_and_a_missing_sandbox_say_so(server: Server, box: Sandbox) -> None:
    closed = httpx.get(f"{server.url}/", headers=headers_of(box.id, 9), timeout=BOUND_S)
    assert closed.status_code == 502
    assert closed.json() == {
        "sandboxId": box.id,
        "message": "The sandbox is running but port is not open",
        "port": 9,
        "code": 502,
    }
    missing = httpx.get(f"{server.url}/", headers=headers_of("a" * 20, 80))
    assert missing.json() == {"sandboxId": "a" * 20, "message": "The sandbox was not found", "code": 502}
    page = httpx.get(f"{server.url}/", headers=headers_of("a" * 20, 80) | {"user-agent": "Mozilla/5.0"})
    assert page.headers["content-type"].startswith("text/html")
    bad = httpx.get(f"{server.url}/", headers={"e2b-sandbox-id": "../x", "e2b-sandbox-port": "80"})
    assert bad.status_code == 400


def test_a_name_below_localhost_is_a_port(server: Server, box: Sandbox) -> None:
    host = f"{PORT}-{box.id}.localhost:{server.port}"
    assert httpx.get(f"{server.url}/plain", headers={"host": host}).text == "plain"


# what answers


def test_answers_come_as_the_server_inside_gives_them(port: httpx.Client) -> None:
    plain = port.get("/plain")
    assert (plain.text, plain.headers.get_list("x-two")) == ("plain", ["a", "b"])
    assert "x-hop" not in plain.headers
    assert port.get("/old").text == "until the end"
    assert port.get("/chunks").text == "onetwo"
    assert port.get("/early").text == "ok"
    assert port.get("/nothing").status_code == 204
    assert port.get("/same").status_code == 304
    head = port.head("/plain")
    assert (head.headers["content-length"], head.headers["x-head"]) == ("1234", "yes")
    assert port.get("/twice").text == "ok"
    assert port.get("/plain").text == "plain"


def test_a_request_reaches_the_server_inside_without_what_is_between_neighbours(port: httpx.Client) -> None:
    headers = {
        "x-one": "1",
        "connection": "x-secret",
        "x-secret": "s",
        "x-forwarded-for": "6.6.6.6",
        "x-api-key": "k",
    }
    told = port.get("/request?a=%2F&b", headers=headers).text.split("\n")
    assert told[0] == "GET /request?a=%2F&b HTTP/1.1"
    names = [line.partition(":")[0] for line in told[1:]]
    assert {"Host", "X-One", "User-Agent"} <= set(names)
    assert not {"X-Secret", "X-Api-Key", "Connection"} & set(names)
    assert "X-Forwarded-For: 127.0.0.1" in told


@pytest.mark.parametrize("path", ["/short", "/cut"])
def test_an_answer_that_breaks_off_inside_breaks_off_outside(port: httpx.Client, path: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        port.get(path)


@pytest.mark.parametrize("path", ["/noise", "/endless", "/both", "/switch"])
def test_what_is_no_answer_is_a_bad_gateway(port: httpx.Client, path: str) -> None:
    assert port.get(path).status_code == 502


def test_each_piece_goes_through_before_the_next_one_is_there(server: Server, box: Sandbox) -> None:
    names = "".join(f"{name}: {value}\r\n" for name, value in headers_of(box.id, PORT).items())
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as raw:
        raw.sendall(
            f"POST /ticks HTTP/1.1\r\nHost: localhost\r\n{names}Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        seen = b""
        for word in (b"one", b"two"):
            raw.sendall(b"%x\r\n%b\r\n" % (len(word), word))
            while b"data: " + word not in seen:
                seen += raw.recv(65536)
        raw.sendall(b"0\r\n\r\n")
        while not seen.endswith(b"\r\n0\r\n\r\n"):
            seen += raw.recv(65536)


# WebSockets


class Socket:
    """A WebSocket client, one message at a time."""

    def __init__(self, server: Server, box: Sandbox, path: str) -> None:
        self.raw = socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S)
        self.ws = WSConnection(ConnectionType.CLIENT)
        extra = [(name.encode(), value.encode()) for name, value in headers_of(box.id, PORT).items()]
        self.send(
            Request(host="localhost", target=path, subprotocols=["first", "second"], extra_headers=extra)
        )

    def send(self, event: Event) -> None:
        self.raw.sendall(self.ws.send(event))

    def next(self) -> Event:
        while True:
            for event in self.ws.events():
                return event
            self.ws.receive_data(self.raw.recv(65536) or None)


def test_a_websocket_goes_through_both_ways(server: Server, box: Sandbox) -> None:
    client = Socket(server, box, "/socket?x=y")
    with client.raw:
        accepted = client.next()
        assert isinstance(accepted, AcceptConnection)
        assert accepted.subprotocol == "second"
        client.send(TextMessage(data="größe"))
        assert client.next() == TextMessage(data="größe")
        client.send(BytesMessage(data=b"\x00" * 1000))
        assert client.next() == BytesMessage(data=bytearray(1000))
        client.send(CloseConnection(code=1000))
        assert isinstance(client.next(), CloseConnection)


def test_what_speaks_no_websocket_is_passed_on_as_it_is(server: Server, box: Sandbox) -> None:
    client = Socket(server, box, "/plain")
    with client.raw:
        assert client.raw.recv(65536).startswith(b"HTTP/1.1 ")


# ends


def wait_until_gone(server: Server, sandbox_id: str) -> httpx.Response:
    deadline = time.monotonic() + BOUND_S
    while True:
        answer = httpx.get(f"{server.url}/health", headers=headers_of(sandbox_id, AGENT), timeout=BOUND_S)
        if answer.status_code != 204 or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def test_a_kill_cuts_streams_and_then_nothing_answers(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        doomed = stack.enter_context(Sandbox.create(team="default"))
        start_port_server(doomed)
        client = stack.enter_context(
            httpx.Client(base_url=server.url, headers=headers_of(doomed.id, PORT), timeout=BOUND_S)
        )
        # an answer without a length, whose end would be a clean end
        answer = stack.enter_context(client.stream("GET", "/wait"))
        pieces = answer.iter_raw()
        assert next(pieces) == b"waiting"
        doomed.kill()
        with pytest.raises(httpx.ReadError, match="reset"):
            next(pieces)
        gone = wait_until_gone(server, doomed.id)
        assert (gone.status_code, gone.json()["message"]) == (502, "The sandbox was not found")


def test_a_kill_during_a_command_is_what_the_e2b_sdk_says_it_is(server: Server, module_home: Path) -> None:
    with Sandbox.create(team="default") as doomed:
        there = remote(server, doomed, module_home)
        command = there.commands.run("sleep 1000", background=True, timeout=0)
        doomed.kill()
        with pytest.raises(TimeoutException, match="was killed or reached its end of life"):
            command.wait()


def test_a_request_wakes_a_sleeping_sandbox_and_waits_for_it(port: httpx.Client, box: Sandbox) -> None:
    assert port.get("/plain").text == "plain"
    box.suspend()
    assert box.info().state == "suspended"
    assert port.get("/plain").text == "plain"
    assert box.info().state == "running"


def test_a_sandbox_that_is_to_sleep_on_is_not_woken_by_a_request(server: Server) -> None:
    with Sandbox.create(team="default", lifecycle=Lifecycle(auto_resume=False)) as asleep:
        headers = headers_of(asleep.id, AGENT)
        assert httpx.get(f"{server.url}/health", headers=headers, timeout=BOUND_S).status_code == 204
        asleep.suspend()
        refused = httpx.get(f"{server.url}/health", headers=headers, timeout=BOUND_S)
        assert (refused.status_code, refused.json()["message"]) == (502, "The sandbox was not found")
        assert asleep.info().state == "suspended"
        asleep.resume()
        assert httpx.get(f"{server.url}/health", headers=headers, timeout=BOUND_S).status_code == 204


def test_a_client_that_leaves_ends_the_request_inside(server: Server) -> None:
    with Sandbox.create(team="default") as box:
        start_port_server(box)
        headers = headers_of(box.id, PORT)
        with httpx.stream("GET", f"{server.url}/wait", headers=headers, timeout=BOUND_S) as answer:
            assert next(answer.iter_raw()) == b"waiting"
        deadline = time.monotonic() + BOUND_S
        while not box.files.exists("/tmp/left"):
            assert time.monotonic() < deadline
            time.sleep(0.1)


# addresses and signed links


def _through_localhost(address: str) -> tuple[str, dict[str, str]]:
    """The address of the server itself, and the header that names the port, where no resolver knows the name."""
    parts = urlsplit(address)
    return f"http://127.0.0.1:{parts.port}{parts.path}?{parts.query}", {"host": parts.netloc}


def test_a_signed_link_opens_a_closed_port_to_a_browser(server: Server) -> None:
    del server
    with Sandbox.create(team="default", ports="closed") as closed:
        start_port_server(closed)
        page, host = _through_localhost(closed.url(PORT) + "request")
        with httpx.Client(headers=host, timeout=BOUND_S) as browser:
            assert browser.get(page).status_code == 403
            signed, _ = _through_localhost(closed.url(PORT, expires_in_s=600))
            first = browser.get(signed.replace("/?", "/request?"))
            assert (first.status_code, first.headers["location"]) == (303, "/request")
            kept = first.headers["set-cookie"].partition(";")[0]
            again = browser.get(page, headers={"cookie": f"a=1; {kept}"})
            assert again.status_code == 200
            assert "a=1" in again.text
            assert "atoll-link" not in again.text
            other, _ = _through_localhost(closed.url(PORT + 1, expires_in_s=600))
            assert browser.get(other).status_code == 403
            brief, _ = _through_localhost(closed.url(PORT, expires_in_s=1))
            kept = browser.get(brief).headers["set-cookie"].partition(";")[0]
            began = time.monotonic()
            with (
                pytest.raises(httpx.RemoteProtocolError),
                browser.stream("GET", page.replace("/request", "/wait"), headers={"cookie": kept}) as answer,
            ):
                for _ in answer.iter_raw():
                    pass
            assert time.monotonic() - began < 5


def test_the_address_of_a_port_is_printed(server: Server, box: Sandbox) -> None:
    address = f"http://{PORT}-{box.id}.localhost:{server.port}/"
    assert box.url(PORT) == address
    assert json.loads(said("url", box.id, str(PORT), "--json")) == {"url": address}
    assert said("url", box.id, str(PORT), "--expires", "1h").startswith(f"{address}?atoll-link=")


def test_a_sandbox_of_no_team_has_no_address(server: Server) -> None:
    del server
    with Sandbox.create() as alone, pytest.raises(StateError, match="belongs to no team"):
        alone.url(PORT)
