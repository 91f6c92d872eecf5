"""One harness for the laws: a kind of loader, data for it, a number of ranks, and where a run stops.

A `Data` opens loaders, says what their batches hold, and knows by itself, without any loader, what an epoch must hold.
Everything else about a run is the same for every kind, and lives in `Team`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hypothesis import strategies as st

from laws import Work
from millstream.loaders import RowOrigin

State = Any
STUCK_S = 60
"""What takes longer than this hangs."""


@dataclass(frozen=True, order=True)
class Row:
    """A row as it was delivered. Two rows are equal when everything in them is."""

    source: str
    epoch: int
    name: Any
    """Which sample it is, as far as the row itself says."""
    content: Any


class Data(ABC):
    """What a run is over."""

    ranks: Sequence[int] = (1, 2, 3, 4)
    """Numbers of ranks that the loader works on."""
    step_rows: Sequence[int] = (12, 24)
    """Rows of a step on all ranks together; only ranks that divide them share such a step."""
    at_once = False
    """Whether ranks wait for each other in a step, as followers do for their leader."""
    ends = True
    """Whether an epoch has an end that `get_iterator` comes to."""
    runs_on = True
    """Whether the next epoch begins after it."""
    epochs = 2
    """How many of them show that one is complete."""
    steps = 7
    """Steps that a run has at the least, however large."""
    most_steps = 4
    """Between two stops."""
    unit = 1
    """Rows of a sample."""
    reference_rows = 1
    """Rows of a step of the run that others are compared with."""
    knows_ahead = True
    """Whether every step of an epoch can be explained before it comes, at the latest when all rows are made."""
    grows = False
    """Whether rows are made while they are trained on."""
    seeks = True
    """Whether a run can go to any step that is known."""
    drops = True
    """Whether `drop_last` leaves something out."""
    names_budget = True
    """Whether an error says which budget is enough."""
    forgets = False
    """Whether a run that is resumed cannot look back before the place where that was."""
    warms = False
    """Whether a new run may find what another one made in the same folder."""
    most_state_bytes: int | None = 4096
    """Of a state as JSON."""
    shared_cache = True
    """Whether ranks share a folder; a resumed run has it, too."""

    def make(self, folder: Path) -> None:  # noqa: B027 - most have nothing
        """Put into `folder` what is there before a loader is."""

    @abstractmethod
    def open(self, folder: Path, **how: Any) -> Any:
        """Open a loader whose own files lie in `folder`."""

    @abstractmethod
    def rows(self, batch: Any) -> list[Row]:
        """Copy the rows of a batch, so that its buffer may be used again."""

    def merged(self, start: int, of_ranks: Sequence[list[Row]]) -> list[Row]:
        """The rows of a step in the order of the run; `start` rows came before it."""
        return [row for rows in of_ranks for row in rows]

    def joined(self, states: Sequence[State]) -> State:
        """The state of a run from those of its ranks."""
        first, *others = states
        assert all(other == first for other in others)
        return first

    @abstractmethod
    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Insist that the epochs of a run hold every sample exactly as often as they should."""

    def check_length(self, loader: Any, epochs: int) -> None:
        """Insist that a loader knows how long the epochs were that it gave."""
        assert loader.get_num_batches() * epochs == loader.step

    def settle(self, loader: Any) -> None:  # noqa: B027 - most have nothing
        """Wait until all rows are made."""

    def ways(self) -> st.SearchStrategy[Data]:
        """The same data by ways that change no row."""
        return st.just(self)

    def foretell(self, run: Team) -> None:
        """Let a run come to the beginning of an epoch all of which is known."""
        run.each(self.settle)

    def in_order(self) -> Data:
        """The same data by a run whose rows have one order, however they are cut into steps."""
        return self

    def documents(self, run: Team) -> list[Any]:
        """All (document, source) that `steps_of` can be asked for before they come."""
        return []

    def counts_steps(self, run: Team) -> bool:
        """Whether `steps_of` knows all steps of the present epoch that were delivered."""
        return True

    def check_origins(self, loader: Any, origins: Sequence[RowOrigin], rows: Sequence[Row]) -> list[Any]:
        """Insist that the origins of a batch name what its rows hold; gives their documents."""
        assert [origin.row for origin in origins] == list(range(len(rows)))
        found = []
        for origin, row in zip(origins, rows, strict=True):
            found += self.check_origin(loader, origin, row)
        return found

    @abstractmethod
    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        """Insist that an origin names what a row holds, read from the data itself; gives the documents to ask
        `steps_of` for."""

    def again(self, folder: Path, steps: int, expected: list[list[Row]]) -> list[list[Row]]:
        """What a run had to deliver whose files lie in `folder`: the same as any other or, where it matters what came
        when, what its journal says."""
        return expected

    def forget(self, folder: Path) -> None:  # noqa: B027 - most have nothing
        """Lose what can be made again."""

    budget = 8 << 20
    """Bytes that are enough for it."""
    spoils = False
    """Whether something of it can be lost."""

    def spoiled(self) -> Data:
        """The same data with something in it that is left out, and counted."""
        raise AssertionError("nothing of this can be lost")

    def given_units(self) -> int:
        """What was given: records, rows or games."""
        raise AssertionError("nothing of this can be lost")

    def kept_units(self, rows: Sequence[Row]) -> int:
        """How much of that the rows of an epoch hold."""
        return len(rows)

    def lost_units(self, losses: Sequence[Mapping[str, int]]) -> int:
        """How much of it the ranks say that they left out."""
        raise AssertionError("nothing of this can be lost")

    def check_losses(self, rows: Sequence[Row], losses: Sequence[Mapping[str, int]]) -> None:  # noqa: B027
        """Insist that what the rows of an epoch leave out of their samples is counted."""


@dataclass(frozen=True)
class Case:
    """A run: over what, by how many ranks, with how much work ahead, and how many steps until it stops."""

    data: Data
    work: Work
    global_rows: int
    stop: int

    @property
    def ranks(self) -> int:
        return self.work.world_size


@dataclass(frozen=True)
class Kind:
    """A kind of loader with a kind of run."""

    name: str
    data: st.SearchStrategy[Data]
    """Any data for it."""
    example: Callable[[], Data]
    """Data of some hundred rows, the same in every process."""
    cases: int = 6
    """How many cases a law is tried on."""

    def __repr__(self) -> str:
        return self.name.replace(",", "").replace(" ", "-")


@st.composite
def cases(draw: st.DrawFn, data: Data, rows: int | None = None) -> Case:
    """Any way to run over some data, with steps of so many rows or of any number."""
    rows = draw(st.sampled_from(data.step_rows)) if rows is None else rows
    ranks = draw(st.sampled_from([ranks for ranks in data.ranks if rows % ranks == 0]))
    work = Work(draw(st.integers(1, 4)), draw(st.integers(1, 9)), ranks)
    return Case(draw(data.ways()), work, rows, draw(st.integers(0, data.most_steps)))


class Team:
    """The loaders of all ranks of one run, stepped together."""

    def __init__(self, case: Case, folder: Path, **given: Any) -> None:
        work, self.data, self.case = case.work, case.data, case
        self.start = 0
        """Rows that were delivered before."""
        how = {"threads": work.threads, "prefetch": work.prefetch, "world_size": work.world_size, **given}
        how = {"batch_size": case.global_rows // work.world_size, "seed": 9, **how}
        folders = [folder if self.data.shared_cache else folder / str(rank) for rank in range(work.world_size)]
        self.data.make(folder)
        self.loaders = [self.data.open(folders[rank], rank=rank, **how) for rank in range(work.world_size)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for loader in self.loaders:
                stack.callback(loader.close)

    def each(self, act: Callable[[Any], Any]) -> list[Any]:
        """Do something on every rank."""
        if not self.data.at_once or len(self.loaders) == 1:
            return [act(loader) for loader in self.loaders]
        with ThreadPoolExecutor(len(self.loaders)) as pool:
            return list(pool.map(act, self.loaders, timeout=STUCK_S))

    def taken(self, batches: Sequence[Any]) -> list[Row]:
        """The rows of the batches of all ranks."""
        rows = self.data.merged(self.start, [self.data.rows(batch) for batch in batches])
        self.start += len(rows)
        return rows

    def step(self) -> list[Row]:
        """Take one step on all ranks."""
        return self.taken(self.each(lambda loader: loader.next()))

    def run(self, steps: int) -> list[Row]:
        """Take several steps."""
        return [row for _ in range(steps) for row in self.step()]

    def epoch(self, *, iterated: bool = True) -> list[Row]:
        """Take the rest of the present epoch, as `for` gives it (as many batches on every rank) or step by step."""
        if not iterated:
            return self._stepped()
        of_ranks = self.each(lambda loader: [self.data.rows(batch) for batch in loader.get_iterator()])
        assert len({len(batches) for batches in of_ranks}) == 1
        rows: list[Row] = []
        for batches in zip(*of_ranks, strict=True):
            found = self.data.merged(self.start, batches)
            self.start += len(found)
            rows += found
        return rows

    def _stepped(self) -> list[Row]:
        rows = self.run(self.loaders[0].get_num_batches())
        assert len({row.epoch for row in rows}) == 1
        return rows

    def state(self) -> State:
        """The state of the run, as a checkpoint holds it."""
        states = [json.loads(json.dumps(loader.state_dict())) for loader in self.loaders]
        for state in states:
            most = self.data.most_state_bytes
            assert most is None or len(json.dumps(state)) < most
        return self.data.joined(states)

    def load(self, state: State, start: int) -> None:
        """Let every rank go on from a state, with so many rows before it."""
        for loader in self.loaders:
            loader.load_state_dict(state)
        self.start = start

    def commit(self, state: State) -> None:
        """The state is saved."""
        for loader in self.loaders:
            loader.commit(state)


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for the files of one run."""
    made = Path(tempfile.mkdtemp(prefix="millstream-run-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def digest(rows: Sequence[Row]) -> str:
    """Rows in a few characters, for processes to compare."""
    import hashlib

    return hashlib.blake2b(repr(rows).encode(), digest_size=8).hexdigest()
