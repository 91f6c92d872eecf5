"""Recipes are data: the same from a list, TOML or YAML; mistakes are named; the digest is what results depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.errors import RecipeError
from millstream.records import DataProcessor, Recipe, Reject, register_processor
from millstream.records.processor import Outcome
from millstream.records.quality import Length
from millstream.records.recipe import Step, known_processors, make_processor
from millstream.sources import Record

STEPS: list[Step] = [
    {"name": "normalize", "whitespace": True},
    {"name": "gopher_repetition", "top_n_grams": [[2, 0.3]]},
    {"name": "regex", "replace": [["a+", "a"]]},
    {"name": "minhash_dedup", "bands": 20},
]
TOML = """
[[steps]]
name = "normalize"
whitespace = true

[[steps]]
name = "gopher_repetition"
top_n_grams = [[2, 0.3]]

[[steps]]
name = "regex"
replace = [["a+", "a"]]

[[steps]]
name = "minhash_dedup"
bands = 20
"""
YAML = """
steps:
  - {name: normalize, whitespace: true}
  - {name: gopher_repetition, top_n_grams: [[2, 0.3]]}
  - {name: regex, replace: [["a+", "a"]]}
  - {name: minhash_dedup, bands: 20}
"""


def drop_all(record: Record) -> Outcome:
    return Reject("all")


def test_lists_toml_and_yaml_make_the_same_recipe(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(TOML)
    (tmp_path / "r.yaml").write_text(YAML)

    recipes = [Recipe.of(STEPS), Recipe.of(tmp_path / "r.toml"), Recipe.of(str(tmp_path / "r.yaml"))]

    assert recipes[0].canonical() == recipes[1].canonical() == recipes[2].canonical()
    assert len({recipe.digest() for recipe in recipes}) == 1
    assert Recipe.of(recipes[0].canonical()).digest() == recipes[0].digest()


def test_every_setting_changes_the_digest() -> None:
    digests = {Recipe.of([{"name": "length", setting: 7}]).digest() for setting in Length().settings()} | {
        Recipe.of(["length"]).digest(),
        Recipe.of([]).digest(),
        Recipe.of(["length", "length"]).digest(),
    }

    assert len(digests) == len(Length().settings()) + 3


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["gopher_qualty"], "did you mean gopher_quality"),
        (
            [{"name": "length", "min_word": 5}],
            "step 1: length: there is no setting 'min_word'\n  hint: it has min_char",
        ),
        ([{"name": "length", "min_words": "5"}], "min_words='5' does not fit"),
        ([{"name": "length", "min_words": True}], "min_words=True does not fit"),
        ([{"min_words": 5}], "step 1 has no name"),
        ([3], "step 1 is 3"),
        ([Length], "a step is a name"),
        ([DataProcessor()], "DataProcessor has no name"),
        (["exact_dedup", "length"], "put deduplication last"),
        ([{"name": "regex", "drop": ["("]}], "is no regular expression"),
        (["blocklist"], "the list is empty"),
        ([{"name": "blocklist", "file": "no such file"}], "cannot be read"),
        ([{"name": "decontaminate", "texts": ["short"]}], "no text has 13 words"),
        ([{"name": "minhash_dedup", "bands": 0}], "start at 1"),
    ],
)
def test_mistakes_are_named(steps: list[object], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.of(steps)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.toml", "steps = 3", "no list 'steps'"),
        ("r.toml", "steps = [", "not TOML"),
        ("r.yaml", "steps: [", "not YAML"),
        ("r.yaml", "!!python/object/apply:os.system ['true']", "not YAML"),
        ("r.toml", "step = 1\nsteps = []", "unknown entry 'step'"),
        ("r.toml", '[[steps]]\nname = "lenth"', "r.toml: step 1: there is no processor 'lenth'"),
        ("r.ini", "", "recipes are .toml or .yaml"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(RecipeError) as caught:
        Recipe.of(tmp_path / name)
    assert message in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be read"):
        Recipe.of(tmp_path / "none.toml")


def test_functions_are_known_by_their_source_and_closures_are_not_cached() -> None:
    limit = 3

    def too_short(record: Record) -> Outcome:
        return record if len(record.text) > limit else Reject("short")

    assert Recipe.of([drop_all]).digest() == Recipe.of([drop_all]).digest() is not None
    assert Recipe.of([drop_all]).canonical() == [{"name": "function", "function": f"{__name__}:drop_all"}]
    recipe = Recipe.of(["length", too_short])
    assert recipe.digest() is None
    assert [name.rsplit(".")[-1] for name in recipe.uncacheable()] == ["too_short"]


class Plain(DataProcessor):
    """Keeps its settings to itself."""

    name = "plain"

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit


def test_settings_that_cannot_be_seen_are_not_cached() -> None:
    register_processor(Plain)

    digests = [Recipe.of([{"name": "plain", "limit": limit}]).digest() for limit in (1, 2, 1)]

    assert digests[0] == digests[2] != digests[1]
    assert Recipe.of([{"name": "plain", "limit": 1}]).canonical() == [{"name": "plain", "limit": 1}]
    assert Recipe.of([Plain(1)]).digest() is None


def test_the_content_of_a_list_decides_not_its_name(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("bad word\n")
    digests = [Recipe.of([{"name": "blocklist", "file": str(tmp_path / name)}]).digest() for name in ("a.txt", "b.txt")]
    (tmp_path / "b.txt").write_text("other word\n")
    digests.append(Recipe.of([{"name": "blocklist", "file": str(tmp_path / "b.txt")}]).digest())

    assert digests[0] == digests[1] != digests[2]


def test_eval_sets_are_read_from_text_and_json_lines(tmp_path: Path) -> None:
    (tmp_path / "eval.jsonl").write_text('{"question": "one two three four", "choices": ["five six seven eight"]}\n')
    (tmp_path / "eval.txt").write_text("nine ten eleven twelve\n")
    files = [str(tmp_path / "eval.jsonl"), str(tmp_path / "eval.txt")]
    step = make_processor("decontaminate", {"files": files, "words": 4})

    outcomes = [
        step.process(Record(text, "a", 0, 0, 0)) for text in ("Five, six seven eight", "nine ten eleven twelve")
    ]

    assert outcomes == [Reject("overlaps eval.jsonl"), Reject("overlaps eval.txt")]


def test_names_are_taken_once() -> None:
    with pytest.raises(RecipeError, match="there is a processor 'length' already"):
        register_processor(DataProcessor, name="length")
    with pytest.raises(RecipeError, match="has no name"):
        register_processor(DataProcessor)
    assert {"c4_quality", "exact_dedup", "language", "pii"} <= set(known_processors())


LETTERS = 2


def first_letters(record: Record) -> Record:
    return replace(record, text=record.text[:LETTERS])


def first_two(record: Record) -> Record:
    return replace(record, text=record.text[:2])


def test_functions_are_told_apart_by_their_code_and_not_cached_when_other_values_decide() -> None:
    one, five = (lambda record: replace(record, text="a")), (lambda record: replace(record, text="b"))

    assert Recipe.of([one]).digest() != Recipe.of([five]).digest()
    assert Recipe.of([first_two]).digest() is not None
    assert Recipe.of([first_letters]).digest() is None
    assert Recipe.of([first_letters]).uncacheable() == ["first_letters"]
