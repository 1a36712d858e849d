"""Models for sandboxes: who offers them, what they cost, and how much of them may be used."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Literal, get_args
from urllib.parse import urlsplit

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.given import check_choice, check_kind, check_number, check_text, texts_of

ModelKind = Literal["openai", "anthropic"]
"""Whose API a provider speaks."""

BudgetPeriod = Literal["day", "total"]
"""For what time a budget is: a day in UTC, or in all."""

MODELS_HOST = "models.atoll.internal"
"""The name by which a sandbox reaches its models."""

MODEL_ENV = {
    "OPENAI_BASE_URL": f"http://{MODELS_HOST}/openai/v1",
    "OPENAI_API_KEY": "atoll",
    "ANTHROPIC_BASE_URL": f"http://{MODELS_HOST}/anthropic",
    "ANTHROPIC_API_KEY": "atoll",
}
"""The variables of a sandbox with models, by which the providers' own libraries find them."""

NANOS = 1_000_000_000
"""So many of the ledger's units are a dollar."""

_URLS: dict[str, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MODEL = re.compile(r"[!-~]{1,200}")
_USD_MOST = 1e9
_TOKENS_MOST = 10**15
_PRICE_MOST = 1e6
_MANY = 1_000


def _check_budget(usd: float | None, tokens: int | None, per: str) -> None:
    if usd is not None:
        check_number("usd", usd, least=0, most=_USD_MOST, hint="give dollars, 0 or more, or None")
    if tokens is not None:
        hint = "give a whole number, 0 or more, or None"
        check_number("tokens", tokens, least=0, most=_TOKENS_MOST, whole=True, hint=hint)
    check_choice("per", per, get_args(BudgetPeriod))


class ModelBudget(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How much may be spent on models.

    Args:
        usd: Dollars, by the prices of the table. With it, a model without a price is refused. None is no limit.
        tokens: Tokens of requests and answers together. None is no limit.
        per: For what time: each day in UTC, or in all.
    """

    usd: float | None = None
    tokens: int | None = None
    per: BudgetPeriod = "day"

    def __post_init__(self) -> None:
        _check_budget(self.usd, self.tokens, self.per)

    @property
    def is_limited(self) -> bool:
        """Whether it bounds anything."""
        return self.usd is not None or self.tokens is not None

    @property
    def nanos(self) -> int | None:
        """The dollars in units of the ledger; None is no limit."""
        return None if self.usd is None else nanos_of(self.usd)


class ModelAccess(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Which models a sandbox, or all sandboxes of a team, may use, and how much of them.

    Args:
        allow: Names of aliases, and models as ``provider/model``. ``*`` stands for any characters. The default
            is whatever the home offers, and the team may have.
        usd: Dollars that may be spent, by the prices of the table. None is no limit.
        tokens: Tokens of requests and answers together. None is no limit.
        per: For what time both are: each day in UTC, or in all.
    """

    allow: tuple[str, ...] = ("*",)
    usd: float | None = None
    tokens: int | None = None
    per: BudgetPeriod = "day"

    def __post_init__(self) -> None:
        hint = "give names of aliases, or patterns such as openai/gpt-*"
        for pattern in texts_of("allow", self.allow, hint=hint):
            if not _MODEL.fullmatch(pattern):
                raise InvalidSpecError(f"a pattern of models is {pattern!r}"[:300], hint=hint)
        _check_budget(self.usd, self.tokens, self.per)

    @property
    def budget(self) -> ModelBudget:
        """How much may be spent."""
        return ModelBudget(usd=self.usd, tokens=self.tokens, per=self.per)


class ModelProvider(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """A service that runs models.

    Args:
        kind: Whose API it speaks. OpenAI's is that of many.
        keys: Names of stored secrets. The next key is taken where one is over its rate or does not work.
        url: Where its API begins: ``https://api.openai.com/v1``. None is where the kind's own provider has it.
        prices: Whose prices hold for it, as the table names providers. None is its own name, or with the url of
            the kind's own provider that one.
    """

    kind: ModelKind
    keys: tuple[str, ...] = ()
    url: str | None = None
    prices: str | None = None

    def __post_init__(self) -> None:
        check_choice("the kind of a provider", self.kind, get_args(ModelKind))
        texts_of("keys", self.keys, hint="give a list of names of secrets")
        _endpoint(self.address)

    @property
    def address(self) -> str:
        """The url where its API begins, without a slash at the end."""
        return (_URLS[self.kind] if self.url is None else self.url).rstrip("/")

    @property
    def endpoint(self) -> tuple[str, int]:
        """The host and the port of its url."""
        return _endpoint(self.address)

    @property
    def is_kinds_own(self) -> bool:
        """Whether this is the provider that its kind is named after."""
        return self.address == _URLS[self.kind]


class ModelPrice(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """What a model costs, in dollars for a million tokens.

    Args:
        input: Tokens of requests.
        output: Tokens of answers.
        cache_read: Tokens of requests that the provider still knew. None is as ``input``.
        cache_write: Tokens of requests that it is to know for the next ones. None is as ``input``.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if (value := getattr(self, name)) is not None:
                hint = "give dollars for a million tokens, 0 or more"
                check_number(f"the price {name}", value, least=0, most=_PRICE_MOST, hint=hint)

    @property
    def nanos(self) -> dict[str, int]:
        """The price of a token in units of the ledger, rounded up."""
        read, write = self.cache_read, self.cache_write
        usd = {
            "input": self.input,
            "cache_read": self.input if read is None else read,
            "cache_write": self.input if write is None else write,
            "output": self.output,
        }
        return {name: math.ceil(Decimal(str(value)) * NANOS / 1_000_000) for name, value in usd.items()}


class ModelSetup(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """The models that a home offers.

    Args:
        providers: The services that run them, by a name of your own. A model is asked for as ``provider/model``,
            or by its name alone of the first provider with the API that the guest speaks.
        aliases: Other names for models, each with models as ``provider/model``. Where one does not work, the
            next is taken.
        teams: What the sandboxes of each team may use and spend together. A team that is not here has no models.
        keys: How much may be spent together by all that was made with an API key, by the key's id.
        budget: How much all sandboxes of the home may spend together.
        prices: Prices of models as ``provider/model``, in place of the table's.
    """

    providers: dict[str, ModelProvider] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    teams: dict[str, ModelAccess] = {}
    keys: dict[str, ModelBudget] = {}
    budget: ModelBudget = ModelBudget()
    prices: dict[str, ModelPrice] = {}

    def __post_init__(self) -> None:
        for what, names in (("provider", self.providers), ("alias", self.aliases)):
            if len(names) > _MANY:
                raise InvalidSpecError(f"there are {len(names)} of {what}", hint=f"the most are {_MANY}")
            for name in names:
                check_model_name(what, name)
        for alias, models in self.aliases.items():
            targets = texts_of(f"the alias {alias}", models, hint="give a list of provider/model")
            if not targets:
                raise InvalidSpecError(f"the alias {alias!r} names no model", hint="give provider/model")
            self._check_models(f"the alias {alias!r}", targets)
        self._check_models("a price", self.prices)

    def _check_models(self, what: str, models: Iterable[str]) -> None:
        for model in models:
            provider, slash, name = model.partition("/")
            if not slash or not _MODEL.fullmatch(name):
                raise InvalidSpecError(
                    f"{what} is for {model!r}"[:300], hint="name a model as provider/model"
                )
            if provider not in self.providers:
                raise InvalidSpecError(
                    f"{what} is for {model!r}, and there is no provider {provider!r}"[:400],
                    hint="name one of the providers in front of the slash",
                )


class ModelPriceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a model.

    Args:
        model: The model as ``provider/model``.
        price: Its price in dollars for a million tokens.
        own: Whether the home's owner gave it. All others are of the table.
    """

    model: str
    price: ModelPrice
    own: bool = False


class ModelPrices(msgspec.Struct, frozen=True, kw_only=True):
    """The prices by which models are charged here.

    Args:
        made_on: The day on which the table was made, as ``2026-11-28``.
        age_days: Its age.
        is_old: Whether it is so old that many prices may have changed.
        prices: The prices of the providers that the home has.
    """

    made_on: str
    age_days: int
    is_old: bool
    prices: list[ModelPriceRow]


class ModelUse(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """What a sandbox has used of a model on a day.

    Args:
        day: The day in UTC, as ``2026-11-28``.
        sandbox_id: The sandbox, killed or not.
        team: Its team.
        provider: The provider.
        model: The model.
        requests: How many requests were sent.
        input: Tokens of the requests, without those of the cache.
        cache_read: Tokens of the requests that the provider still knew.
        cache_write: Tokens of the requests that it was to know for the next ones.
        output: Tokens of the answers.
        estimated: How many of the requests ended without the provider's own count.
        usd: What they cost in dollars, by the prices of then. It is 0 for a model without a price.
    """

    day: str
    sandbox_id: str
    provider: str
    model: str
    team: str | None = None
    requests: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    estimated: int = 0
    usd: float = 0.0

    @property
    def tokens(self) -> int:
        """All tokens, as budgets count them."""
        return self.input + self.cache_read + self.cache_write + self.output


class ModelBudgetUse(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """How far a budget is used.

    Args:
        budget: ``sandbox:ID``, ``delegation:UID``, ``key:ID``, ``team:NAME`` or ``home``.
        per: For what time it is.
        usd: Its dollars; None is no limit.
        tokens: Its tokens; None is no limit.
        spent_usd: The dollars that are spent.
        spent_tokens: The tokens that are spent.
        held_usd: The dollars that the edge may still spend, for requests of now.
        held_tokens: The tokens that it may still spend.
    """

    budget: str
    per: BudgetPeriod = "day"
    usd: float | None = None
    tokens: int | None = None
    spent_usd: float = 0.0
    spent_tokens: int = 0
    held_usd: float = 0.0
    held_tokens: int = 0


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """What models were used, and how far budgets are used now.

    Args:
        uses: For each day, sandbox and model, oldest first.
        budgets: The budgets.
    """

    uses: list[ModelUse]
    budgets: list[ModelBudgetUse]


def check_access(access: object) -> None:
    """Refuse what is not a ``ModelAccess``.

    Raises:
        InvalidSpecError: It is something else.
    """
    check_kind("models", access, ModelAccess)


def check_model_name(what: str, name: str) -> None:
    """Refuse a name that is none for a provider or an alias.

    Raises:
        InvalidSpecError: It is invalid.
    """
    check_text(f"the name of a {what}", name)
    if not _NAME.fullmatch(name):
        raise InvalidSpecError(
            f"the name of a {what} is {name!r}"[:300],
            hint="use 1 to 63 lower case letters, digits and dashes",
        )


def nanos_of(usd: float) -> int:
    """Dollars in units of the ledger, rounded down."""
    return math.floor(Decimal(str(usd)) * NANOS)


def usd_of(nanos: int) -> float:
    """Units of the ledger in dollars."""
    return nanos / NANOS


def _endpoint(url: str) -> tuple[str, int]:
    """The host and port of a provider's url.

    Raises:
        InvalidSpecError: It is no such url.
    """
    hint = "give one as https://api.openai.com/v1"
    check_text("the url of a provider", url, hint=hint)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if (
        parts.scheme not in ("http", "https")
        or not host
        or not url.isascii()
        or not url.isprintable()
        or "@" in parts.netloc
        or parts.query
        or parts.fragment
    ):
        raise InvalidSpecError(f"the url of a provider is {url!r}"[:300], hint=hint)
    return host, port or (443 if parts.scheme == "https" else 80)
