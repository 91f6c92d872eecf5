"""Conversations that are trained on while they are made: by one process of several, which may die."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.chatml import bpe
from forks import forked
from laws import Row, examples, rows_of
from loaders.conversations import CHAT, CHUNK_BYTES, LENGTH, Chats, Tap, conversation, files_of, small
from loaders.conversations import chats as any_chats
from loaders.maker import train_rank
from loaders.samples import ran
from millstream import MixedDataLoader
from millstream.errors import ClosedError, MillstreamError, StateError, StoreError, UnknownLength
from millstream.loaders import ConversationDataLoader
from millstream.loaders.chat_keywords import chat_settings
from millstream.preparation import Mixing, RunOptions, StoreRecipe, prepare_store
from millstream.sources import Reading, discover
from millstream.storage import disk
from store.crash import Crash, FailingDisk

SIZES = tuple(number * 7 % 30 + 1 for number in range(90))


@pytest.fixture(autouse=True)
def patched() -> Iterator[pytest.MonkeyPatch]:
    with small() as patch:
        yield patch


@pytest.fixture(params=[False, True], ids=["padded", "packed"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> Chats:
    return Chats(SIZES, "growing", request.param, tmp_path / "cache")


def rest_of_epoch(loader: ConversationDataLoader) -> list[Row]:
    return [row for batch in loader for row in rows_of(batch)]


def expected(chats: Chats) -> list[Row]:
    """The rows of an epoch, once everything is made."""
    with Chats(chats.sizes, "made", chats.packing).loader(batch_size=4) as loader:
        return rest_of_epoch(loader)


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Call, and insist that it does not take long."""
    began = time.monotonic()
    found = call()
    assert time.monotonic() - began < seconds
    return found


def test_a_follower_goes_on_when_the_maker_stops(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    """It takes over, and what was made before is made anew under its feet."""
    Tap().install(patched)
    whole = expected(chats)
    maker, follower = (chats.loader(batch_size=4) for _ in range(2))
    got = [row for _ in range(5) for row in rows_of(follower.next())]
    assert maker._run.growing is not None and follower._run.growing is not None
    maker.close()
    assert follower._run.growing is not None
    got += rest_of_epoch(follower)
    follower.close()
    assert got == whole


def test_steps_stay_explained_when_the_maker_stops(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    Tap().install(patched)
    maker, follower = (chats.loader(batch_size=4) for _ in range(2))
    rows = [rows_of(follower.next()) for _ in range(3)]
    maker.close()
    follower.wait()
    for step, batch in enumerate(rows):
        assert [o.text for o in follower.explain(step)] == [bpe().decode(list(row.tokens)) for row in batch]
    follower.close()


def test_rows_that_were_known_are_waited_for_when_they_are_made_anew(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    """The files that a follower was about to read went with the maker."""
    tap = Tap()
    tap.install(patched)
    tap.allowed = 20
    whole = expected(chats)
    maker, follower = (chats.loader(batch_size=4, prefetch=1) for _ in range(2))
    got = rows_of(follower.next())
    tap.allowed = tap.used
    maker.close()
    got += rows_of(follower.get_batch(2))  # starts the engine anew, over files that are gone
    got += rest_of_epoch(follower)
    follower.close()
    assert got == whole


def test_what_looks_ahead_is_refused_until_all_is_made(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    tap = Tap()
    tap.install(patched)
    with chats.loader(batch_size=4) as loader:
        patched.undo()
        rows = rows_of(loader.next()) if loader._run.growing.known_step else []
        tap.allowed = -(10**9)
        for ask in (
            loader.get_num_batches,
            lambda: len(loader),
            lambda: loader.steps_of(0),
            lambda: loader.seek(10**6),
            lambda: loader.explain(10**6),
        ):
            with pytest.raises(UnknownLength, match="not known yet") as caught:
                ask()
            assert caught.value.hint and "loader.wait()" in caught.value.hint
        assert loader.step == bool(rows)
        assert loader  # whatever its length will be


def test_a_member_of_a_mixture_is_waited_for(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    Tap().install(patched)
    with chats.loader(batch_size=4) as loader:
        assert loader._run.growing
        assert loader.member.store.documents == len(SIZES)
        assert loader._run.growing.sources == {}


def damaged(folder: Path, bad: str) -> Path:
    """Conversations, the last but one of which cannot be used."""
    lines = [json.dumps(conversation(number, size)) for number, size in enumerate(SIZES)]
    path = folder / "chats.jsonl"
    path.write_text("\n".join([*lines[:-1], bad, lines[-1]]) + "\n")
    return path


def over(path: Path, cache: Path, **given: Any) -> ConversationDataLoader:
    how = {"reading": {"chunk_bytes": CHUNK_BYTES}, "cache_dir": cache, "framework": "numpy", "max_length": LENGTH}
    return ConversationDataLoader(path, tokenizer=bpe(), **{**how, **CHAT, **given})


BAD = ['{"messages": []}', "no json", '{"messages": [{"role": "user", "content": "only asked"}]}', '{"messages": 3}']


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_row_is_named_by_file_and_line_when_its_turn_comes(tmp_path: Path, bad: str) -> None:
    path = damaged(tmp_path, bad)
    with pytest.raises(MillstreamError) as caught, over(path, tmp_path / "cache", untrained="error") as loader:
        for _ in range(200):
            loader.next()
    assert f"chats.jsonl:{len(SIZES)}" in str(caught.value) or f"line {len(SIZES)}" in str(caught.value)


@pytest.mark.parametrize("on_bad", ["skip", "quarantine"])
def test_bad_rows_that_are_left_out_are_counted(tmp_path: Path, on_bad: str) -> None:
    path = damaged(tmp_path, "\n".join(BAD))
    with over(path, tmp_path / "cache", on_bad=on_bad, untrained="error") as loader:
        loader.wait()
        store = loader.store
        assert store.documents == len(SIZES)
        assert sum(store.manifest["recipe"]["left_out"].values()) == len(BAD)
        aside = list(store.path.parent.glob("*.quarantine.jsonl*"))
        assert len(aside) == (on_bad == "quarantine")


def test_close_returns_promptly_while_rows_are_made(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    """Also while another thread waits for rows, which is told so."""
    tap = Tap()
    tap.install(patched)
    loader = chats.loader(batch_size=4)
    tap.allowed = -(10**9)
    told = list[BaseException]()

    def wait() -> None:
        try:
            while True:
                loader.next()
        except ClosedError as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.05)
    within(2, loader.close)
    within(2, waiting.join)
    assert len(told) == 1
    with pytest.raises(ClosedError):
        loader.next()


def test_a_loader_that_is_dropped_stops_making(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    tap = Tap()
    tap.install(patched)
    loader = chats.loader(batch_size=4)
    assert loader._run.growing
    source: Any = next(iter(loader._run.growing.sources.values()))
    thread = source._growth._thread
    assert thread.is_alive()
    del loader
    gc.collect()
    within(3, lambda: thread.join(3))
    assert not thread.is_alive()


def test_a_forked_child_goes_on_without_its_parent(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    """It inherits neither the maker nor its locks, and makes the rest itself."""
    Tap().install(patched)
    whole = expected(chats)
    loader = chats.loader(batch_size=4)
    got = rows_of(loader.next())
    if (child := forked()) == 0:
        signal.alarm(60)
        rows = [row for batch in loader for row in rows_of(batch)]
        os._exit(0 if rows == whole[len(got) :] else 1)
    loader.close()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(list((chats.cache / "stores").iterdir())) == 1


def test_a_forked_child_follows_its_parent(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    Tap().install(patched)
    whole = expected(chats)
    with chats.loader(batch_size=4) as loader:
        got = rows_of(loader.next())
        if (child := forked()) == 0:
            rows = [row for batch in loader for row in rows_of(batch)]
            os._exit(0 if rows == whole[len(got) :] else 1)
        got += rest_of_epoch(loader)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert got == whole


def test_a_full_disk_surfaces_and_the_next_loader_goes_on(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    Tap().install(patched)
    whole = expected(chats)
    write, left = disk.write, 40

    def fill(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    patched.setattr(disk, "write", fill)
    got = list[Row]()
    with pytest.raises(MillstreamError, match="space") as caught, chats.loader(batch_size=4) as loader:
        for _ in range(200):
            got += rows_of(loader.next())
    assert caught.value.hint
    patched.setattr(disk, "write", write)
    assert got == whole[: len(got)]
    with chats.loader(batch_size=4) as loader:
        assert rest_of_epoch(loader) == whole


def start_rank(chats: Chats, rank: int, ranks: int, deadline: int) -> tuple[int, Path]:
    """Begin a rank in a process of its own, which kills itself at its `deadline`-th step of making: its number, and
    where it writes its batches."""
    written = chats.cache.with_name(f"rank-{rank}-{deadline}")
    if (child := forked()) == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(120)
        with written.open("w") as file, contextlib.redirect_stdout(file):
            try:
                train_rank(files_of(chats.sizes), chats.cache, rank, ranks, deadline, packing=chats.packing)
            except BaseException:
                traceback.print_exc(file=file)
                file.flush()
                os._exit(1)
        os._exit(0)
    return child, written


def ended(rank: tuple[int, Path]) -> tuple[int, list[Any]]:
    """How a rank ended, and its batches: (ids, labels) each."""
    child, written = rank
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    printed = written.read_text()
    assert code in (0, -signal.SIGKILL), printed
    lines = printed.splitlines()
    whole = lines if printed.endswith("\n") else lines[:-1]
    return code, [json.loads(line) for line in whole]


def batches_of(rows: list[Row], rank: int, ranks: int) -> list[Any]:
    """What a rank gets of the rows of an epoch, in steps of four rows."""
    own = 4 // ranks
    steps = [rows[at : at + 4][rank * own : (rank + 1) * own] for at in range(0, len(rows), 4)]
    return [[[list(row.inputs) for row in step], [list(row.labels) for row in step]] for step in steps]


def made_by_prepare(chats: Chats, folder: Path) -> dict[str, bytes]:
    """The files of the store that `prepare` makes of the same conversations in the same order."""
    reading = Reading(chunk_bytes=CHUNK_BYTES, whole_rows=True)
    how = chat_settings(CHAT, None, LENGTH)
    making = StoreRecipe(reading, tokenizer=bpe(), chat=how, mixing=Mixing(0))
    prepare_store(discover(files_of(chats.sizes)), folder / "s", making, RunOptions())
    return content_of(folder / "s")


def content_of(store: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file() and "report" not in p.name
    }


def finished(chats: Chats) -> dict[str, bytes]:
    """The files of the only store of the cache; nothing else is left there."""
    (store,) = (chats.cache / "stores").iterdir()
    return content_of(store)


def test_a_maker_that_is_killed_again_and_again_leaves_the_same_bytes(tmp_path: Path) -> None:
    chats = Chats(SIZES, "growing", packing=False, cache=tmp_path / "cache")
    whole, chance, kills = expected(chats), random.Random(3), 0
    for patience in (30, 60, 90, 0):
        deadline = chance.randint(patience // 2, patience)
        code, got = ended(start_rank(chats, 0, 1, deadline))
        kills += code != 0
        assert got == batches_of(whole, 0, 1)[: len(got)]
    assert kills >= 2
    assert len(got) == len(batches_of(whole, 0, 1))
    assert finished(chats) == made_by_prepare(chats, tmp_path)


@pytest.mark.parametrize(("ranks", "packing"), [(2, True), (4, False)])
def test_ranks_follow_one_maker_and_one_of_them_takes_over_when_it_is_killed(
    ranks: int, packing: bool, tmp_path: Path
) -> None:
    """Whoever makes kills itself early: of all ranks one is left in the end, and has all its rows."""
    chats = Chats(SIZES, "growing", packing, tmp_path / "cache")
    whole = expected(chats)
    deadlines = [30, 60, 90, 0] if ranks == 4 else [45, 0]
    running = [start_rank(chats, rank, ranks, deadline) for rank, deadline in enumerate(deadlines)]
    codes, delivered = zip(*map(ended, running), strict=True)
    assert codes[-1] == 0
    for rank, (code, got) in enumerate(zip(codes, delivered, strict=True)):
        full = batches_of(whole, rank, ranks)
        assert got == (full if code == 0 else full[: len(got)])
    assert finished(chats) == made_by_prepare(chats, tmp_path)


def test_an_interpreter_that_ends_leaves_what_it_made(tmp_path: Path) -> None:
    """Without close(), in the middle of making: it ends promptly, and the next one goes on."""
    chats = Chats(tuple(number % 50 + 1 for number in range(600)), "growing", False, tmp_path / "cache")
    code = """
        import sys
        from loaders.conversations import Chats
        from pathlib import Path
        chats = Chats(tuple(number % 50 + 1 for number in range(600)), "growing", False, Path(sys.argv[1]))
        loader = chats.loader(batch_size=4, prefetch=1)
        print("begun", loader._run.growing is not None)
    """
    tests = Path(__file__).parents[1]
    began = time.monotonic()
    (printed,) = ran(code, tmp_path / "cache", env={**os.environ, "PYTHONPATH": str(tests)})
    assert printed.startswith("begun")
    assert time.monotonic() - began < 20
    with chats.loader(batch_size=4) as loader:
        loader.wait()
        assert loader.store.documents == 600


def test_a_mixture_waits_for_its_conversations(chats: Chats, patched: pytest.MonkeyPatch) -> None:
    """It is made of all their rows, so its order is the one that it has when they were made before."""
    Tap().install(patched)
    made = Chats(SIZES, "made", chats.packing)
    seen = []
    for data in (chats, made):
        sources = {name: (data.loader(name=name), weight) for name, weight in (("a", 0.75), ("b", 0.25))}
        with MixedDataLoader(sources, batch_size=4, mix_block=4, framework="numpy") as mixture:
            seen.append([rows_of(mixture.next()) for _ in range(30)])
        for loader, _ in sources.values():
            loader.close()
    assert seen[0] == seen[1]
    assert [sorted(row.source for row in step) for step in seen[0][:3]] == [["a", "a", "a", "b"]] * 3


def test_memory_does_not_grow_with_the_conversations(tmp_path: Path) -> None:
    """Made and trained on at once, eight times the rows take hardly more."""
    code = """
        import json, resource, sys
        from pathlib import Path
        from chats.chatml import bpe
        from loaders.conversations import conversation
        from millstream.loaders import ConversationDataLoader
        folder, count = Path(sys.argv[1]), int(sys.argv[2])
        with (folder / "rows.jsonl").open("w") as file:
            for number in range(count):
                file.write(json.dumps(conversation(number, 200)) + "\\n")
        how = {"tokenizer": bpe(), "chat_template": "chatml", "max_length": 512, "packing": True, "framework": "numpy"}
        reading = {"chunk_bytes": 100_000}
        with ConversationDataLoader(folder, batch_size=8, cache_dir=folder / "cache", reading=reading, **how) as loader:
            rows = sum(batch.metadata["rows"] for batch in loader)
        print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    peaks = []
    for count in (2000, 16000):
        folder = tmp_path / str(count)
        folder.mkdir()
        rows, peak = map(int, ran(code, folder, count, env=env)[0].split())
        assert rows >= count // 3
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 40 << 20


def test_a_maker_that_stops_at_any_operation_goes_on_to_the_same_bytes(
    tmp_path: Path, patched: pytest.MonkeyPatch
) -> None:
    """Every eleventh operation of the disk; `make fuzz` tries them all."""
    chats = Chats(SIZES[:40], "growing", packing=False, cache=tmp_path / "cache")
    making = StoreRecipe(
        Reading(chunk_bytes=CHUNK_BYTES, whole_rows=True),
        tokenizer=bpe(),
        chat=chat_settings(CHAT, None, LENGTH),
        mixing=Mixing(0),
    )
    whole = made_by_prepare(chats, tmp_path)
    found, means = discover(files_of(chats.sizes)), RunOptions(resume=True, cache_dir=tmp_path / "parts")
    limit, crashed = 1, True
    while crashed:
        output = tmp_path / str(limit) / "s"
        output.parent.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            FailingDisk(tmp_path, limit).install(patch)
            try:
                prepare_store(found, output, making, means)
                crashed = False
            except Crash:
                pass
        with contextlib.suppress(StoreError):  # it was about to be moved, and is in its place now
            prepare_store(found, output, making, means)
        assert content_of(output) == whole, f"stopped at operation {limit}"
        limit += 1 if "MILLSTREAM_FUZZ" in os.environ else 11
    assert limit > 100


@given(data=any_chats, other=any_chats, steps=st.integers(0, 3))
@examples(5)
def test_a_state_is_for_its_own_source_only(data: Chats, other: Chats, steps: int) -> None:
    """A run over another source is refused, and stays where it was."""
    with data.loader(name="one") as loader:
        for _ in range(steps):
            loader.next()
        state = json.loads(json.dumps(loader.state_dict()))
    with replace(other, packing=data.packing).loader(name="other") as loader:
        before = loader.state_dict()
        with pytest.raises(StateError, match="name='one'"):
            loader.load_state_dict(state)
        assert loader.state_dict()["step"] == before["step"] == 0
