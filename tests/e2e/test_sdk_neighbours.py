"""One sandbox reaches another by its name, as its policy allows, and wakes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from atoll import Hosting, Sandbox, Teams
from atoll.protocol import AGENT_PORT
from atoll.types import Policy, Rule
from atoll.types.internal import SANDBOX_DOMAIN

PORT = 8080
SERVER = f"""
import http.server, itertools
counts = itertools.count(1)
class Counts(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answer %d" % next(counts))
    do_POST = do_GET
http.server.ThreadingHTTPServer(("{{address}}", {PORT}), Counts).serve_forever()
"""


def serving(name: str, address: str = "0.0.0.0", team: str | None = None) -> Sandbox:
    """A sandbox with a server that counts the requests that it answers."""
    sandbox = Sandbox.create(name=name, hosting=Hosting(team=team), network="none")
    sandbox.processes.start(["python3", "-c", SERVER.format(address=address)], stream=False)
    listens = ["sh", "-c", f"ss -ltn | grep -q LISTEN.*:{PORT}"]
    until(lambda: sandbox.exec(listens).exit_code == 0)
    return sandbox


def curl(sandbox: Sandbox, name: str, *options: str, port: int = PORT) -> str:
    address = f"http://{name}.{SANDBOX_DOMAIN}:{port}/"
    done = sandbox.exec(["curl", "-sS", "-m", "20", *options, address])
    return done.stdout + done.stderr


@pytest.fixture
def shop(module_home: Path) -> Iterator[Sandbox]:
    with serving("shop") as made:
        yield made


def test_a_name_reaches_a_sandbox_and_wakes_it_as_often_as_it_sleeps(shop: Sandbox) -> None:
    by_both = (Policy.expose_sandbox("shop", PORT), Policy.expose_sandbox(shop.id, PORT))
    with Sandbox.create(network=Policy(rules=by_both)) as caller:
        assert curl(caller, "shop") == "answer 1"
        shop.suspend()
        assert curl(caller, "shop") == "answer 2"
        assert shop.info().state == "running"
        shop.pause()
        assert curl(caller, shop.id) == "answer 3"
        shop.suspend()
        caller.suspend()
        assert curl(caller, "shop") == "answer 4"
        shop.kill()
        assert "curl" in curl(caller, "shop")
        log = [(one.host, one.reason) for one in caller.egress.decisions() if one.action == "deny"]
        assert log == [(f"shop.{SANDBOX_DOMAIN}", "the sandbox is not reached: the team has no sandbox shop")]


def test_a_server_on_the_loopback_interface_of_the_other_one_is_reached(module_home: Path) -> None:
    policy = Policy(rules=(Policy.expose_sandbox("local", PORT),))
    with serving("local", "127.0.0.1"), Sandbox.create(network=policy) as caller:
        assert curl(caller, "local") == "answer 1"


def test_only_what_a_rule_names_is_reached(shop: Sandbox) -> None:
    with Sandbox.create(network=Policy.allow("*")) as caller:
        assert "Could not resolve host" in curl(caller, "shop")
        for preset in ("none", "internet"):
            caller.set_network(preset)
            assert "Could not resolve host" in curl(caller, "shop")
        caller.set_network(Policy(rules=(Policy.expose_sandbox("shop", AGENT_PORT),)))
        assert "curl" in curl(caller, "shop", port=AGENT_PORT)
        assert "curl" in curl(caller, "shop")
        log = "".join(one.reason for one in caller.egress.decisions())
        assert f"port {AGENT_PORT} is the guest agent's" in log
        # a connection that is open ends with the rule
        every = Rule(hosts=(f"*.{SANDBOX_DOMAIN}",), methods=("GET",), ports=(PORT,))
        caller.set_network(Policy(rules=(every,)))
        assert curl(caller, "shop") == "answer 1"
        assert "no rule allows" in curl(caller, "shop", "-d", "x")
        name = f"http://shop.{SANDBOX_DOMAIN}:{PORT}"
        assert caller.egress.test("GET", name).action == "allow"
        assert caller.egress.test("POST", name).action == "deny"


def test_a_sandbox_reaches_those_of_its_own_team_alone(shop: Sandbox) -> None:
    Teams.create("reef")
    policy = Policy(rules=(Policy.expose_sandbox("shop", PORT), Policy.expose_sandbox("reef-shop", PORT)))
    with (
        serving("reef-shop", team="reef"),
        Sandbox.create(hosting=Hosting(team="reef"), network=policy) as inside,
        Sandbox.create(network=policy) as outside,
    ):
        assert curl(inside, "reef-shop") == "answer 1"
        assert curl(outside, "shop") == "answer 1"
        shop.suspend()
        assert "curl" in curl(inside, "shop")
        assert "curl" in curl(outside, "reef-shop")
        assert shop.info().state == "suspended"
        reasons = [
            [one.reason for one in each.egress.decisions() if one.action == "deny"]
            for each in (inside, outside)
        ]
        assert reasons == [
            [f"the sandbox is not reached: the team has no sandbox {name}"] for name in ("shop", "reef-shop")
        ]
        Teams.set_ceiling("reef", "internet")
        assert "Could not resolve host" in curl(inside, "reef-shop")
        Teams.set_ceiling("reef", Policy(rules=(Rule(hosts=(f"*.{SANDBOX_DOMAIN}",)),)))
        assert curl(inside, "reef-shop") == "answer 2"
