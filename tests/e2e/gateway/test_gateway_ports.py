"""Other machines reach ports through `atoll serve`, and are answered as the server inside answers."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.e2e.command_line import said
from tests.e2e.gateway.clients import (
    AGENT,
    BOUND_S,
    PORT,
    Socket,
    headers_of,
    start_port_server,
    token_of,
)
from tests.e2e.listening import until_listening
from tests.e2e.server import Server
from tests.integration.network.web import certified
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, TextMessage

from atoll import Hosting, Sandbox
from atoll.errors import StateError
from atoll.secrets import home_authority


def test_private_ports_need_the_traffic_token(server: Server, module_home: Path) -> None:
    attributes = {"e2b_mask_host": "inside-${PORT}.test"}
    with Sandbox.create(hosting=Hosting(team="default", ports="closed", attributes=attributes)) as private:
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
        hosting=Hosting(team="default", attributes={"e2b_https_ports": f"{PORT} x -1 99999 {AGENT + 1}"})
    ) as secure:
        secure.files.write("/tmp/server.pem", certificate.read_bytes())
        start_port_server(secure, "/tmp/server.pem")
        secure.processes.start(["python3", "-m", "http.server", str(AGENT + 1)])
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


def _through_localhost(address: str) -> tuple[str, dict[str, str]]:
    """The address of the server itself, and the header that names the port, where no resolver knows the name."""
    parts = urlsplit(address)
    return f"http://127.0.0.1:{parts.port}{parts.path}?{parts.query}", {"host": parts.netloc}


def test_a_signed_link_opens_a_closed_port_to_a_browser(server: Server) -> None:
    del server
    with Sandbox.create(hosting=Hosting(team="default", ports="closed")) as closed:
        start_port_server(closed)
        page, host = _through_localhost(closed.ports.url(PORT) + "request")
        with httpx.Client(headers=host, timeout=BOUND_S) as browser:
            assert browser.get(page).status_code == 403
            signed, _ = _through_localhost(closed.ports.url(PORT, expires_in_s=600))
            first = browser.get(signed.replace("/?", "/request?"))
            assert (first.status_code, first.headers["location"]) == (303, "/request")
            kept = first.headers["set-cookie"].partition(";")[0]
            again = browser.get(page, headers={"cookie": f"a=1; {kept}"})
            assert again.status_code == 200
            assert "a=1" in again.text
            assert "atoll-link" not in again.text
            other, _ = _through_localhost(closed.ports.url(PORT + 1, expires_in_s=600))
            assert browser.get(other).status_code == 403
            brief, _ = _through_localhost(closed.ports.url(PORT, expires_in_s=1))
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
    assert box.ports.url(PORT) == address
    assert json.loads(said("url", box.id, str(PORT), "--json")) == {"url": address}
    assert said("url", box.id, str(PORT), "--expires", "1h").startswith(f"{address}?atoll-link=")


def test_a_sandbox_of_no_team_has_no_address(server: Server) -> None:
    del server
    with Sandbox.create() as alone, pytest.raises(StateError, match="belongs to no team"):
        alone.ports.url(PORT)
