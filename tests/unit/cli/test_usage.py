import msgspec

from atoll.cli.usage import models_shown, shares, shown
from atoll.types import ModelBudgetUse, SandboxStats


def stats(cpu_s: float | None) -> SandboxStats:
    return SandboxStats(
        state="running",
        cpu_s=cpu_s,
        memory_bytes=1 << 20,
        memory_limit_bytes=None,
        disk_bytes=0,
        processes=3,
        received_bytes=0,
        sent_bytes=0,
    )


def test_the_share_of_a_processor_is_what_was_used_between_two_looks() -> None:
    before = {"busy": stats(1.0), "woken": stats(9.0), "silent": stats(None)}
    now = {"busy": stats(4.0), "woken": stats(0.5), "silent": stats(1.0), "new": stats(1.0)}
    assert shares(before, now, 2.0) == {"busy": 150.0, "woken": 0.0}
    assert shares(before, now, 0.0) == {}


def test_a_table_has_the_time_in_all_or_the_share_now() -> None:
    used = {"busy": stats(4.0), "silent": stats(None)}
    once = shown(used).splitlines()
    assert [line.split()[2] for line in once[1:]] == ["4.0", "-"]
    assert once[1].split()[4:6] == ["1.0", "MiB"]
    assert [line.split()[2] for line in shown(used, {"busy": 150.0}).splitlines()[1:]] == ["150", "-"]


def test_a_sandbox_with_models_has_a_line_about_its_budget() -> None:
    budget = ModelBudgetUse(budget="sandbox:x", usd=5.0, spent_usd=1.5, spent_tokens=10)
    used = {"plain": stats(1.0), "work": msgspec.structs.replace(stats(1.0), models=budget)}
    assert models_shown(used) == ["models of work: sandbox:x: $1.50 of $5.00, 10 tokens a day"]
