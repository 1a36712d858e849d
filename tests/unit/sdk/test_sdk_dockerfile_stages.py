"""What becomes of the stages of a Dockerfile, and of the words in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import InvalidSpecError
from atoll.sdk._dockerfile import Dockerfile
from atoll.sdk._steps import expanded, known_sources, stage_keys, stages_needed, usable
from atoll.types import CopyStep, EnvStep, Limits, RunStep, StageSpec, TemplateSpec, WorkdirStep

NODE = """
ARG NODE=20
FROM --platform=$BUILDPLATFORM node:$NODE AS Deps
ARG MODE=all
WORKDIR /src
RUN --mount=type=cache,target=/root/.npm npm ci --$MODE
CMD ["node"]

FROM deps AS build
ARG TARGETARCH
RUN make $TARGETARCH

FROM scratch AS export
COPY --from=build /src/dist /

FROM nginx:1
COPY --from=build --chown=web /src/dist /srv/
COPY --from=0 /src/LICENSE /
COPY --from=busybox:1 /bin/busybox /bin/
"""


def test_each_stage_that_is_needed_has_its_steps_and_no_other_is_there() -> None:
    parsed = Dockerfile(NODE)
    spec = parsed.spec()
    assert (spec.image, spec.start_command) == ("nginx:1", None)
    assert spec.steps == [
        CopyStep(sources=["/src/dist"], target="/srv/", user="web", stage="build"),
        CopyStep(sources=["/src/LICENSE"], target="/", stage="deps"),
        CopyStep(sources=["/bin/busybox"], target="/bin/", stage="busybox:1"),
    ]
    assert spec.stages.keys() == {"deps", "build", "busybox:1"}
    assert spec.stages["busybox:1"] == StageSpec(image="busybox:1")
    deps, build = spec.stages["deps"], spec.stages["build"]
    assert deps.image == build.image == "node:20"
    assert deps.steps == [WorkdirStep(path="/src"), RunStep(command="export MODE=all\nnpm ci --$MODE")]
    assert build.steps[:2] == deps.steps
    last = build.steps[2]
    assert isinstance(last, RunStep)
    assert str(last.command).startswith("export MODE=all\nexport TARGETARCH=a")
    assert [note.partition(":")[0] for note in parsed.notes] == ["line 3", "line 6"]


def test_a_target_is_a_stage_by_its_name_or_number() -> None:
    for target in ("deps", "DEPS", "0"):
        spec = Dockerfile(NODE, {"NODE": "22"}, target).spec()
        assert (spec.image, len(spec.steps), spec.stages, spec.start_command) == ("node:22", 2, {}, "node")
    assert Dockerfile(NODE, target="build").spec().start_command == "node"
    with pytest.raises(InvalidSpecError, match="no stage 'nothing'"):
        Dockerfile(NODE, target="nothing")
    with pytest.raises(InvalidSpecError, match="line 13.*scratch"):
        Dockerfile(NODE, target="export")


def test_stages_are_built_after_those_that_they_copy_from_and_never_round_in_circles() -> None:
    def copying(*names: str) -> StageSpec:
        return StageSpec(steps=[CopyStep(sources=["/x"], target="/", stage=name) for name in names])

    spec = TemplateSpec(
        steps=copying("c", "a").steps,
        stages={"a": copying(), "b": copying("a"), "c": copying("b", "a"), "unused": copying("missing")},
    )
    assert stages_needed(spec) == ["a", "b", "c"]
    with pytest.raises(InvalidSpecError, match="no stage 'missing'"):
        stages_needed(TemplateSpec(steps=copying("missing").steps))
    with pytest.raises(InvalidSpecError, match="a and b copy from each other"):
        stages_needed(TemplateSpec(steps=copying("a").steps, stages={"a": copying("b"), "b": copying("a")}))


def test_what_copies_from_a_stage_that_is_run_again_is_run_again() -> None:
    copy = CopyStep(sources=["/x"], target="/", stage="a")
    runs = [RunStep(command="x"), RunStep(command="y", force=True)]
    spec = TemplateSpec(steps=[RunStep(command="z"), copy], stages={"a": StageSpec(steps=[*runs])})
    assert usable(spec) == 1
    first = stage_keys(runs, "base", None, Limits(), {})
    assert len(first) == 3
    assert first != stage_keys(runs, "other", None, Limits(), {})


WORDS = r"""
FROM a
ARG A=arg
ARG LITERAL='$A'
ARG LATER=$PATH:/x
ENV SINGLE='$A' DOUBLE="$A b" ESCAPED=\$A INSIDE="\$A \"q\" \n" SPACE=a\ b BOTH='a'"b"c QUOTE="it's"
ENV COPIED=$LITERAL IMAGE='x'$PATH"y" BACK='\\'$PATH NESTED=${HOME:-${A}/$USER} UNSET=${HOME:+'$x'}
ENV old  form 'with $A' "$A"
RUN true
"""


def test_quotes_and_escapes_mean_what_they_mean_to_docker() -> None:
    steps = Dockerfile(WORDS.replace("\\\\", "\\")).spec().steps
    found = {name: value for step in steps if isinstance(step, EnvStep) for name, value in step.env.items()}
    image = {"PATH": "/bin", "USER": "ann"}
    assert {name: expanded(value, image) for name, value in found.items()} == {
        "SINGLE": "$A",
        "DOUBLE": "arg b",
        "ESCAPED": "$A",
        "INSIDE": '$A "q" \\n',
        "SPACE": "a b",
        "BOTH": "abc",
        "QUOTE": "it's",
        "COPIED": "$A",
        "IMAGE": "x/biny",
        "BACK": "\\/bin",
        "NESTED": "arg/ann",
        "UNSET": "",
        "old": "form with $A arg",
    }
    assert isinstance(steps[-1], RunStep)
    assert steps[-1].command == "export A=arg\nexport LITERAL='$A'\nexport LATER=\"${PATH}:/x\"\ntrue"


def test_names_of_files_are_quoted_as_docker_quotes_them() -> None:
    text = 'FROM a\nENV D=dir\nCOPY \'$D\' "a b" c\\ d $D/e /x/\nCOPY ["f g", "/x/"]'
    steps = Dockerfile(text).spec().steps
    assert known_sources(steps, 1) == ["$D", "a b", "c d", "dir/e"]
    assert known_sources(steps, 2) == ["f g"]
    other = Dockerfile('# escape=`\nFROM a\nENV A=C:\\d B=`$x C="``$PATH"').spec().steps[0]
    assert isinstance(other, EnvStep)
    assert {name: expanded(value, {"PATH": "p"}) for name, value in other.env.items()} == {
        "A": "C:\\d",
        "B": "$x",
        "C": "`p",
    }


COPIES = """\
FROM base AS unneeded
COPY unneeded.txt /

FROM base AS build
ENV DIR=src
COPY $DIR/main.c /
ADD here.txt \\
    gone.txt /data/

FROM base
COPY --from=build /main /
"""


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ((), "line 6 of the Dockerfile, `COPY $DIR/main.c /`: 'src/main.c' matches no file of the context"),
        (("src/main.c", "here.txt"), "line 7 of the Dockerfile, `ADD here.txt \\`: 'gone.txt' matches no"),
        (("src/main.c", "here.txt", "gone.txt"), None),
    ],
)
def test_a_copy_of_what_is_not_there_is_told_with_its_line(
    there: tuple[str, ...], told: str | None, tmp_path: Path
) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    parsed = Dockerfile(COPIES)
    if told is None:
        parsed.check_sources(tmp_path)
        return
    with pytest.raises(InvalidSpecError) as raised:
        parsed.check_sources(tmp_path)
    assert raised.value.message.startswith(told)
    assert raised.value.hint == "a source is a path from that directory: check it"


def test_a_copy_of_what_is_left_out_names_the_file_that_does_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / ".dockerignore").write_text("*.txt\n")
    with pytest.raises(InvalidSpecError, match="line 2 of the Dockerfile") as raised:
        Dockerfile("FROM base\nCOPY a.txt /\n").check_sources(tmp_path)
    assert raised.value.hint == ".dockerignore leaves it out: remove its pattern there"
