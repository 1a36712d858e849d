from pathlib import Path
from atoll.host import Home

def test_a_short_home_keeps_its_sockets_in_itself() -> None:
    assert Home("/home/someone/.local/share/atoll").run == Path("/home/someone/.local/share/atoll/run")
