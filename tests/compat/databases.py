"""Databases. Each keeps rows from turn to turn, and runs on over sleep and fork."""

from tests.compat.program import Family, Program

FAMILY = Family(
    "databases",
    (
        Program(
            "postgresql",
            """psql -qh "$PWD/run" compat -c "insert into turns values ($TURN)"
test "$(psql -Ath "$PWD/run" compat -c 'select count(*) from turns')" = "$TURN"
pgbench() { /usr/lib/postgresql/*/bin/pgbench -h "$PWD/run" "$@"; }
test "$TURN" != 1 || pgbench -qi compat
pgbench -n -c 4 -t 50 compat | grep -q 'processed: 200/200'""",
            start="""export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; mkdir run
initdb -D data --auth=trust >log; pg_ctl -w -D data -o "-k $PWD/run -c listen_addresses=''" -l server.log start
createdb -h "$PWD/run" compat; psql -qh "$PWD/run" compat -c 'create table turns (turn int)'""",
            debian="postgresql",
        ),
        Program(
            "mariadb",
            """q() { mariadb -S "$PWD/socket" -N -e "$1" compat; }
q "insert into turns values ($TURN)"; test "$(q 'select count(*) from turns')" = "$TURN"
q 'check table turns' | grep -q OK""",
            start="""mariadb-install-db --datadir="$PWD/data" --auth-root-authentication-method=normal >log 2>&1
mariadbd --no-defaults --datadir="$PWD/data" --socket="$PWD/socket" --skip-networking >log 2>&1 &
for try in {1..300}; do mariadb-admin -S "$PWD/socket" ping >/dev/null 2>&1 && break; sleep 0.1; done
m() { mariadb -S "$PWD/socket" -u "$(id -un)" "$@"; }
mariadb -S "$PWD/socket" -u root -e "create database compat; create user '$(id -un)'@localhost;
grant all on compat.* to '$(id -un)'@localhost"; m compat -e 'create table turns (turn int)'""",
            debian="mariadb-server",
        ),
        Program(
            "redis",
            """test "$(redis-cli -s "$PWD/socket" incr asked)" = "$TURN"
redis-cli -s "$PWD/socket" save | grep -q OK""",
            start="""redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" >log 2>&1 &
for try in {1..100}; do redis-cli -s "$PWD/socket" ping 2>&1 | grep -q PONG && break; sleep 0.1; done""",
            debian="redis-server",
        ),
        Program(
            "memcached",
            """exec 3<>/dev/tcp/127.0.0.1/8201; printf 'incr asked 1\\r\\n' >&3; read -r -t 20 answer <&3
test "${answer%$'\\r'}" = "$TURN" """,
            start="""memcached -l 127.0.0.1 -p 8201 >log 2>&1 &
for try in {1..100}; do (exec 3<>/dev/tcp/127.0.0.1/8201) 2>/dev/null && break; sleep 0.1; done
exec 3<>/dev/tcp/127.0.0.1/8201; printf 'set asked 0 0 1\\r\\n0\\r\\n' >&3; read -r -t 20 answer <&3""",
            debian="memcached",
        ),
        Program(
            "sqlite3",
            """rm -f rows.db; sqlite3 rows.db 'pragma journal_mode=wal; create table r as
with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) select i from n;
create index by_i on r(i); pragma integrity_check; select sum(i) from r' | tail -1 | grep -qx 5000050000""",
            debian="sqlite3",
            host="sqlite3",
        ),
        Program(
            "duckdb",
            """python3 - <<'END'
import duckdb
with duckdb.connect("rows.duckdb") as rows:
    rows.execute("create or replace table r as select range as i from range(1000000)")
    assert rows.execute("select sum(i) from r").fetchall() == [(499999500000,)]
END""",
            pip="duckdb",
        ),
    ),
)
