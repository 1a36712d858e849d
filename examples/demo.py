"""An agent's computer that remembers: it works on real data, sleeps, wakes, forks and rolls back.

Run it with `make demo`, or `python examples/demo.py` where atoll is installed. It uses nothing but the public SDK.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from atoll import Sandbox, Snapshots, Supervisor, Wait
from atoll.errors import NotFoundError
from atoll.types import Progress

HERE = Path(__file__).parent
NAME = "atoll-demo"
SNAPSHOT = "atoll-demo-loaded"
PORT = 7000

# What the forks try: three explanations of the same hundred years.
IDEAS = {
    "it never changed": "model = lambda year: mean(flows.values())",
    "it fell steadily": "line = linear_regression(list(flows), list(flows.values()))\n"
    "model = lambda year: line.intercept + line.slope * year",
    "it dropped in 1898": "before = mean(flow for year, flow in flows.items() if year < 1898)\n"
    "after = mean(flow for year, flow in flows.items() if year >= 1898)\n"
    "model = lambda year: before if year < 1898 else after",
}
JUDGE = "\nprint(round(mean((flow - model(year)) ** 2 for year, flow in flows.items()) ** 0.5))"

timings: list[tuple[str, float]] = []
steps_shown: list[str] = []


def main() -> None:
    """Tell the story from beginning to end."""
    forget_earlier_demo()
    say("A computer for the agent:")
    with timed("first sandbox (builds the image the first time)"):
        sandbox = Sandbox.create(name=NAME, wait=Wait(on_progress=show_progress))
    with sandbox:
        work(sandbox)
        sleep_and_wake(sandbox)
        fork_and_compare(sandbox)
        roll_back(sandbox)
    forget_earlier_demo()
    show_timings()


def work(sandbox: Sandbox) -> None:
    """Install a package from PyPI, bring data in, and leave a Python process that has it in memory."""
    say("It installs what it needs:")
    with timed("pip install tabulate, from PyPI"):
        sandbox.run("pip install tabulate", timeout_s=240, on_stdout=lambda text: print(text, end="")).check()

    say("It gets a data file, and a Python process that keeps variables in memory:")
    with timed("two files in, a Python process started"):
        sandbox.files.upload(HERE / "river", "/workspace/river")
        with sandbox.processes.start(["python3", "/workspace/river/notebook.py"]) as notebook:
            next(iter(notebook))  # it says that it is ready; it goes on when this handle is closed
    ask(
        sandbox,
        "import csv, os\n"
        "from statistics import linear_regression, mean\n"
        "rows = csv.DictReader(open('/workspace/river/nile.csv'))\n"
        "flows = {int(row['year']): int(row['flow']) for row in rows}",
    )
    print(ask(sandbox, "print(f'process {os.getpid()} holds {len(flows)} years of the Nile')"))


def sleep_and_wake(sandbox: Sandbox) -> None:
    """Suspend the sandbox, stop the supervisor, and let another process of this machine wake it."""
    say("It goes to sleep: memory to disk, nothing left running. Then the supervisor is stopped as well:")
    with timed("suspend"):
        sandbox.suspend()
    sandbox.close()
    with timed("stop the supervisor"):
        Supervisor.stop()

    say("Another process wakes it by its name and asks the very same Python process:")
    with timed("start a process and the supervisor, wake, ask"):
        subprocess.run([sys.executable, __file__, "wake"], check=True)


def wake() -> None:
    """What the other process does: connect by name, which wakes, and ask."""
    with Sandbox.connect(NAME) as sandbox:
        print(ask(sandbox, "print(f'process {os.getpid()} still holds {len(flows)} years of the Nile')"))


def fork_and_compare(sandbox: Sandbox) -> None:
    """Fork the running sandbox, memory and all; let every copy try its own idea on the same variables."""
    say("It is forked into three, memory and all, and each copy tries another explanation of the data:")
    with timed("fork into three running copies"):
        copies = sandbox.fork(len(IDEAS))
    scores = []
    for copy, (idea, code) in zip(copies, IDEAS.items(), strict=True):
        with copy:
            scores.append((idea, int(ask(copy, code + JUDGE))))
    scores.sort(key=lambda score: score[1])
    print(ask(sandbox, f"from tabulate import tabulate\nprint(tabulate({scores}, ['idea', 'error']))"))


def roll_back(sandbox: Sandbox) -> None:
    """Store a state, ruin it, and go back: files and variables both."""
    say("A snapshot, then a bad day, then a rollback:")
    with timed("snapshot of the running sandbox"):
        sandbox.snapshot(name=SNAPSHOT)
    ask(sandbox, "os.remove('/workspace/river/nile.csv')\nflows.clear()")
    print(ask(sandbox, "print('after the bad day:', len(flows), 'years,', os.listdir('/workspace/river'))"))
    with timed("rollback to first answer"):
        sandbox.rollback(SNAPSHOT)
        answer = ask(
            sandbox, "print('after rollback:', len(flows), 'years,', os.listdir('/workspace/river'))"
        )
    print(answer)


def ask(sandbox: Sandbox, code: str) -> str:
    """Run code in the notebook inside the sandbox and return what it printed."""
    with sandbox.ports.dial(PORT) as connection:
        connection.sendall(code.encode())
        connection.shutdown(1)  # SHUT_WR: the code ends here
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return answer.decode().rstrip()


def forget_earlier_demo() -> None:
    """Remove what an earlier, interrupted run of this demo may have left."""
    with suppress(NotFoundError), Sandbox.connect(NAME, wake=False) as earlier:
        earlier.kill()
    with suppress(NotFoundError):
        Snapshots.delete(SNAPSHOT)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Note how long a step took, for the table at the end."""
    begun = time.perf_counter()
    yield
    timings.append((what, time.perf_counter() - begun))


def show_timings() -> None:
    """Print the table."""
    say("How long everything took:")
    for what, took_s in timings:
        print(f"  {what:<50}{took_s * 1000:>10.0f} ms")


def show_progress(progress: Progress) -> None:
    """Show how a long work goes on; only building the image, the first time, is one."""
    percent = f"{100 * progress.done / progress.total:3.0f} %" if progress.total else ""
    if sys.stdout.isatty():
        print(f"\r\033[K  {progress.step} {percent}", end="", flush=True)
    elif progress.step not in steps_shown:
        steps_shown.append(progress.step)
        print(f"  {progress.step}", flush=True)


def say(text: str) -> None:
    """Print what comes next."""
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    wake() if sys.argv[1:] == ["wake"] else main()
