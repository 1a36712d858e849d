#!/bin/sh
# Runs inside a sandbox that stands for the outside: makes its files: packages of each kind, repositories, a key.
# Its address is in WEB.
set -eu
mkdir -p /srv/top/open/simple/tide /srv/top/open/npm /srv/top/open/apt /srv/top/git/open /srv/top/git/acme
cd /srv/top/open
yes tide | head -c 3000000 >big
python3 - <<'END'
import zipfile
with zipfile.ZipFile("simple/tide/tide-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tide.py", "level = 7\n")
    wheel.writestr("tide-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tide\nVersion: 1.0\n")
    wheel.writestr("tide-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("tide-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in wheel.namelist()))
END
echo '<a href="tide-1.0-py3-none-any.whl">tide-1.0-py3-none-any.whl</a>' >simple/tide/index.html
mkdir -p /tmp/package; cd /tmp; echo '{"name": "tide", "version": "1.0.0"}' >package/package.json
tar -czf /srv/top/open/npm/tide-1.0.0.tgz package
cat >/srv/top/open/npm/tide <<END
{"name": "tide", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "tide", "version": "1.0.0",
 "dist": {"tarball": "$WEB/open/npm/tide-1.0.0.tgz"}}}}
END
mkdir -p deb/DEBIAN deb/usr/share/tide; echo 7 >deb/usr/share/tide/level
printf 'Package: tide\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: level\n' >deb/DEBIAN/control
dpkg-deb -b deb /srv/top/open/apt/tide_1.0_all.deb >/dev/null
cd /srv/top/open/apt
{ cat /tmp/deb/DEBIAN/control; echo "Filename: ./tide_1.0_all.deb"; echo "Size: $(stat -c %s tide_1.0_all.deb)"
  echo "SHA256: $(sha256sum tide_1.0_all.deb | cut -d' ' -f1)"; } >Packages
git init -q /tmp/work; cd /tmp/work; echo words >file; git add file
git -c user.name=a -c user.email=a@example.com commit -qm first
for name in open/site acme/site acme/other; do git clone -q --bare . /srv/top/git/$name.git; done
mkdir -p ~user/.ssh; cp /srv/key.pub ~user/.ssh/authorized_keys; chown -R user:user ~user/.ssh /srv/top/git
