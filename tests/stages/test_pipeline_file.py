"""Laws of recipes: a file gives the graph that Python gives, and what is wrong is refused where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import RecipeError
from millstream.stages import FunctionStage, MapStage, Pipeline, Queue, SourceStage, Stage, register_stage


class Count(SourceStage[int]):
    def __init__(self, stop: int, *, step: int = 1, scale: float = 1.0, **settings: Any) -> None:
        super().__init__(**settings)
        self._range = range(0, stop, step)

    def produce(self) -> Iterator[int]:
        return iter(self._range)


class Add(MapStage[int, int]):
    def __init__(
        self, source: Queue[int] | Stage[int], *, much: int, sign: Literal["plus", "minus"] = "plus", **settings: Any
    ) -> None:
        super().__init__(source, **settings)
        self._much = much if sign == "plus" else -much

    def process(self, item: int) -> Iterable[int]:
        return [item + self._much]


class Parity(FunctionStage[int, int]):
    outputs = ("even", "odd")

    def __init__(self, source: Queue[int] | Stage[int], **settings: Any) -> None:
        super().__init__(source, function=lambda item: [item], **settings)

    def route(self, item: int) -> str:
        return self.outputs[item % 2]


class Both(SourceStage[int]):
    def produce(self) -> Iterator[int]:
        for intake in self.inputs:
            yield from intake.queue


for kind, made in {"count": Count, "add": Add, "parity": Parity, "both": Both}.items():
    register_stage(f"test_{kind}", made)

GOOD = """\
stages:
  - name: more
    stage: test_add
    input: numbers
    much: 10
    threads: 2
    capacity: 3
  - name: numbers
    stage: test_count
    stop: 5
output: more
"""


def test_a_file_gives_the_graph_whatever_the_order_of_its_entries(tmp_path: Path) -> None:
    toml = """
output = ["more"]
[[stages]]
name = "more"
stage = "test_add"
input = ["numbers"]
much = 10
[[stages]]
name = "numbers"
stage = "test_count"
stop = 5
"""
    for name, text in (("mill.yaml", GOOD), ("mill.yml", GOOD), ("mill.toml", toml)):
        path = tmp_path / name
        path.write_text(text)
        with Pipeline.from_recipe(path) as pipeline:
            assert list(pipeline) == [10, 11, 12, 13, 14]
            assert list(pipeline.counters()["stages"]) == ["more", "numbers"]


def test_named_outputs_are_joined_and_names_default_to_kinds() -> None:
    recipe = {
        "stages": [
            {"stage": "test_both", "input": ["test_parity.odd", "test_parity.even"]},
            {"stage": "test_parity", "input": "test_count", "capacity": 99},
            {"stage": "test_count", "stop": 7},
        ]
    }
    with Pipeline.from_recipe(recipe) as pipeline:
        assert list(pipeline) == [1, 3, 5, 0, 2, 4, 6]


WRONG = {
    "stages:": "there is no list 'stages'",
    "steps: []": "there is no list 'stages'",
    "stages: [{stage: test_cuont, stop: 1}]": "line 1: 'test_cuont': there is no kind of stage 'test_cuont'",
    "stages:\n- {stage: test_count, stop: 1}\nouput: a": "line 3: there is no entry 'ouput'",
    "stages:\n- name: a\n- 3": "line 2: the entry 'stage' is missing",
    "stages:\n- 3": "line 2: 3 is no stage",
    "stages:\n- stage: test_count\n  stop: 3\n  stop: 4": "line 4: 'stop' stands here twice",
    "stages:\n- stage: test_count\n  sotp: 3": "line 3: 'test_count': test_count: there is no setting 'sotp'",
    "stages:\n- stage: test_count\n  stop: many": "line 3: 'test_count': test_count: stop='many' does not fit",
    "stages:\n- stage: test_count\n  stop: 3\n  threads: 1.5": "line 4: 'test_count': test_count: threads=1.5 does not",
    "stages:\n- stage: test_count\n  stop: 3\n  overflow: drop": "line 4: .*overflow='drop' does not fit",
    "stages:\n- stage: test_count\n  step: 3": "line 2: 'test_count': test_count: the setting 'stop' is missing",
    "stages:\n- stage: test_count\n  stop: 3\n  capacity: 0": "line 2: 'test_count': a queue of capacity 0",
    "stages:\n- stage: test_add\n  much: 3": "line 2: 'test_add': Add takes 1 input, not 0",
    "stages:\n- {name: a, stage: test_count, stop: 3, input: a}": "line 2: these stages wait for each other: a → a",
    "stages:\n- stage: test_add\n  much: 3\n  input: numbres": "line 4: 'test_add': there is no stage 'numbres'",
    "stages:\n- stage: test_add\n  much: 3\n  input: {a: b}": "line 4: {'a': 'b'} names no stages",
    "stages:\n- {name: a.b, stage: test_count, stop: 3}": "line 2: 'a.b' cannot be the name",
    "stages:\n- {name: a, stage: test_count, stop: 3}\n- {name: a, stage: test_count, stop: 3}": "line 3: there are tw",
    "stages:\n- {name: a, stage: test_count, stop: 3}\n- {name: b, stage: test_count, stop: 3}": "2 loose ends",
    "stages:\n- {name: a, stage: test_count, stop: 3}\noutput: b": "there is no output 'b'",
    "stages:\n- {name: a, stage: test_count, stop: 3}\noutput: 3": "line 3: 3 names no stages",
    "stages:\n- {name: a, stage: test_count, stop: 3, ? 7 : 8}": "line 2: 'a': 7 is no setting",
    "stages:\n- {stage: test_count, stop: !!python/object/apply:os.getcwd []}": "not YAML",
    "stages: [": "not YAML",
    "stages: [{stage: test_count, stop: 2001-99-99}]": "not YAML",
    "stages: &s [*s]": "an anchor .* stands in itself",
    "stages: [&s {stage: test_count, stop: 3, more: {a: *s}}]": "an anchor .* stands in itself",
    "stages: " + "[" * 10_000: "nested too deeply",
    "\n".join(["s0: &s0 [x]", *(f"s{n + 1}: &s{n + 1} [{f'*s{n}, ' * 9}]" for n in range(30))]): "or repeats too much",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:60])
def test_a_wrong_recipe_is_refused_where_it_is_wrong(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mill.yaml"
    path.write_text(text)

    with pytest.raises(RecipeError, match=WRONG[text]) as caught:
        Pipeline.from_recipe(path)
    assert str(caught.value).startswith(str(path))
    assert caught.value.hint


def test_without_lines_the_entry_is_named_and_what_was_meant() -> None:
    recipe: dict[str, Any] = {"stages": [{"stage": "test_count", "stop": 1}, {"stage": "test_add", "much": 1}]}
    recipe["stages"][1] |= {"input": "test_count", "thread": 3}

    with pytest.raises(
        RecipeError, match=r"the recipe: stages\[1\]\.thread: 'test_add'.*no setting 'thread'"
    ) as caught:
        Pipeline.from_recipe(recipe)
    assert "did you mean threads?" in str(caught.value.hint)
    with pytest.raises(RecipeError) as caught:
        Pipeline.from_recipe({"stages": [{"stage": "test_paritty", "input": []}]})
    assert "test_parity" in str(caught.value.hint)


def test_a_kind_is_registered_once() -> None:
    register_stage("test_count", Count)
    with pytest.raises(RecipeError, match="there is a kind of stage 'test_count' already"):
        register_stage("test_count", Add)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["test_count", "a", "test_add"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "stage", "input", "stop", "much", "threads"]), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["stages", "output", "x"]), PLAIN, max_size=3) | PLAIN)
@examples(150)
def test_whatever_a_recipe_holds_it_is_a_pipeline_or_a_recipe_error(content: Any) -> None:
    recipe = content if isinstance(content, dict) else {"stages": content}
    try:
        Pipeline.from_recipe(recipe).close()
    except RecipeError as error:
        assert error.hint
