"""Libraries of PyPI, most with compiled parts."""

from tests.compat.program import Family, Program


def _python(name: str, lines: str, pip: str = "") -> Program:
    return Program(name, f"python3 - <<'END'\n{lines}\nEND", pip=pip or name)


FAMILY = Family(
    "libraries",
    (
        _python(
            "numpy",
            """import numpy as np
a = np.random.default_rng(1).random((400, 400))
assert np.allclose(np.linalg.inv(a) @ a, np.eye(400))""",
        ),
        _python(
            "pandas",
            """import pandas as pd
table = pd.DataFrame({"key": [n % 10 for n in range(100000)], "value": range(100000)})
table.groupby("key").value.sum().to_csv("sums.csv")
assert pd.read_csv("sums.csv").value.sum() == 4999950000""",
        ),
        Program(
            "numpy-that-lives",
            'exec 3<>/dev/tcp/127.0.0.1/8801; read -r -t 30 told <&3; test "$told" = "$((TURN * 1000000))"',
            start="""cat >lives.py <<'END'
import socket
import numpy as np
held = np.zeros(1_000_000)
served = socket.create_server(("127.0.0.1", 8801))
while True:
    connection, _ = served.accept()
    held += 1
    connection.sendall(f"{int(held.sum())}\\n".encode())
    connection.close()
END
python3 lives.py >log 2>&1 &
for try in {1..200}; do ss -tln | grep -q LISTEN.*:8801 && break; sleep 0.1; done""",
            pip="numpy",
        ),
        _python(
            "scipy",
            """from scipy import integrate, optimize
assert abs(integrate.quad(lambda x: x * x, 0, 3)[0] - 9) < 1e-9
assert abs(optimize.brentq(lambda x: x * x - 2, 0, 2) ** 2 - 2) < 1e-9""",
        ),
        _python(
            "scikit-learn",
            """from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
rows, kinds = load_iris(return_X_y=True)
assert RandomForestClassifier(20, n_jobs=2, random_state=1).fit(rows, kinds).score(rows, kinds) > 0.95""",
        ),
        _python(
            "matplotlib",
            """import matplotlib
matplotlib.use("agg")
from matplotlib import pyplot
pyplot.plot(range(10))
pyplot.savefig("plot.png")
assert open("plot.png", "rb").read(4) == b"\\x89PNG" """,
        ),
        _python(
            "pillow",
            """from PIL import Image
Image.new("RGB", (200, 100), "red").resize((50, 25)).save("red.jpg")
assert Image.open("red.jpg").size == (50, 25)""",
        ),
        _python(
            "polars",
            """import polars
table = polars.DataFrame({"n": range(100000)})
assert table.lazy().filter(polars.col("n") % 2 == 0).select(polars.col("n").sum()).collect().item() == 2499950000""",
        ),
        _python(
            "lxml",
            """from lxml import etree
tree = etree.fromstring("<a>" + "<b>1</b>" * 10000 + "</a>")
assert tree.xpath("sum(b)") == 10000""",
        ),
        _python(
            "cryptography",
            """from cryptography.fernet import Fernet
key = Fernet(Fernet.generate_key())
assert key.decrypt(key.encrypt(b"words")) == b"words" """,
        ),
        _python(
            "sqlalchemy",
            """import sqlalchemy as sa
engine = sa.create_engine("sqlite://")
with engine.begin() as rows:
    rows.execute(sa.text("create table r (n int)"))
    rows.execute(sa.text("insert into r values (:n)"), [{"n": n} for n in range(1000)])
    assert rows.execute(sa.text("select sum(n) from r")).scalar() == 499500""",
        ),
        Program(
            "jupyter",
            """python3 - <<'END'
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
told = []
def hear(message):
    told.append(message["content"].get("text"))
client.execute_interactive("print(6 * 7)", timeout=60, output_hook=hear)
manager.shutdown_kernel(now=True)
assert "42\\n" in told, told
END""",
            pip="ipykernel jupyter_client",
        ),
        Program(
            "pytest",
            """cat >test_n.py <<'END'
import pytest
@pytest.mark.parametrize("n", range(50))
def test_n(n):
    assert n < 50
END
python3 -m pytest -q -n 2 test_n.py | grep -q '50 passed'""",
            pip="pytest pytest-xdist",
        ),
        Program(
            "ruff-mypy",
            """printf 'def twice(n: int) -> int:\\n    return n * 2\\n' >typed.py
~/.local/bin/ruff check typed.py; ~/.local/bin/mypy --strict typed.py | grep -q Success""",
            pip="ruff mypy",
        ),
    ),
)
