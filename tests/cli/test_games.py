"""Self-play games on the command line: looked at, checked, and found again in the steps of a run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from command import Run
from games.archives import write_tar
from millstream import SelfPlayDataLoader, load
from millstream.games import example_folder
from millstream.games.codec import write_frames
from millstream.games.example import example_frames
from millstream.loaders import kind_of

SMALL: dict[str, Any] = {"batch_size": 4, "shuffle_frames": 64, "framework": "numpy"}
"""Games come at once; by default the first batch waits for a hundred thousand positions."""


@pytest.fixture
def games(tmp_path: Path) -> Path:
    """Three games as files, two in an archive, and a file that is cut."""
    folder = example_folder(3, folder=tmp_path / "games")
    packed = [gzip.compress(write_frames(example_frames(number))) for number in (3, 4)]
    write_tar(folder / "older.tar", [(f"{number}.gz", game) for number, game in enumerate(packed)])
    (folder / "training.9.gz").write_bytes(b"cut")
    return folder


def test_inspect_counts_files_games_positions_and_what_is_bad(run: Run, games: Path) -> None:
    code, out, _ = run("inspect", games, "--json")
    facts = json.loads(out)

    assert code == 0
    assert [facts[key] for key in ("files", "games", "frames")] == [4, 5, 60]
    assert (facts["versions"], facts["input_formats"]) == ({"V7": 5}, {"classical": 5})
    assert facts["left_out"] == {"truncated": 1}


def test_inspect_tells_it_to_people(run: Run, games: Path) -> None:
    code, out, _ = run("inspect", games)

    assert code == 0
    assert "positions  60  (12.0 per game)" in out
    assert f"{games / 'training.9.gz'}: truncated: the file has 3 bytes" in out


@pytest.mark.parametrize(("game", "ply", "said"), [(0, 0, "older.tar, game 0"), (2, 1, "training.0.gz, game 0")])
def test_show_draws_the_position_of_a_game(run: Run, games: Path, game: int, ply: int, said: str) -> None:
    code, out, _ = run("show", games, "--game", game, "--ply", ply)

    assert code == 0
    assert out.startswith(f"{said}, ply {ply} of 12  {'Black' if ply else 'White'} moves")
    assert "8  r n b q k b n r" in out


@pytest.mark.parametrize(
    ("flags", "said"), [(("--game", 5), "there is no game 5, only 5"), (("--ply", 12), "no ply 12")]
)
def test_show_says_what_there_is_instead(run: Run, games: Path, flags: tuple[object, ...], said: str) -> None:
    code, _, err = run("show", games, *flags)

    assert code == 2
    assert said in err


def test_lint_names_file_game_and_ply_of_what_breaks_a_rule(run: Run, games: Path) -> None:
    frames = example_frames(7)
    frames.fields["rule50_count"][4] = 101
    (games / "training.7.gz").write_bytes(gzip.compress(write_frames(frames)))
    code, out, _ = run("lint", games)

    assert code == 1
    assert out.startswith("6 games, 5 usable (version 7 6)")
    assert f"{games / 'training.7.gz'}, game 0: ply 4: 101" in out
    assert f"{games / 'training.9.gz'}: the file has 3 bytes" in out


def test_lint_is_content_with_good_games(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("lint", example_folder(2, folder=tmp_path), "--rules", "values")

    assert code == 0
    assert "nothing is wrong" in out


def test_explain_says_of_a_run_what_the_loader_says(run: Run, games: Path, tmp_path: Path) -> None:
    with SelfPlayDataLoader(games, cache_dir=tmp_path / "run", **SMALL) as loader:
        for _ in range(5):
            loader.next()
        origins, steps = loader.explain(3), loader.steps_of(1)
    code, out, _ = run("explain", tmp_path / "run", "--step", 3, "--json")

    assert code == 0
    found = [(row["file"], row["game"], row["ply"], row["use"]) for row in json.loads(out)["rows"]]
    assert found == [(each.source, each.sample, each.spans[0].start, each.use) for each in origins]
    assert json.loads(run("explain", tmp_path / "run", "--document", 1, "--json")[1])["steps"] == steps


def test_explain_asks_for_the_folder_of_the_run(run: Run, games: Path) -> None:
    code, _, err = run("explain", games, "--step", 3)

    assert code == 2
    assert "cache_dir" in err


def test_load_opens_games_as_such(games: Path) -> None:
    with load(games, watch=False, framework="numpy") as loader:
        assert isinstance(loader, SelfPlayDataLoader)
        assert loader.next().planes.shape == (8, 112, 8, 8)


def test_a_folder_of_packed_texts_is_none_of_games(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "the mill by the stream"}\n' * 20))

    assert kind_of(tmp_path, {}) == "text"


def test_a_keyword_about_games_alone_tells_before_there_are_any(tmp_path: Path) -> None:
    assert kind_of(tmp_path, {"num_chunks": 500_000}) == "games"


def test_show_gives_scripts_plain_data(run: Run, games: Path) -> None:
    code, out, _ = run("show", games, "--game", 2, "--ply", 1, "--json")
    facts = json.loads(out)

    assert code == 0
    assert facts["origin"] == {"file": str(games / "training.0.gz"), "game": 0, "ply": 1, "plies": 12}
    assert facts["fen"].startswith("rnbqkbnr/pppppppp/8/8/8/") and facts["policy"]["b8c6"] == 0.7
    assert facts["values"]["root"].keys() == {"q", "d", "m"}


@pytest.mark.parametrize("name", ["rows.bin", "rows.idx", "admissions.jsonl"])
def test_explain_names_the_file_that_is_missing(run: Run, games: Path, tmp_path: Path, name: str) -> None:
    with SelfPlayDataLoader(games, cache_dir=tmp_path / "run", **SMALL) as loader:
        loader.next()
    (tmp_path / "run" / name).unlink()
    code, _, err = run("explain", tmp_path / "run", "--step", 0)

    assert code == 2
    assert f"run/{name}: the file is missing" in err


def test_lint_takes_several_files_and_patterns(run: Run, games: Path) -> None:
    for source in (sorted(games.glob("training.[012].gz")), [games / "training.[012].gz"]):
        for kind in ((), ("--kind", "games")):
            code, out, _ = run("lint", *source, *kind)
            assert code == 0
            assert out.startswith("3 games, 3 usable")
    code, out, _ = run("lint", "--kind", "games", games / "training.0.gz", games / "training.9.gz")
    assert code == 1
    assert f"{games / 'training.9.gz'}: the file has 3 bytes" in out


def test_lint_tells_of_everything_that_is_left_out(run: Run, games: Path) -> None:
    (games / "training.9.gz").unlink()
    (games / "loop").symlink_to("loop")
    (games / "notes.txt").write_text("...")
    code, out, _ = run("lint", games, "--json")
    loops = {each["kind"]: each["severity"] for each in json.loads(out)["findings"]}
    (games / "loop").unlink()
    (games / "newest.tar").write_bytes((games / "older.tar").read_bytes()[:3000])
    left_out = json.loads(run("inspect", games, "--json")[1])["left_out"]
    written = {each["kind"] for each in json.loads(run("lint", games, "--json")[1])["findings"]}

    assert code == 1
    assert loops == {"link in a circle": "error", "not data": "note"}
    assert written == left_out.keys() == {"still being written", "not data"}


@pytest.mark.parametrize("verb", ["inspect", "lint"])
def test_a_folder_of_broken_games_is_one_of_games(run: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "training.1.gz").write_bytes(b"cut")
    code, out, _ = run(verb, tmp_path)

    assert code == (0 if verb == "inspect" else 1)
    assert f"{tmp_path / 'training.1.gz'}: " in out


@pytest.mark.parametrize("verb", ["inspect", "lint"])
def test_an_empty_folder_is_called_empty_and_may_be_said_to_be_for_games(run: Run, tmp_path: Path, verb: str) -> None:
    code, _, err = run(verb, tmp_path)
    assert code == 2
    assert "the folder is empty" in err and "--kind games" in err
    code, out, _ = run(verb, tmp_path, "--kind", "games", "--json")
    assert (code, "no games" in out) == ((0, False) if verb == "inspect" else (1, True))


def test_packed_texts_beside_other_packed_files_are_no_games(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"the mill by the stream"))
    (tmp_path / "dump.gz").write_bytes(gzip.compress(b"..."))

    assert kind_of(tmp_path, {}) == "text"


def test_explain_says_in_which_folder_below_a_run_lies(run: Run, games: Path, tmp_path: Path) -> None:
    with SelfPlayDataLoader(games, cache_dir=tmp_path / "all" / "run", **SMALL) as loader:
        loader.next()
        loader.commit(loader.state_dict())
    code, _, err = run("explain", tmp_path / "all", "--step", "0")

    assert code != 0
    assert f"did you mean {tmp_path / 'all' / 'run'}?" in err
