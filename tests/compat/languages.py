"""Languages that run what they are given, and tests that come with them."""

from tests.compat.program import Family, Program

FAMILY = Family(
    "languages",
    (
        Program(
            "ruby",
            """ruby -e 'require "json"; puts JSON.parse(JSON.dump((1..1000).to_a)).sum' | grep -qx 500500
ruby -e '8.times { |n| fork { exit n } }; puts Process.waitall.map { |_, s| s.exitstatus }.sum' | grep -qx 28""",
            debian="ruby",
            host="ruby",
        ),
        Program(
            "ruby-that-counts",
            'exec 3<>/dev/tcp/127.0.0.1/8601; read -r -t 20 told <&3; test "$told" = "$TURN"',
            start="""ruby -rsocket -e 's = TCPServer.new("127.0.0.1", 8601); n = 0
loop { c = s.accept; c.puts(n += 1); c.close }' >log 2>&1 &
for try in {1..200}; do ss -tln | grep -q LISTEN.*:8601 && break; sleep 0.1; done""",
            debian="ruby",
        ),
        Program(
            "php",
            """php -r 'echo array_sum(array_map(fn($n) => $n * $n, range(1, 1000)));' | grep -qx 333833500
test "$(curl -sf localhost:8602/)" = 42""",
            start="""echo '<?php echo 6 * 7;' >index.php; php -S localhost:8602 >log 2>&1 &
for try in {1..200}; do curl -sf localhost:8602/ && break; sleep 0.1; done""",
            debian="php-cli",
        ),
        Program(
            "lua",
            "lua5.4 -e 'local s = 0; for n = 1, 1000000 do s = s + n end; print(s)' | grep -qx 500000500000",
            debian="lua5.4",
            host="lua5.4",
        ),
        Program("tcl", "echo 'puts [expr {6 * 7}]' | tclsh | grep -qx 42", debian="tcl", host="tclsh"),
        Program(
            "sbcl",
            """sbcl --noinform --eval '(progn (princ (loop for n below 100000 sum n)) (terpri) (exit))' |
grep -qx 4999950000""",
            debian="sbcl",
        ),
        Program(
            "guile", "guile-3.0 -c '(display (apply + (iota 1000)))' | grep -qx 499500", debian="guile-3.0"
        ),
        Program(
            "erlang",
            """erl -noshell -eval 'S = self(), [spawn(fun() -> S ! N end) || N <- lists:seq(1, 1000)],
io:format("~p~n", [lists:sum([receive N -> N end || _ <- lists:seq(1, 1000)])]), halt().' | grep -qx 500500""",
            debian="erlang-base",
        ),
        Program(
            "r",
            """Rscript -e 'm <- matrix(runif(10000), 100); stopifnot(all.equal(solve(m) %*% m, diag(100)))
cat("right\\n")' | grep -qx right""",
            debian="r-base-core",
        ),
        Program(
            "python-own-tests",
            "python3 -m test test_json test_re test_socketserver test_threading test_fork1 test_mmap test_posix",
            debian="libpython3.11-testsuite",
        ),
        Program(
            "python-socket-tests",
            """python3 - <<'END'
import unittest
from test import test_socket
# Linux has UDP-Lite, gVisor has not: see docs/guide/inside.md.
tests = unittest.TestSuite(
    test for kind in unittest.defaultTestLoader.loadTestsFromModule(test_socket) for test in kind
    if "UDPLITE" not in type(test).__name__
)
assert unittest.TextTestRunner(verbosity=0).run(tests).wasSuccessful()
END""",
            debian="libpython3.11-testsuite",
        ),
    ),
)
