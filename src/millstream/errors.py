"""Every error Millstream raises on purpose.

MillstreamError
├── SourceError        raw input that cannot be read or parsed
│   └── RecordError        one record that cannot be used: file and row, a reason that is counted, what was found
├── CompressionError   compressed bytes that are damaged, cut or too many
├── RecipeError        a step, a setting or a recipe that cannot work
├── TokenizerError     a tokenizer that is missing, unknown or unfit
├── TemplateError      a chat template that is unknown, broken or unfit to train with, or has no form for a row
├── StoreError         a token file or store that is damaged, foreign or unfinished
│   ├── FingerprintError   the data is not the data that a state was saved for
│   └── BusyError          another process is making this store
├── OrderError         an impossible order: ranks, weights, positions
├── BatchError         arrays that do not fit together
├── LoaderError        settings or calls that cannot work
│   ├── BudgetError        memory_budget is too small, or the user holds every buffer
│   ├── StateError         a state that cannot be loaded here
│   ├── UnknownLength      what cannot be known before the data was read (also a TypeError)
│   ├── ClosedError        the loader or queue was closed
│   │   ├── QueueClosed        everything in a queue was taken, and nothing more will come
│   │   └── Stopped            what was waited at was given up
│   ├── WaitTimeout        what was waited for did not come in time (also a TimeoutError)
│   └── StageError         a stage of a pipeline failed
└── MissingExtra       an optional library is not installed (also an ImportError)

Two warnings, both UserWarnings: LossWarning, rows of a source are not in its store, or not whole, or not as sampled;
WaitWarning, a loader waits for data that may never come.

Each says where, what was found and, in its hint, what to try.
"""

from __future__ import annotations


class MillstreamError(Exception):
    """An error with a place, a finding and, where there is one, a hint.

    >>> print(StoreError("corpus/00000.bin: 12 bytes are missing", hint="copy the file again"))
    corpus/00000.bin: 12 bytes are missing
      hint: copy the file again
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")
        self.message = message
        self.hint = hint


class SourceError(MillstreamError):
    """Raw input that cannot be read or parsed.

    >>> from millstream import prepare
    >>> prepare("nowhere.txt", "corpus")
    Traceback (most recent call last):
    millstream.errors.SourceError: nowhere.txt: ...
    """


class RecordError(SourceError):
    """One record that cannot be used: a reason that can be counted, what was found, a hint; and where it is, if
    the file and the row are known.

    >>> print(RecordError("unknown role", "message 2 is by 'robot'", hint="pass roles="))
    unknown role: message 2 is by 'robot'
      hint: pass roles=
    """

    def __init__(self, reason: str, found: str, hint: str | None = None, where: str = "") -> None:
        super().__init__(f"{where}: {reason}: {found}" if where else f"{reason}: {found}", hint=hint)
        self.reason, self.found, self.where = reason, found, where

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, self.found, self.hint, self.where)


class CompressionError(MillstreamError):
    """Compressed bytes that are damaged, cut or too many.

    >>> import io
    >>> from millstream.storage import ZstdReader
    >>> ZstdReader(io.BytesIO(b"not zstd")).readall()
    Traceback (most recent call last):
    millstream.errors.CompressionError: zstd: ...
    """


class RecipeError(MillstreamError):
    """A step, a setting or a recipe that cannot work.

    >>> from millstream import Recipe
    >>> Recipe.of([{"name": "length", "least_words": 3}])
    Traceback (most recent call last):
    millstream.errors.RecipeError: step 1: length: there is no setting 'least_words'
    ...
    """


class TokenizerError(MillstreamError):
    """A tokenizer that is missing, unknown or unfit.

    >>> from millstream import load_tokenizer
    >>> load_tokenizer("nowhere")
    Traceback (most recent call last):
    millstream.errors.TokenizerError: ...
    """


class TemplateError(MillstreamError):
    """A chat template that is unknown or broken, or has no form for a conversation.

    >>> from millstream import ChatTemplate
    >>> ChatTemplate.of("chatmm")
    Traceback (most recent call last):
    millstream.errors.TemplateError: there is no chat template 'chatmm'
    ...
    """


class StoreError(MillstreamError):
    """A token file or store that is damaged, foreign or unfinished.

    >>> from millstream import TokenStore
    >>> TokenStore("nowhere")
    Traceback (most recent call last):
    millstream.errors.StoreError: nowhere: ...
    """


class FingerprintError(StoreError):
    """The data is not the data that a state was saved for.

    >>> from millstream.loaders import example_loader
    >>> state = example_loader().state_dict()
    >>> state["data"]["data"]["fingerprint"] = "of other data"
    >>> example_loader().load_state_dict(state)
    Traceback (most recent call last):
    millstream.errors.FingerprintError: ...: the data of 'data' is not the data that the state was saved for ...
    """


class BusyError(StoreError):
    """Another process is making this store.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from millstream.storage import staged
    >>> output = Path(mkdtemp(), "corpus")
    >>> with staged(output) as first, staged(output) as second:
    ...     pass
    Traceback (most recent call last):
    millstream.errors.BusyError: ...
    """


class OrderError(MillstreamError):
    """An impossible order: ranks, weights, positions.

    >>> from millstream.order import quotas
    >>> quotas({"web": 1.0, "code": 0.0001})
    Traceback (most recent call last):
    millstream.errors.OrderError: the weight of 'code' (0.0001) rounds to none of 1000 places
    ...
    """


class BatchError(MillstreamError):
    """Arrays that do not fit together.

    >>> from millstream import TrainingBatch
    >>> TrainingBatch.merge([TrainingBatch.empty(2, 4), TrainingBatch.empty(2, 8)])
    Traceback (most recent call last):
    millstream.errors.BatchError: ...
    """


class LoaderError(MillstreamError):
    """Settings or calls that cannot work.

    >>> from millstream.loaders import example_loader
    >>> example_loader(batch_size=0)
    Traceback (most recent call last):
    millstream.errors.LoaderError: ...
    """


class BudgetError(LoaderError):
    """The memory budget is too small, or the user holds every buffer.

    >>> from millstream.loaders import example_loader
    >>> with example_loader(memory_budget=100) as loader:
    ...     loader.next()
    Traceback (most recent call last):
    millstream.errors.BudgetError: memory_budget is 100 bytes; ...
    """


class StateError(LoaderError):
    """A state that cannot be loaded here.

    >>> from millstream.loaders import example_loader
    >>> example_loader(seed=1).load_state_dict(example_loader(seed=0).state_dict())
    Traceback (most recent call last):
    millstream.errors.StateError: the state was saved with seed=0, this loader has seed=1
    ...
    """


class UnknownLength(LoaderError, TypeError):  # noqa: N818 - a promised name
    """Something that cannot be known before the data was read; also a TypeError, as `len()` of what has no length.

    >>> issubclass(UnknownLength, LoaderError)
    True
    """


class ClosedError(LoaderError):
    """The loader or queue was closed.

    >>> from millstream.loaders import example_loader
    >>> loader = example_loader()
    >>> loader.close()
    >>> loader.next()
    Traceback (most recent call last):
    millstream.errors.ClosedError: this loader was closed
    ...
    """


class QueueClosed(ClosedError):  # noqa: N818 - reads as a claim
    """Everything in a queue was taken, and nothing more will come: the regular end.

    >>> from millstream import Queue
    >>> queue = Queue()
    >>> queue.close()
    >>> queue.get()
    Traceback (most recent call last):
    millstream.errors.QueueClosed: this queue was closed, and everything in it was taken
    ...
    """


class Stopped(ClosedError):  # noqa: N818 - reads as a claim
    """What was waited at was given up, whatever may still be inside.

    >>> from millstream import Queue
    >>> queue = Queue()
    >>> queue.stop()
    >>> queue.get()
    Traceback (most recent call last):
    millstream.errors.Stopped: the queue was stopped
    ...
    """


class StageError(LoaderError):
    """A stage of a pipeline failed; `stage` is its name, and what it failed with is the cause.

    >>> from millstream.stages import IterableStage
    >>> stage = IterableStage((1 / n for n in (1, 0)), name="inverse")
    >>> stage.start()
    >>> list(stage.output())
    Traceback (most recent call last):
    millstream.errors.StageError: stage 'inverse': ZeroDivisionError: division by zero
    ...
    """

    def __init__(self, stage: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"stage {stage!r}: {message}", hint=hint)
        self.stage = stage


class WaitTimeout(LoaderError, TimeoutError):  # noqa: N818 - reads as a claim
    """What was waited for did not come in time; also a TimeoutError.

    >>> from millstream import BatchQueue
    >>> BatchQueue(1).dequeue(timeout_s=0)
    Traceback (most recent call last):
    millstream.errors.WaitTimeout: ...
    """


class MissingExtra(MillstreamError, ImportError):  # noqa: N818 - reads as a claim
    """An optional library is not installed.

    >>> print(MissingExtra.of("tokenizers", "tokenizers"))
    this needs the package 'tokenizers'
      hint: pip install ...[tokenizers]'...
    """

    @classmethod
    def of(cls, package: str, extra: str, *, or_else: str | None = None) -> MissingExtra:
        """Say which package is missing, how the extra that brings it is installed here, and what else would do."""
        hint = _how_to_install(extra)
        return cls(f"this needs the package '{package}'", hint=f"{hint}; or {or_else}" if or_else else hint)


def _how_to_install(extra: str) -> str:
    """The command that adds an extra to Millstream as it was installed: from an index, a folder, a file, or git."""
    import json
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(metadata.distribution("millstream").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return f"pip install '.[{extra}]' in the folder of the clone"
    url = urlsplit(origin.get("url", ""))
    place = url2pathname(url.path)
    if "dir_info" in origin and url.scheme == "file":
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}'.[{extra}]' in {place}, where Millstream was installed from"
    if "vcs_info" in origin:
        return f"pip install 'millstream[{extra}] @ {origin['vcs_info'].get('vcs', 'git')}+{origin['url']}'"
    if url.scheme:
        return f"pip install 'millstream[{extra}] @ {origin['url']}'"
    return f"pip install 'millstream[{extra}]'"


class LossWarning(UserWarning):
    """Rows of a source are not in the store that is loaded, or not whole; or rollouts that are texts were given ids,
    which may not be those that were sampled. As was asked for, and never in silence.

    >>> issubclass(LossWarning, UserWarning)
    True
    """


class WaitWarning(UserWarning):
    """Something has been waited for so long that it may never come; it says what for.

    >>> issubclass(WaitWarning, UserWarning)
    True
    """
