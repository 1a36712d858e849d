"""Measures a whole home. No series is of a single sandbox, so their number stays small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from atoll.protocol import TOKEN_USAGE, gen_ai_labels, prometheus_name
from atoll.types import HostMemory, MetricFamily, MetricSample, ModelBudgetUse
from atoll.version import __version__

if TYPE_CHECKING:
    from atoll.audit import AuditLog
    from atoll.supervisor.monitors.history import History
    from atoll.supervisor.state.asks import AskTable
    from atoll.supervisor.state.counters import Counters
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.tenants.models import Models

_TOKENS: tuple[Literal["input"], Literal["output"]] = ("input", "output")


@dataclass(kw_only=True, eq=False, repr=False)
class Metrics:
    """Asks nobody but the supervisor's own parts, so that it is quick and wakes no sandbox."""

    inventory: Inventory
    history: History
    counters: Counters
    models: Models
    asks: AskTable
    audit: AuditLog
    memory: Callable[[], HostMemory]

    def families(self) -> list[MetricFamily]:
        """All metrics as they are now."""
        found = [*self._of_home(), *self._of_sandboxes(), *self._of_network(), *self._of_models()]
        return [*found, *self._of_budgets()]

    def _of_home(self) -> Iterator[MetricFamily]:
        memory = self.memory()
        yield _gauge("atoll_info", "The version that runs.", [({"version": __version__}, 1)])
        yield _gauge(
            "atoll_host_memory_available_bytes",
            "The memory of the host that is available.",
            [({}, memory.available_bytes)],
        )
        yield _gauge(
            "atoll_host_memory_kept_free_bytes",
            "What sandboxes leave free of it.",
            [({}, memory.kept_free_bytes)],
        )
        yield MetricFamily(
            name="atoll_audit_lines_total",
            kind="counter",
            help="The lines that the audit log ever had.",
            samples=[MetricSample(value=self.audit.sequence)],
        )
        yield self._counted("atoll_alerts_total", "Alerts that were raised.", "alerts", ("rule", "team"))

    def _of_sandboxes(self) -> Iterator[MetricFamily]:
        sandboxes = self.inventory.sandboxes()
        states = Counter((sandbox.row.state, sandbox.row.team or "") for sandbox in sandboxes)
        yield _gauge(
            "atoll_sandboxes",
            "Sandboxes that there are.",
            [({"state": state, "team": team}, count) for (state, team), count in sorted(states.items())],
        )
        memory: Counter[str] = Counter()
        for sandbox in sandboxes:
            if sandbox.running is not None:
                memory[sandbox.row.team or ""] += self.history.memory_bytes(sandbox)
        yield _gauge(
            "atoll_sandbox_memory_bytes",
            "The memory that sandboxes have in use, as it was measured last.",
            [({"team": team}, amount) for team, amount in sorted(memory.items())],
        )
        yield self._counted(
            "atoll_sandbox_cpu_seconds_total",
            "The processor time that sandboxes have used, as far as it was measured.",
            "cpu_s",
            ("team",),
        )

    def _of_network(self) -> Iterator[MetricFamily]:
        yield self._counted(
            "atoll_egress_decisions_total",
            "Decisions about connections, requests and names.",
            "decisions",
            ("team", "action"),
        )
        waiting = Counter(ask.team or "" for ask in self.asks.pending())
        yield _gauge(
            "atoll_asks_pending",
            "Asks that wait for an answer.",
            [({"team": team}, count) for team, count in sorted(waiting.items())],
        )

    def _of_models(self) -> Iterator[MetricFamily]:
        requests = self.counters.of("model_requests")
        usage = []
        for tokens in _TOKENS:
            sums = dict(self.counters.of(f"model_{tokens}"))
            for labels, count in requests:
                named = gen_ai_labels(labels[0], labels[1], tokens)
                usage.append(MetricSample(labels=named, value=sums.get(labels, 0.0), part="sum"))
                usage.append(MetricSample(labels=named, value=count, part="count"))
        yield MetricFamily(
            name=prometheus_name(TOKEN_USAGE),
            kind="summary",
            help="Tokens of requests to models. Those of a cache are among the input.",
            samples=usage,
        )
        for name, what, counted in (
            ("atoll_model_requests_total", "Requests to models that were sent.", "model_requests"),
            ("atoll_model_cost_usd_total", "What they cost in dollars.", "model_usd"),
        ):
            yield MetricFamily(
                name=name,
                kind="counter",
                help=what,
                samples=[
                    MetricSample(labels=gen_ai_labels(labels[0], labels[1]), value=value)
                    for labels, value in self.counters.of(counted)
                ],
            )

    def _of_budgets(self) -> Iterator[MetricFamily]:
        names = self.models.budgets_of(None)
        told = [budget for name in names if (budget := self.models.ledger.budget(name)) is not None]
        for name, what, values in (
            ("limit_usd", "The limits of budgets for models in dollars.", [each.usd for each in told]),
            ("spent_usd", "What is spent of budgets for models.", [each.spent_usd for each in told]),
            ("limit_tokens", "The limits of budgets for models in tokens.", [each.tokens for each in told]),
            ("spent_tokens", "The tokens that are spent of them.", [each.spent_tokens for each in told]),
        ):
            pairs = zip(told, values, strict=True)
            found = [(_labels(budget), value) for budget, value in pairs if value is not None]
            yield _gauge(f"atoll_model_budget_{name}", what, found)

    def _counted(self, name: str, what: str, counted: str, labels: tuple[str, ...]) -> MetricFamily:
        samples = [
            MetricSample(labels=dict(zip(labels, values, strict=True)), value=value)
            for values, value in self.counters.of(counted)
        ]
        return MetricFamily(name=name, kind="counter", help=what, samples=samples)


def _labels(budget: ModelBudgetUse) -> dict[str, str]:
    return {"budget": budget.budget, "per": budget.per}


def _gauge(name: str, what: str, values: Iterable[tuple[dict[str, str], float]]) -> MetricFamily:
    samples = [MetricSample(labels=labels, value=value) for labels, value in values]
    return MetricFamily(name=name, kind="gauge", help=what, samples=samples)
