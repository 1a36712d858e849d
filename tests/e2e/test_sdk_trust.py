"""Every sandbox trusts its home's authority, in every shell, and whatever it was made from."""

from __future__ import annotations

from pathlib import Path

from atoll import Boot, Sandbox, Supervisor

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
OWN = "/usr/local/share/atoll/ca.pem"
VARIABLES = {
    "AWS_CA_BUNDLE": BUNDLE,
    "CARGO_HTTP_CAINFO": BUNDLE,
    "CURL_CA_BUNDLE": BUNDLE,
    "DENO_CERT": OWN,
    "GIT_SSL_CAINFO": BUNDLE,
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": BUNDLE,
    "NODE_EXTRA_CA_CERTS": OWN,
    "PIP_CERT": BUNDLE,
    "REQUESTS_CA_BUNDLE": BUNDLE,
    "SSL_CERT_FILE": BUNDLE,
}
SHELLS = (
    "env",
    "sudo env",
    "sudo -i env",
    "sudo su - user -c env",
    "env -i HOME=/tmp bash -l -c env",
)
# What OpenSSL says of a chain by the files that it finds itself, and of the certificate by the bundle.
VERIFIED = f"env -i openssl verify {OWN} && env -i openssl verify -no-CApath -CAfile {BUNDLE} {OWN}"


def test_every_shell_and_openssl_itself_know_the_authority(module_home: Path) -> None:
    with Sandbox.create(boot=Boot(trust_host_ca=False)) as sandbox:
        own = authority(module_home)
        for shell in SHELLS:
            lines = dict(line.partition("=")[::2] for line in sandbox.run(shell).check().stdout.splitlines())
            assert {name: lines.get(name) for name in VARIABLES} == VARIABLES, shell
        assert own in sandbox.files.read(BUNDLE)
        assert sandbox.run(VERIFIED).check().stdout.count("OK") == 2
        # What a program chose itself stays.
        assert sandbox.run("env PIP_CERT=mine bash -l -c 'echo $PIP_CERT'").stdout == "mine\n"
        # The bundle is made anew, as by the installation of a package.
        sandbox.run("sudo update-ca-certificates").check()
        assert own in sandbox.files.read(BUNDLE)
        assert sandbox.run(VERIFIED).check().stdout.count("OK") == 2


def test_what_slept_or_is_copied_trusts_the_authority_that_the_home_has_now(module_home: Path) -> None:
    with Sandbox.create(boot=Boot(trust_host_ca=False)) as sandbox:
        before = authority(module_home)
        snapshot = sandbox.snapshot()
        sandbox.suspend()
        Supervisor.stop()
        (module_home / "authority.pem").unlink()
        with Sandbox.create(snapshot) as copy, copy.fork()[0] as fork:
            after = authority(module_home)
            assert after != before
            for one in (copy, fork, sandbox):
                bundle = one.run(f"cat {BUNDLE}; sudo sh -c 'cat $NODE_EXTRA_CA_CERTS'").check().stdout
                assert (bundle.count(before), bundle.count(after)) == (0, 2)


def authority(home: Path) -> str:
    """The certificate of a home's authority."""
    text = (home / "authority.pem").read_text()
    end = "-----END CERTIFICATE-----"
    return text[: text.index(end) + len(end)]
