"""Makes the parts that raise alerts."""

from __future__ import annotations

from atoll.secrets import KeyFile
from atoll.supervisor.assembly import State
from atoll.supervisor.lifecycle.alert_webhook import AlertWebhook
from atoll.supervisor.lifecycle.model_billing import ModelBilling
from atoll.supervisor.lifecycle.signed_posts import SignedPosts
from atoll.supervisor.lifecycle.untold import Untold
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.alert_book import AlertBook
from atoll.supervisor.state.alert_rules import About, AlertRules
from atoll.supervisor.state.inventory import row_of
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.state.seen import Seen
from atoll.supervisor.tenants.model_ledger import Reached
from atoll.supervisor.tenants.models import HOME_BUDGET
from atoll.types import Alert


class Alerting:
    """The rules, which hear of all decisions and of all that happens to sandboxes, and the alerts that they raise.

    Raises:
        HostError: The key of the webhook cannot be made or used.
    """

    def __init__(self, settings: Settings, state: State, billing: ModelBilling) -> None:
        self._state = state
        self.book = AlertBook(state.paths.alerts, state.clock.unix_s)
        self.rules = AlertRules(
            settings=settings,
            seen=Seen(state.paths.seen),
            book=self.book,
            name_of=self._name_of,
            tell=self._tell,
            boot_s=state.clock.boot_s,
        )
        self._webhook: AlertWebhook | None = None
        if settings.alert_webhook:
            key = KeyFile(state.paths.alert_webhook_key).create()
            posts = SignedPosts(settings.alert_webhook, key, state.clock.unix_s)
            untold = Untold("the webhook of alerts", state.acts, state.clock.boot_s)
            self._webhook = AlertWebhook(posts, state.acts, untold)
        state.acts.watched = self.rules.arrived
        state.decisions.watched = self.rules.decided
        billing.reached = self._budget_reached

    def load(self) -> None:
        """Read what earlier supervisors have raised and seen, once the sandboxes are known."""
        self.book.load()
        self.rules.seen.load({one.sandbox_id for one in self._state.inventory.all()}.__contains__)

    def close(self) -> None:
        """Tell of what was only counted so far."""
        self.rules.close()
        self.book.close()

    def _budget_reached(self, reached: Reached, row: SandboxRow | None) -> None:
        # A team must not learn from another's alerts how much all of them spend.
        is_home = reached.budget == HOME_BUDGET
        about = About("") if is_home or row is None else About(row.sandbox_id, row.team, row.delegation_uid)
        subject = f"{reached.percent} % of the budget {reached.budget} for models are spent"
        self.rules.found("budget", about, subject, part=f"{reached.budget} {reached.percent}")

    def _name_of(self, sandbox_id: str) -> str | None:
        row = row_of(self._state.inventory, sandbox_id)  # None: it is only being made, or gone
        return None if row is None else row.name

    def _tell(self, alert: Alert) -> None:
        self._state.acts.alerted(alert)
        self._state.counters.add("alerts", alert.rule, alert.team or "")
        if self._webhook is not None:
            self._state.tasks.watch(self._webhook.tell(alert))
