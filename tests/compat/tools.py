"""What people work with on a terminal."""

from tests.compat.program import Family, Program

FAMILY = Family(
    "tools",
    (
        Program(
            "tmux",
            """tmux -S "$PWD/socket" send-keys -t compat \\
"n=\\$((n + 1)); echo \\$n >turn.new; mv turn.new turn-$TURN" Enter
for try in {1..200}; do test -e turn-$TURN && break; sleep 0.1; done; test "$(cat turn-$TURN)" = "$TURN" """,
            start='tmux -S "$PWD/socket" new-session -d -s compat bash --norc',
            debian="tmux",
        ),
        Program(
            "screen",
            """export TERM=linux SCREENDIR=$HOME/.screen; screen -S compat -X stuff "echo \\$((6 * 7)) >turn-$TURN^M"
for try in {1..200}; do test -s turn-$TURN && break; sleep 0.1; done; test "$(cat turn-$TURN)" = 42""",
            start="export TERM=linux SCREENDIR=$HOME/.screen; mkdir -pm700 $SCREENDIR; screen -dmS compat bash --norc",
            debian="screen",
        ),
        Program(
            "vim",
            """printf 'one\\ntwo\\n' >text; vim -Nesu NONE -c '%s/two/2/' -c 'normal ggyyGp' -c wq text
test "$(tr '\\n' , <text)" = one,2,one,""",
            debian="vim-nox",
            host="vim",
        ),
        Program(
            "emacs",
            "emacs -Q --batch --eval '(princ (apply (quote +) (number-sequence 1 100)))' | grep -qx 5050",
            debian="emacs-nox",
            host="emacs",
        ),
        Program(
            "strace",
            "strace -f -o trace -e trace=execve,openat sh -c 'cat /etc/hostname'; grep -q 'execve.*cat' trace",
            debian="strace",
            host="strace",
        ),
        Program(
            "gdb",
            """gdb -q -batch -ex 'set breakpoint pending on' -ex 'break write' -ex run -ex bt \\
--args echo words >trace 2>&1
grep -q 'Breakpoint 1' trace; grep -q '#0' trace""",
            debian="gdb",
            host="gdb",
        ),
        Program(
            "zsh", "zsh -fc 'a=({1..100}); print $((${(j:+:)a}))' | grep -qx 5050", debian="zsh", host="zsh"
        ),
        Program(
            "zstd-xz-7z",
            """seq 200000 >numbers; zstd -qf numbers; xz -kf numbers; rm -f a.7z; 7z a -bd a.7z numbers >log
zstd -dc numbers.zst | cmp - numbers; xz -dc numbers.xz | cmp - numbers; 7z x -so a.7z | cmp - numbers""",
            debian="zstd xz-utils p7zip-full",
            host="zstd xz 7z",
        ),
        Program(
            "expect",
            """expect -c 'set timeout 30; spawn python3 -q; expect ">>> "; send "6 * 7\\r"
expect "\n42" {} timeout { exit 1 }; send "exit()\\r"; expect eof'""",
            debian="expect",
            host="expect",
        ),
        Program(
            "sshfs",
            """ls /tmp/mounted/common-licenses | grep -qx GPL-3
cmp /tmp/mounted/common-licenses/GPL-3 /usr/share/common-licenses/GPL-3""",
            start="""ssh-keygen -qt ed25519 -N '' -f host; ssh-keygen -qt ed25519 -N '' -f key; mkdir /tmp/mounted
/usr/sbin/sshd -f /dev/null -h "$PWD/host" -p 8703 -o PidFile="$PWD/pid" -o AuthorizedKeysFile="$PWD/key.pub" \\
-o StrictModes=no -o Subsystem='sftp internal-sftp'
sshfs -p 8703 -o IdentityFile="$PWD/key",StrictHostKeyChecking=no localhost:/usr/share /tmp/mounted""",
            debian="sshfs openssh-server",
        ),
    ),
)
