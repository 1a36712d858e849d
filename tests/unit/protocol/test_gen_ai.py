from __future__ import annotations

from atoll.protocol import TOKEN_USAGE, gen_ai_attributes, gen_ai_labels, prometheus_name


def test_a_request_has_the_names_of_opentelemetry_where_it_has_any() -> None:
    told: dict[str, str | int | float | None] = {
        "asked": "cheap",
        "provider": "openai",
        "model": "gpt-5-mini",
        "input": 10,
        "cache_read": 3,
        "cache_write": 2,
        "output": 7,
        "usd": 0.25,
    }
    assert gen_ai_attributes(told) == {
        "asked": "cheap",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 2,
        "gen_ai.usage.output_tokens": 7,
        "usd": 0.25,
    }
    assert gen_ai_attributes({"status": 200}) == {"status": 200}
    assert gen_ai_attributes({"input": 4, "cache_read": None})["gen_ai.usage.input_tokens"] == 4


def test_labels_are_spelled_as_prometheus_spells_them() -> None:
    assert gen_ai_labels("a", "b") == {"gen_ai_provider_name": "a", "gen_ai_request_model": "b"}
    assert gen_ai_labels("a", "b", "input")["gen_ai_token_type"] == "input"
    assert prometheus_name(TOKEN_USAGE) == "gen_ai_client_token_usage"
