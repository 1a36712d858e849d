"""What the image ``base`` has: the short form, which needs no registry."""

from tests.compat.program import Family, Program

FAMILY = Family(
    "base",
    (
        Program(
            "python",
            'test "$(python3 -c "print(sum(n * n for n in range(300000)))")" = 8999955000050000',
            host="python3",
        ),
        Program(
            "python-processes",
            """python3 - <<'END'
import multiprocessing
with multiprocessing.Pool(4) as pool:
    assert pool.map(abs, range(-1000, 0)) == list(range(1000, 0, -1))
END""",
            host="python3",
        ),
        Program(
            "python-venv",
            'python3 -m venv --clear --without-pip made; test "$(made/bin/python -c "print(6 * 7)")" = 42',
        ),
        Program(
            "sqlite",
            """python3 - <<'END'
import os, sqlite3
with sqlite3.connect("rows.db") as rows:
    rows.execute("pragma journal_mode = wal")
    rows.execute("create table if not exists turns (turn integer)")
    rows.execute("insert into turns values (?)", [os.environ["TURN"]])
    assert [turn for turn, in rows.execute("select * from turns")] == list(range(1, int(os.environ["TURN"]) + 1))
END""",
        ),
        Program(
            "http-server",
            """for try in {1..100}; do curl -sf localhost:8101/ >listing && break; sleep 0.1; done
grep -q served.txt listing
test "$(curl -sf localhost:8101/served.txt)" = words""",
            start="""mkdir -p public; echo words >public/served.txt
python3 -m http.server -d public 8101 >log 2>&1 &""",
        ),
        Program(
            "bash-that-counts",
            'echo more >asked; read -r -t 20 counted <told; test "$counted" = "$TURN"',
            start="""mkfifo asked told
(exec 3<>asked 4<>told; n=0; while read -r _ <&3; do n=$((n + 1)); echo $n >&4; done) &""",
        ),
        Program(
            "git",
            """rm -rf origin copy; git init -q -b main origin; cd origin
git config user.name a; git config user.email a@example.com
for n in {1..8}; do echo $n >file; git add file; git commit -qm "number $n"; done
git clone -q . ../copy; cd ../copy; git fsck --strict; test "$(git log --format=%s | wc -l)" = 8""",
            host="git",
        ),
        Program(
            "git-over-http",
            """rm -rf copy; git clone -q http://localhost:8102/origin.git copy
cd copy; git log --format=%s | grep -qx first""",
            start="""git init -q -b main work; cd work; git config user.name a; git config user.email a@example.com
echo a >a; git add a; git commit -qm first; cd ..; mkdir served; git clone -q --bare work served/origin.git
git -C served/origin.git update-server-info; python3 -m http.server -d served 8102 >log 2>&1 &
for try in {1..100}; do curl -sf localhost:8102/ && break; sleep 0.1; done""",
        ),
        Program(
            "perl",
            """perl -e 'my %h; $h{$_ % 97}++ for 1..200000; print scalar(keys %h), "\\n"' | grep -qx 97""",
            host="perl",
        ),
        Program(
            "tar-and-gzip",
            """rm -rf out; mkdir out; tar -C /usr/share -cz common-licenses | tar -C out -xz
diff -r /usr/share/common-licenses out/common-licenses""",
            host="tar gzip diff",
        ),
        Program(
            "coreutils",
            """seq 100000 | shuf | sort -n --parallel=4 | sha256sum | cut -c1-8 >sorted
test "$(cat sorted)" = "$(seq 100000 | sha256sum | cut -c1-8)" """,
            host="seq shuf sort sha256sum",
        ),
        Program("jq", """jq -n '[range(10000)] | map(. * 2) | add' | grep -qx 99990000""", host="jq"),
        Program("ripgrep", "rg -c 'GNU' /usr/share/common-licenses | grep -q GPL-3", host="rg"),
        Program(
            "openssl",
            """openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out crt -subj /CN=a
openssl verify -CAfile crt crt""",
            host="openssl",
        ),
        Program(
            "unzip",
            """python3 -m zipfile -c packed.zip /usr/share/common-licenses/GPL-3; rm -rf GPL-3; unzip -q packed.zip
cmp GPL-3 /usr/share/common-licenses/GPL-3""",
        ),
        Program(
            "flock",
            "exec 9>lock; flock -n 9; ! flock -n lock true; flock -u 9; flock -n lock true",
            host="flock",
        ),
    ),
)
