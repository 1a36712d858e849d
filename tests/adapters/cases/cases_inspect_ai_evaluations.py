"""Whole evaluations of Inspect in sandboxes, with a model that answers from a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import sandbox

from atoll import Sandbox, Snapshots
from atoll.adapters.inspect_ai import AtollSandboxConfig


@scorer(metrics=[accuracy()])
def answer_in_file() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        found = await sandbox().read_file("answer")
        return Score(value="C" if found == target.text else "I", explanation=found)

    return score


def evaluated(logs: Path, spec: Any, command: str, *samples: Sample) -> float:
    """How right a model is that has bash run the command for each sample."""
    call = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": command})
    done = ModelOutput.from_content("mockllm/model", "done")
    solver = [use_tools(bash(timeout=30)), generate()]
    task = Task(dataset=[*samples], solver=solver, scorer=answer_in_file(), sandbox=spec)
    for output in (call, done):
        output.usage = ModelUsage()  # or its tokens are counted, with a table from the network
    model = get_model("mockllm/model", custom_outputs=[call, done] * len(samples))
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(logs), display="none", max_samples=1)
    assert log.status == "success", log.error
    assert list(Sandbox.list()) == []
    return right(log)


def right(log: EvalLog) -> float:
    assert log.results is not None, log.samples
    return log.results.scores[0].metrics["accuracy"].value


def test_a_model_works_in_a_sandbox_and_is_scored_there(tmp_path: Path) -> None:
    sample = Sample("add", target="42", files={"numbers": "40 2"}, setup="cp numbers copy")
    assert evaluated(tmp_path, "atoll", "awk '{printf $1+$2}' copy > answer", sample) == 1.0


def test_every_sample_starts_from_the_state_that_the_setup_left(tmp_path: Path) -> None:
    setup = "sleep 1000 & echo $! > ~/pid"
    config = AtollSandboxConfig(setup=setup, env={"WORD": "ready"}, network="none", memory_mib=512)
    command = "kill -0 $(cat ~/pid) && mkdir ~/used && printf $WORD > answer"
    samples = [Sample("one", target="ready"), Sample("two", target="ready")]
    assert evaluated(tmp_path, ("atoll", config), command, *samples) == 1.0
    assert Snapshots.list() == []


def test_a_dockerfile_is_built_and_its_directory_is_where_commands_run(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM base\nWORKDIR /opt/task\nCOPY given .\n")
    (tmp_path / "given").write_text("here")
    spec = ("atoll", str(tmp_path / "Dockerfile"))
    assert evaluated(tmp_path, spec, "cp given answer", Sample("copy", target="here")) == 1.0
