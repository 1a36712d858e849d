"""The published E2B SDKs, old and new, Python and JavaScript, against `atoll serve`.

All cases of the newest SDKs run over plain http; some run with the old one, and some over TLS with wildcard names.
`make soak ONLY=sdks` has all of them over TLS.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.resolving_proxy import names_on
from tests.e2e.server import Server, serving
from tests.sdks.installed import javascript_sdk, python_sdk

CASES = Path(__file__).parent / "cases"
OLD, NEW = "2.45.1", "2.63.0"
BOUND_S = 1800

# What no case calls, and why.
# ask no server
_LOCAL = {
    "Secret.iam_token",
    "Sandbox.get_mcp_token",
    "Sandbox.get_mcp_url",
    "Template.skip_cache",
}
# from_image, which is called, with a name that only a public registry has
_OTHER_IMAGES = {
    f"Template.from_{kind}" for kind in (
        "alpine_image", "arch_image", "aws_registry", "bun_image", "debian_image", "fedora_image", "gcp_registry",
        "node_image", "python_image", "ubuntu_image",
    )
}  # fmt: skip
UNCALLED = _LOCAL | _OTHER_IMAGES
BOTH_UNCALLED = {f"{face}{name}" for name in UNCALLED for face in ("", "async ")}


# Each runs all cases of an SDK: minutes, and several times as many on a busy host.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def plain(module_home: Path) -> Iterator[Server]:
    """A server that speaks plain http."""
    with serving() as server:
        yield server


def test_the_python_sdk_of_today_works_over_http(plain: Server, tmp_path: Path) -> None:
    assert uncalled(run_python(NEW, plain.variables, tmp_path)) == BOTH_UNCALLED


def test_the_old_python_sdk_works_over_http(plain: Server, tmp_path: Path) -> None:
    run_python(OLD, plain.variables, tmp_path, "cases_commands.py", "cases_files.py")


def test_the_python_sdk_works_over_tls_with_wildcard_names(secure: Server, tmp_path: Path) -> None:
    run_python_over_tls(NEW, secure, tmp_path, "cases_files.py")


def test_the_javascript_sdk_works_over_http(plain: Server, tmp_path: Path) -> None:
    assert uncalled(run_javascript(plain.variables, tmp_path)) == set()


def test_the_javascript_sdk_works_over_tls_with_wildcard_names(secure: Server, tmp_path: Path) -> None:
    run_javascript_over_tls(secure, tmp_path, "a command gives|signed urls")


def run_python(version: str, variables: dict[str, str], tmp_path: Path, *files: str) -> dict[str, bool]:
    """Run the cases under one version of the SDK; which of its methods they called."""
    chosen = files or tuple(sorted(case.name for case in CASES.glob("cases_*.py")))
    alone = ("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(CASES), "--confcutdir", str(CASES))
    argv = [str(python_sdk(version)), "-m", "pytest", "-q", "-x", *alone, *chosen]
    return run(argv, CASES, variables, tmp_path)


def run_python_over_tls(version: str, server: Server, tmp_path: Path, *files: str) -> dict[str, bool]:
    """Run the cases with a server that has names and an authority of its own."""
    with names_on(port_of(server)) as address:
        variables = {**server.variables, "HTTPS_PROXY": address, "SSL_CERT_FILE": authority(server)}
        return run_python(version, variables, tmp_path, *files)


def run_javascript(variables: dict[str, str], tmp_path: Path, pattern: str = ".") -> dict[str, bool]:
    """Run the cases whose names fit under Node; which of the SDK's methods they called."""
    argv = ["node", "--test", f"--test-name-pattern={pattern}", "clients.test.mjs"]
    return run(argv, javascript_sdk(), variables, tmp_path)


def run_javascript_over_tls(server: Server, tmp_path: Path, pattern: str = ".") -> dict[str, bool]:
    """Run the cases with a server that has names and an authority of its own."""
    variables = {**server.variables, "NODE_OPTIONS": "--require ./lookup.cjs"}
    return run_javascript(variables, tmp_path, pattern)


def run(argv: list[str], cwd: Path, variables: dict[str, str], tmp_path: Path) -> dict[str, bool]:
    """Run the cases with these variables and none of the SDK's own besides."""
    calls = tmp_path / "calls.json"
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("E2B_", "ATOLL_", "PYTHON"))
    }
    environ = {**clean, **variables, "ATOLL_CALLS": str(calls), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, timeout=BOUND_S)
    assert ran.returncode == 0, f"{ran.stdout[-20000:]}{ran.stderr[-5000:]}"
    found: dict[str, bool] = json.loads(calls.read_text())
    return found


def uncalled(called: dict[str, bool]) -> set[str]:
    """The methods that no case called."""
    return {name for name, was in called.items() if not was}


def port_of(server: Server) -> int:
    """The port that a server with a domain listens on."""
    return int(server.variables["E2B_DOMAIN"].rpartition(":")[2])


def authority(server: Server) -> str:
    """The certificate of the server's own authority."""
    return server.variables["SSL_CERT_FILE"]
