import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from atoll.errors import InvalidSpecError
from atoll.mcp.__main__ import address_of, command, network_of
from atoll.mcp.install import CLIENTS


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_clients_other_servers_and_settings_stay(tmp_path: Path, client: str) -> None:
    key, file = CLIENTS[client].key, tmp_path / "deep" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"theme": "dark", key: {"other": {"command": "x"}}}))
    arguments = ["--network", "packages", "install", client, "--file", str(file)]
    assert CliRunner().invoke(command, arguments).exit_code == 0
    written = json.loads(file.read_text())
    assert written["theme"] == "dark"
    assert written[key]["other"] == {"command": "x"}
    assert written[key]["atoll"]["args"][-2:] == ["--network", "packages"]


def test_a_configuration_that_is_no_json_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("{ // a comment\n}")
    result = CliRunner().invoke(command, ["install", "claude", "--file", str(file)])
    assert isinstance(result.exception, InvalidSpecError)
    assert file.read_text() == "{ // a comment\n}"


def test_a_configuration_behind_a_symlink_stays_a_symlink_and_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("{}")
    real.chmod(0o640)
    link.symlink_to(real)
    assert CliRunner().invoke(command, ["install", "claude", "--file", str(link)]).exit_code == 0
    assert link.is_symlink()
    assert "atoll" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_print_changes_nothing_and_names_a_policys_file_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.toml").write_text('[[rules]]\nhosts = ["example.com"]\n')
    result = CliRunner().invoke(command, ["--network", "policy.toml", "install", "vscode", "--print"])
    entry = json.loads(result.output)["servers"]["atoll"]
    assert entry["args"][-1] == str(tmp_path / "policy.toml")


def test_what_is_neither_a_preset_nor_a_file_is_refused() -> None:
    assert network_of("packages") == "packages"
    with pytest.raises(InvalidSpecError, match="cannot be read"):
        network_of("/nowhere/policy.toml")


@pytest.mark.parametrize("text", ["7000", "localhost", "localhost:", "localhost:0", "localhost:70000", ":1"])
def test_an_address_needs_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="not an address"):
        address_of(text)


def test_an_ipv6_address_is_taken_without_its_brackets() -> None:
    assert address_of("[::1]:7000") == ("::1", 7000)
