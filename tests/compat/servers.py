"""Servers, and the programs that speak to them."""

from tests.compat.program import Family, Program

_UP = "for try in {1..200}; do curl -s -o up localhost:%d/ && break; sleep 0.1; done"

FAMILY = Family(
    "servers",
    (
        Program(
            "nginx",
            """test "$(curl -sf localhost:8301/page)" = words
for n in {1..50}; do curl -sf localhost:8301/page & done | grep -c words | grep -qx 50""",
            start="""echo words >page
cat >nginx.conf <<END
user user; pid $PWD/pid; error_log $PWD/error.log; events {}
http { access_log off; server { listen 127.0.0.1:8301; root $PWD; } }
END
sudo /usr/sbin/nginx -c "$PWD/nginx.conf" """,
            debian="nginx-light",
        ),
        Program(
            "apache",
            'test "$(curl -sf localhost:8302/page)" = words',
            start="""echo words >page; cat >apache.conf <<END
ServerRoot $PWD
PidFile $PWD/pid
ErrorLog $PWD/error.log
Listen 127.0.0.1:8302
ServerName localhost
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
DocumentRoot $PWD
END
/usr/sbin/apache2 -f "$PWD/apache.conf"; """
            + _UP % 8302,
            debian="apache2",
        ),
        Program(
            "haproxy",
            'test "$(curl -sf localhost:8303/page)" = words',
            start="""mkdir served; echo words >served/page; python3 -m http.server -d served 8304 >log 2>&1 &
cat >haproxy.cfg <<END
defaults
  mode http
  timeout client 30s
  timeout server 30s
  timeout connect 5s
listen all
  bind 127.0.0.1:8303
  server one 127.0.0.1:8304
END
/usr/sbin/haproxy -D -f haproxy.cfg -p "$PWD/pid"
for try in {1..200}; do curl -sf localhost:8303/page && break; sleep 0.1; done""",
            debian="haproxy",
        ),
        Program(
            "openssh",
            """test "$(ssh -F none -i key -p 8305 -o StrictHostKeyChecking=no -o UserKnownHostsFile="$PWD/hosts" \\
localhost 'echo $((6 * 7))')" = 42
ssh -F none -i key -p 8305 -o UserKnownHostsFile="$PWD/hosts" localhost 'cat >copied' </etc/services
cmp ~/copied /etc/services""",
            start="""ssh-keygen -qt ed25519 -N '' -f host; ssh-keygen -qt ed25519 -N '' -f key
mkdir -p ~/.ssh; cat key.pub >>~/.ssh/authorized_keys; chmod 700 ~/.ssh; chmod 600 ~/.ssh/authorized_keys
chmod 755 ~; /usr/sbin/sshd -f /dev/null -h "$PWD/host" -p 8305 -o PidFile="$PWD/pid" -o StrictModes=no""",
            debian="openssh-server openssh-client",
        ),
        Program(
            "rsync",
            """rm -rf copy; rsync -a rsync://localhost:8306/licenses/ copy
diff -r copy /usr/share/common-licenses; rsync -a --delete rsync://localhost:8306/licenses/ copy""",
            start="""cat >rsyncd.conf <<END
pid file = $PWD/pid
use chroot = no
[licenses]
path = /usr/share/common-licenses
END
rsync --daemon --config=rsyncd.conf --port=8306 --address=127.0.0.1""",
            debian="rsync",
        ),
        Program(
            "mosquitto",
            """mosquitto_sub -p 8307 -t topic -C 1 -W 20 | grep -qx "turn $((TURN - 1))"
mosquitto_pub -p 8307 -t topic -r -m "turn $TURN" """,
            start="""/usr/sbin/mosquitto -p 8307 >log 2>&1 &
for try in {1..100}; do mosquitto_pub -p 8307 -t topic -r -m 'turn 0' 2>/dev/null && break; sleep 0.1; done""",
            debian="mosquitto mosquitto-clients",
        ),
        Program(
            "fastapi-uvicorn",
            """test "$(curl -sf localhost:8308/turn)" = "$TURN" """,
            start="""cat >served.py <<'END'
import itertools
from fastapi import FastAPI
app, turns = FastAPI(), itertools.count(1)
@app.get("/turn")
async def turn() -> int:
    return next(turns)
END
python3 -m uvicorn served:app --port 8308 >log 2>&1 &
"""
            + _UP % 8308,
            pip="fastapi uvicorn",
        ),
        Program(
            "django",
            """python3 served/manage.py migrate -v 0; python3 served/manage.py check
python3 served/manage.py shell -c 'from django.contrib.auth.models import User
import os; User.objects.create_user("turn" + os.environ["TURN"]); print(User.objects.count())' |
tail -1 | grep -qx "$TURN"
curl -sf localhost:8309/admin/login/ | grep -q csrfmiddlewaretoken""",
            start="""python3 -m django startproject served; python3 served/manage.py runserver 8309 >log 2>&1 &
"""
            + _UP % 8309,
            pip="django",
        ),
        Program(
            "gunicorn",
            """for n in {1..20}; do curl -sf localhost:8310/ & done | grep -c worker | grep -qx 20""",
            start="""cat >served.py <<'END'
import os
def app(environ, start_response):
    start_response("200 OK", [])
    return [f"worker {os.getpid()}\\n".encode()]
END
python3 -m gunicorn -w 3 -b 127.0.0.1:8310 served:app >log 2>&1 &
"""
            + _UP % 8310,
            pip="gunicorn",
        ),
    ),
)
