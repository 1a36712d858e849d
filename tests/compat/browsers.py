"""Browsers without a screen."""

from tests.compat.program import Family, Program

_PAGE = """cat >page.html <<'END'
<title>before</title><p id=p>no</p><script>p.textContent = "six times seven is " + 6 * 7</script>
END
"""

FAMILY = Family(
    "browsers",
    (
        Program(
            "chromium",
            _PAGE
            + """chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile-$TURN" \\
--dump-dom "file://$PWD/page.html" 2>log | grep -q 'seven is 42'""",
            debian="chromium",
        ),
        Program(
            "chromium-screenshot",
            _PAGE
            + """chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile-$TURN" \\
--window-size=400,300 --screenshot="$PWD/shot-$TURN.png" "file://$PWD/page.html" 2>log
test "$(head -c 4 shot-$TURN.png | tail -c 3)" = PNG""",
            debian="chromium",
        ),
        Program(
            "chromium-that-lives",
            """test "$(curl -sf localhost:9222/json/version | jq -r '."Protocol-Version"')" = 1.3
curl -sf localhost:9222/json/list | jq -e '.[0].url | endswith("page.html")'""",
            start=_PAGE
            + """chromium --headless --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" \\
--remote-debugging-port=9222 "file://$PWD/page.html" >log 2>&1 &
for try in {1..300}; do curl -sf localhost:9222/json/version && break; sleep 0.2; done""",
            debian="chromium",
        ),
        Program(
            "w3m",
            "echo '<h1>six</h1><table><tr><td>a<td>b</table>' >page.html; w3m -dump page.html | grep -q 'a b'",
            debian="w3m",
            host="w3m",
        ),
    ),
)
