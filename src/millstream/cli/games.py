"""Self-play games on the command line: what a folder of them holds, a position of one, the rows of a step."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millstream.cli.options import wanted_rows
from millstream.cli.terminal import histogram, print_json, table
from millstream.errors import LoaderError, RecordError
from millstream.games import ChunkSource, FrameBlock, InputFormat, position_facts, show_position
from millstream.loaders.runs import RecordedSelfPlay
from millstream.selfplay.chunk_feed import open_sources
from millstream.stats import Shown, counted, share, size

MOST_LOOKED_INTO = 1000
"""Files of which one game is read to count versions."""


def add_game_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare which position is shown."""
    parser.add_argument("--game", type=int, metavar="N", help="counted from 0 over all files, by their names")
    parser.add_argument("--ply", type=int, metavar="N", help="the position in the game, counted from 0")


def inspect_games(path: str, *, as_json: bool) -> None:
    """Tell what a folder or a file of games holds; only headers are read, and a game of each of some files."""
    opened = open_sources(path)
    lengths = [int(frames) for source in opened.sources for frames in source.frames]
    looked_at = opened.sources[:: max(1, -(-len(opened.sources) // MOST_LOOKED_INTO))]
    facts: dict[str, Any] = {
        "path": path,
        "kind": "games",
        "files": len(opened.sources),
        "bytes": sum(Path(source.path).stat().st_size for source in opened.sources),
        "games": len(lengths),
        "frames": sum(lengths),
        "written": _days(opened.sources),
        "looked_into": len(looked_at),
        **_formats(looked_at),
        "left_out": dict(opened.skipped),
    }
    if as_json:
        print_json(facts)
        return
    print(table(_rows(facts)))
    if lengths:
        print(f"\npositions per game:\n{histogram(lengths)}")
    for bad in opened.bad[:10]:
        print(f"\n{bad.path}: {bad.reason}: {bad.found}", end="")
    if opened.bad:
        print()


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    games, frames = facts["games"], facts["frames"]
    of = "" if facts["looked_into"] == facts["files"] else f"  (of {facts['looked_into']:,} files)"
    return [
        ("games", f"{games:,}  ({counted(facts['files'], 'file')}, {size(facts['bytes'])})"),
        ("positions", f"{frames:,}  ({frames / max(1, games):.1f} per game)"),
        ("versions", _shares(facts["versions"]) + of),
        ("formats", _shares(facts["input_formats"]) + of),
        ("written", " to ".join(dict.fromkeys(facts["written"]))),
        ("left out", ", ".join(f"{number:,} {reason}" for reason, number in facts["left_out"].items())),
    ]


def _shares(counts: dict[str, int]) -> str:
    total = sum(counts.values())
    return ", ".join(f"{name} {share(number, total)}" for name, number in counts.items())


def _days(sources: Sequence[ChunkSource]) -> list[str]:
    """When the first and the last file were written."""
    times = [Path(source.path).stat().st_mtime for source in sources]
    return [datetime.fromtimestamp(end(times), UTC).strftime("%Y-%m-%d %H:%M") for end in (min, max) if times]


def _formats(sources: Iterable[ChunkSource]) -> dict[str, dict[str, int]]:
    """Games of each kind, where those of a file are like its first one."""
    versions, layouts = Counter[str](), Counter[str]()
    for source in sources:
        try:
            fields = source.read(0).fields
        except RecordError:
            continue
        versions[f"V{fields['version'][0]}"] += len(source)
        layouts[InputFormat(fields["input_format"][0]).name.lower()] += len(source)
    return {"versions": dict(versions.most_common()), "input_formats": dict(layouts.most_common())}


def show_game(path: str, game: int, ply: int) -> Shown:
    """Show a position of a game."""
    frames, source, index = _game(path, game, ply)
    return show_position(frames, ply, f"{source.name}, game {index}, ply {ply} of {len(frames)}")


def game_facts(path: str, game: int, ply: int) -> dict[str, Any]:
    """A position of a game as plain data, and where it lies."""
    frames, source, index = _game(path, game, ply)
    origin = {"file": source.path, "game": index, "ply": ply, "plies": len(frames)}
    return {"origin": origin, **position_facts(frames, ply)}


def _game(path: str, game: int, ply: int) -> tuple[FrameBlock, ChunkSource, int]:
    """The frames of a game, counted over all files, its source, and its place there."""
    left = game
    for source in open_sources(path).sources:
        if 0 <= left < len(source):
            frames = source.read(left)
            if not 0 <= ply < len(frames):
                raise LoaderError(
                    f"game {game} has no ply {ply}, only {counted(len(frames), 'position')}",
                    hint="plies count from 0",
                )
            return frames, source, left
        left -= len(source)
    raise LoaderError(f"{path}: there is no game {game}, only {game - left}", hint="games count from 0, over all files")


def explain_self_play(folder: Path, arguments: argparse.Namespace) -> None:
    """Print the positions of a step, or the steps that used a game, from the journal of the run."""
    if arguments.step is None and arguments.document is None:
        raise LoaderError("there is nothing to explain", hint="pass --step, or --document, the number of a game")
    run = RecordedSelfPlay(folder)
    if arguments.document is not None:
        steps = run.steps_of(arguments.document)
        if arguments.json:
            print_json({"game": arguments.document, "steps": steps})
        else:
            print(f"game {arguments.document} was in {counted(len(steps), 'step')}:")
            print(" ".join(map(str, steps)))
        return
    origins = wanted_rows(run.explain(arguments.step, arguments.rank), arguments.step, arguments.row)
    rows = [
        {"row": each.row, "file": each.source, "game": each.sample, "ply": each.spans[0].start, "use": each.use}
        for each in origins
    ]
    if arguments.json:
        print_json({"step": arguments.step, "rows": rows})
        return
    print(f"step {arguments.step}: {counted(len(rows), 'position')}")
    for row in rows:
        print(f"row {row['row']:<4} {row['file']}  game {row['game']}  ply {row['ply']}  use {row['use']}")
