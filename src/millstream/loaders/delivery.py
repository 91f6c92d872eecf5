"""What the engine filled -> the batch that a trainer gets: tensors, facts, transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.batches import COLUMNS, Batch, LossMean, TrainingBatch
from millstream.errors import LoaderError, StoreError
from millstream.loaders.answers import AnswerRows, BatchPlace, Taken
from millstream.loaders.hooks import PerRow, transform_batch, transform_rows
from millstream.loaders.rows import RowShape
from millstream.loaders.runs import StoreRun
from millstream.loaders.settings import LoaderSettings
from millstream.stats import Ledger
from millstream.tensors import backend

Complete = Callable[[TrainingBatch, int], TrainingBatch]
"""(batch, its step) -> the batch, with what only its kind of loader knows."""


class Delivery:
    """Finishes batches. This runs for every batch: keep it lean."""

    def __init__(
        self,
        shape: RowShape,
        settings: LoaderSettings,
        *,
        names_rows: bool,
        whole_documents: bool,
        loss: LossMean | None = None,
        answers: AnswerRows | None = None,
        complete: Complete | None = None,
    ) -> None:
        self._run: StoreRun | None = None
        self._complete = complete
        self.ledger = Ledger("cut_tokens", *(["kl_cut_tokens"] if shape.answers == "kto" else []))
        """What delivered rows have lost."""
        self._shape = shape
        self._settings = settings
        self._names_rows = names_rows
        self._backend = backend(settings.framework)
        self._row_transforms = [t for t in settings.transforms if isinstance(t, PerRow)]
        self._batch_transforms = [t for t in settings.transforms if not isinstance(t, PerRow)]
        if loss is not None and any(transform.relabels for transform in self._row_transforms):
            raise LoaderError(
                "a transform chooses anew what is learned, and the denominators of the loss are counted before it",
                hint="use PretrainDataLoader(documents='row') with it: there, count the labels of the batch",
            )
        self._loss = loss
        self._answers = answers
        plain = shape.documents == "attend" and loss is None
        self._extras = whole_documents or not plain or names_rows or settings.pad_last
        self._whole_documents = whole_documents
        self.id_bytes: int = self._backend.ID_BYTES

    @classmethod
    def of_stores(
        cls,
        run: StoreRun,
        *,
        names_rows: bool = False,
        complete: Complete | None = None,
    ) -> Delivery:
        """What finishes the batches of a run over stores."""
        shape, settings = run.shape, run.settings
        delivery = cls(
            shape,
            settings,
            names_rows=names_rows,
            whole_documents=any(member.shape.whole_documents for member in run.members.values()),
            loss=run.loss,
            answers=None if shape.answers is None else AnswerRows(shape.answers, settings.labels, run.members),
            complete=complete,
        )
        delivery._run = run
        return delivery

    def finish(self, native: Batch) -> tuple[TrainingBatch, int]:
        """Make the batch of the run's next step, with all transforms; gives it and its number of rows."""
        batch = self.batch(native)
        return self.transformed(batch) if self._batch_transforms else batch, native.facts[2]

    def batch(self, native: Batch) -> TrainingBatch:
        """Make the batch of the run's next step."""
        run = self._run
        assert run is not None
        step = run.step
        epochs, place, *_ = native.facts
        epoch, before = run.begun
        if epochs == 0:
            place += before
        epoch += epochs
        taken = None
        if self._answers is not None:
            taken = self._taken(run, self._answers, native, BatchPlace(run.phase, epoch, place, self._settings.seed))
        batch = self.rows(native, step, epoch, place, run.phase.active if self._names_rows else ())
        if taken is not None:
            self._add_answers(batch, taken)
        return batch if self._complete is None else self._complete(batch, step)

    def rows(self, native: Batch, step: int, epoch: int, place: int, names: Sequence[str]) -> TrainingBatch:
        """Make a batch over native memory, and treat its rows; `place` is that of the first one in the epoch, `names`
        are those of its sources."""
        _, _, rows, filler, tokens, cut, longest = native.facts
        metadata: dict[str, Any] = {
            "epoch": epoch,
            "step": step,
            "rows": rows,
            "sequence_length": native.length,
            "tokens": tokens,
        }
        if self._row_transforms:
            columns = {
                name: native.column(number)[:rows]
                for number, name in enumerate(COLUMNS if native.isolated else COLUMNS[:2])
            }
            columns["length"] = native.lengths[:rows]
            grouped = self._shape.max_tokens > 0
            transform_rows(self._row_transforms, columns, (self._settings.seed, epoch), place, grouped=grouped)
            metadata["tokens"] = int(columns["length"].sum())
        inputs, labels = native.inputs_and_labels
        share = self._backend.share
        batch = TrainingBatch(
            share(inputs), share(labels), framework=self._backend.NAME, metadata=metadata, native=native
        )
        if self._extras:
            self._add_extras(batch, native, names, rows, filler, longest)
        if self._whole_documents:
            batch.metadata["cut_tokens"] = native.cuts.tolist() if cut else [0] * (rows + filler)
            if cut:
                self.ledger.add("cut_tokens", count=cut, at=step)
        return batch

    @staticmethod
    def _taken(run: StoreRun, answers: AnswerRows, native: Batch, place: BatchPlace) -> Taken:
        """What rows of answers have besides tokens; a store that was finished and moved meanwhile is found again."""
        while True:
            try:
                return answers.take(native, place)
            except StoreError:
                if not run.finds_files_again():
                    raise

    def _add_answers(self, batch: TrainingBatch, taken: Taken) -> None:
        """Add what rows of answers have besides tokens."""
        batch.metadata.update(taken.facts)
        if batch.metadata["answers"] == "stepwise":
            batch.loss_weights = None  # they were marks
        if taken.kl is not None:
            make, facts = self._backend.from_numpy, ("epoch", "step", "rows", "sequence_length", "label_shift")
            metadata = {fact: batch.metadata[fact] for fact in facts}
            ids, labels, lengths = taken.kl.rows
            metadata |= {"tokens": int(lengths.sum()), "cut_tokens": taken.kl.cuts}
            if cut := sum(taken.kl.cuts):
                self.ledger.add("kl_cut_tokens", count=cut, at=metadata["step"])
            batch.kl = TrainingBatch(
                make(ids), make(labels), lengths=lengths, framework=self._backend.NAME, metadata=metadata
            )

    def _add_extras(
        self, batch: TrainingBatch, native: Batch, names: Sequence[str], rows: int, filler: int, longest: int
    ) -> None:
        """Add what only some loaders give: positions, names of sources, marks of filler, weights."""
        if native.isolated and self._shape.isolation != "none":
            batch.dense_mask = self._shape.isolation == "block_mask"
            batch.position_ids = self._backend.share(native.column(2))
            batch.cu_seqlens = self._backend.share(native.segment_starts)
            batch.max_seqlen = longest
        if self._names_rows:
            all_names = [*names, ""]  # filler has the number -1
            batch.metadata["source"] = [all_names[number] for number in native.sources.tolist()]
        if self._settings.pad_last:
            batch.metadata["filler"] = [False] * rows + [True] * filler
        if native.weights is not None:
            batch.loss_weights = self._backend.share(native.weights)
        if self._loss is not None:
            batch.metadata.update(self._loss.facts(native))

    def transformed(self, batch: TrainingBatch) -> TrainingBatch:
        """Apply the transforms of whole batches."""
        for transform in self._batch_transforms:
            batch = transform_batch(transform, batch)
        return batch
