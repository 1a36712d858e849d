"""Teams and keys on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.e2e.command_line import atoll, said

from atoll import Keys, Teams


def test_an_operator_makes_a_team_a_key_and_ends_both(home: Path) -> None:
    assert said("team", "create", "reef", "--running", "2", "--memory", "1048576", "--lease", "2h") == (
        "reef --running 2 --memory 1048576 --lease 7200"
    )
    key = said("key", "create", "reef", "--name", "laptop", "--expires", "90d")
    assert re.fullmatch("e2b_[0-9a-f]{40}", key)
    assert Keys.check(key).name == "reef"
    (listed,) = json.loads(said("key", "ls", "--team", "reef", "--json"))
    assert (listed["name"], "key" in listed, "hash" in listed) == ("laptop", False, False)
    assert key not in said("key", "ls")
    assert said("team", "set", "reef", "--memory", "off", "--disk", "100") == (
        "reef --running 2 --disk 100 --lease 7200"
    )
    told = json.loads(said("team", "info", "reef", "--json"))
    assert (told["quotas"], told["use"]["running"]) == (
        {"running": 2, "disk_mib": 100, "ttl_s": 7200.0},
        0,
    )
    assert "running     0, at most 2" in said("team", "info", "reef").splitlines()
    assert "--disk 100" in said("team", "ls")
    revoked = atoll("key", "revoke", "key-of-nobody", listed["key_id"], "--json")
    assert (revoked.returncode, [info["key_id"] for info in json.loads(revoked.stdout)]) == (
        125,
        [listed["key_id"]],
    )
    assert json.loads(revoked.stderr)["error"]["code"]
    assert "revoked" in said("key", "ls")
    refused = atoll("create", "--team", "reef")
    assert (refused.returncode, refused.stdout) == (125, b"")
    assert b"sandboxes of team 'reef' need a lease of at most 7200 seconds" in refused.stderr
    assert b"--lease 2h" in refused.stderr
    assert atoll("run", "--team", "reef", "--lease", "3h", "true").returncode == 125
    assert said("run", "--team", "reef", "--lease", "1h", "echo", "leased") == "leased"
    said("team", "delete", "reef")
    assert Teams.list() == []
    wrong = atoll("team", "create", "reef", "--running", "many", "--json")
    assert b"give one, or off" in wrong.stderr
