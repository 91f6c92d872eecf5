"""
Millstream's native core: records, order, store, batches and the ring that fills them.
"""

from collections.abc import Sequence
from typing import Annotated, Any, overload

import numpy
import numpy.typing
from numpy.typing import NDArray


class Budget:
    """Bytes that all rings of a loader share."""

    def __init__(self, most_bytes: int = 18446744073709551615) -> None: ...

    @property
    def most_bytes(self) -> int: ...

    @property
    def used_bytes(self) -> int:
        """Bytes of all buffers, also of those in the user's hands."""

class BytePool:
    """Buffers of one size, aligned, used again and again."""

    def __init__(self, bytes: int, budget: Budget, keep: int = 4) -> None: ...

    @property
    def out(self) -> int:
        """Buffers in somebody's hands."""

    def take(self) -> NDArray[numpy.uint8] | None:
        """A buffer; None where the budget has no room."""

class Batch:
    """One batch in one buffer; arrays over it keep it alive."""

    @property
    def inputs_and_labels(self) -> tuple[numpy.typing.NDArray[Any], numpy.typing.NDArray[Any]]:
        """The two columns that every batch has: (rows, length) each."""

    def column(self, number: int) -> numpy.typing.NDArray[Any]:
        """
        Inputs (0), labels (1) or, when isolated, positions (2): (rows, length).
        """

    @property
    def lengths(self) -> numpy.typing.NDArray[numpy.int32]:
        """Real tokens of each row."""

    @property
    def sources(self) -> numpy.typing.NDArray[numpy.int32]:
        """Number of each row's source in the plan; -1 for filler."""

    @property
    def cuts(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        Tokens of each row's document that did not fit; empty where rows are not documents.
        """

    @property
    def segment_starts(self) -> numpy.typing.NDArray[numpy.int32]:
        """Starts of the segments in the flattened rows, and their end."""

    @property
    def weights(self) -> numpy.typing.NDArray[numpy.float32] | None:
        """What each target weighs in the loss; None where all weigh 0 or 1."""

    @property
    def targets(self) -> int:
        """Targets that weigh anything."""

    @property
    def step_weight(self) -> tuple[int, int, int]:
        """
        Targets of a whole update on all ranks, what they weigh in hundredths, and segments that have any.
        """

    @property
    def length(self) -> int:
        """Places of a row."""

    @property
    def isolated(self) -> bool: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def facts(self) -> tuple[int, int, int, int, int, int, int]:
        """
        Epoch and place of the first row (since the clock began), rows, filler, tokens, tokens cut, longest segment.
        """

def hash_stretches(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], hashes: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Go on with the XXH64 of each stretch: `hashes` holds seeds, then hashes.
    """

def xxh64_chain(columns: Sequence[Sequence[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]]]) -> int:
    """
    XXH64 of columns that lie in pieces, the hash of each the seed of the next.
    """

def runs_of(pieces: Sequence[Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> tuple[Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))]] | None:
    """
    The values and the lengths of the runs in pieces that lie end to end; None if there are too many.
    """

def said_outside(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> bool:
    """Whether anything but 0 stands where the mask does not hold."""

unicode_version: str = '14.0.0'

def words(text: str) -> list[str]:
    """The words of a text, as the rules count them."""

def fold(text: str) -> str:
    """
    A text as it is compared with others: words only, lower case, no diacritics, every number 0.
    """

def count_words(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Put the number of words of each text into `out`."""

def count_characters(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Put the number of characters of each text into `out`."""

BEYOND_ASCII: int = 1

HAS_ADDRESS_SIGN: int = 2

HAS_DOTTED_NUMBERS: int = 4

HAS_LONG_NUMBER: int = 8

def find_traits(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Put what a text may contain into `out`: a sum of the constants above."""

def clean(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], controls: bool, line_ends: bool, whitespace: bool, out_ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> bytes:
    """Clean texts, end to end."""

def parse_jsonl(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], field: str) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], int, int, int]:
    """
    The texts of lines of JSON: (text, ends, rows, starts, stops, odd, rows in all, blank lines, empty texts).
    """

def parse_lines(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], separator: str, trim: bool) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], int, int, int]:
    """The texts between separators; the same columns as of `parse_jsonl`."""

def parse_csv(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], delimiter: str, column: int, most: int) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], int, int, int]:
    """
    The texts in one column of a table; the same columns as of `parse_jsonl`.
    """

def cut_separated(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], separator: str) -> int:
    """How many bytes end with the last separator."""

def cut_csv(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], delimiter: str, first: bool = False) -> int:
    """
    How many bytes end with the last whole record of a table, or with the first one.
    """

def cut_array(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
    """
    How many bytes, from inside a JSON array, end with the last comma between its elements.
    """

def array_lines(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[bytes, int, int, bool]:
    """
    Elements of a JSON array as lines: (lines, bytes up to the last comma, the place behind the array or 0, whether the last element is open).
    """

def invalid_texts(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> list[int]:
    """Which of the texts are not UTF-8."""

def tar_index(descriptor: int, most_bytes: int) -> tuple[NDArray[numpy.uint64], NDArray[numpy.uint32], NDArray[numpy.uint32], NDArray[numpy.uint8], dict[str, int], str, int, bool]:
    """
    Members of an uncompressed tar that may be games: (offsets, sizes, inflated sizes, whether they are gzip, how many others by reason, what ended the index early or nothing, where, whether the archive has its end).
    """

def c4_reasons() -> list[str]: ...

def c4_line_reasons() -> list[str]: ...

def gopher_quality_reasons() -> list[str]: ...

def gopher_repetition_reasons() -> list[str]: ...

def fineweb_quality_reasons() -> list[str]: ...

def c4_quality(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, max_word_characters: int, min_words_per_line: int, min_sentences: int, remove_citations: bool, need_punctuation: bool, no_lorem_ipsum: bool, no_javascript: bool, no_curly_bracket: bool, no_policy: bool, verdicts: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], out_ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')], left_out: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> bytes:
    """
    C4's rules: a verdict per text, the lines that are kept end to end, and how many are left out for which reason.
    """

def gopher_quality(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, min_words: float, max_words: float, min_mean_word_length: float, max_mean_word_length: float, max_symbol_ratio: float, max_bullet_lines: float, max_ellipsis_lines: float, min_alphabetic_words: float, min_stop_words: int, stop_words: Sequence[str], verdicts: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Gopher's quality rules."""

def gopher_repetition(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, max_repeated_paragraphs: float, max_repeated_paragraph_characters: float, max_repeated_lines: float, max_repeated_line_characters: float, top_n_grams: Sequence[tuple[int, float]], repeated_n_grams: Sequence[tuple[int, float]], verdicts: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Gopher's repetition rules; verdicts beyond the fixed reasons count the n-gram limits, `top_n_grams` first.
    """

def fineweb_quality(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, min_punctuated_lines: float, keep_if_none_punctuated: bool, max_short_lines: float, short_line_characters: int, max_repeated_characters: float, max_newlines_per_word: float, line_ends: Sequence[int], verdicts: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """FineWeb's quality rules."""

def exact_keys(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], folded: bool, out: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Two hashes per text; a text without words is compared as it is."""

def minhash_keys(text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], words: int, bands: int, rows: int, seed: int, out: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """One key per text and band."""

class PhraseIndex:
    """Which of many phrases a text contains, comparing folded words."""

    def __init__(self) -> None: ...

    def add(self, text: str, words: int, label: int) -> int:
        """
        Add every run of so many words (0: the whole text), and say how many it has.
        """

    def __len__(self) -> int: ...

    def find(self, text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """Put the smallest label of a phrase in each text into `out`, or -1."""

def write_synced(file: int, parts: Sequence[bytes | memoryview]) -> None:
    """
    Write parts end to end from the beginning of a file, and wait until they are on the disk.
    """

def xxh64(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], seed: int = 0) -> int:
    """XXH64 of an array of bytes."""

def hash_blocks(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block_bytes: int, out: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Put the XXH64 of each block of `data` into `out`."""

def weight_codes(weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> int:
    """
    Write the code of each weight; gives the place of the first that is no weight, or their number.
    """

def weigh_documents(tokens: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], words: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Write what the targets of each document weigh: their number, and above it their weight in hundredths.
    """

@overload
def narrow_documents(ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], eos: int | None, out: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

@overload
def narrow_documents(ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], eos: int | None, out: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

@overload
def narrow_documents(ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], eos: int | None, out: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Copy documents into `out`, each followed by `eos` if there is one."""

def parse_frame(first_bytes: bytes, file_bytes: int, kind: str) -> tuple[str, int, int, int, int, int, int]:
    """
    Check a frame against the file's size: (kind, dtype, count, bound, tag, documents, block).
    """

def encode_frame(kind: str, dtype: int, count: int, bound: int, tag: int, documents: int, block: int) -> bytes:
    """The 64 bytes of a frame."""

def pack_blocks(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block_bytes: int, level: int, ends: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> bytes:
    """
    Pack each block of `data` into a frame of its own; `ends` hears where each ends.
    """

def unpack_blocks(packed: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], block_bytes: int, out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> tuple[int, str]:
    """
    Decode blocks until one is damaged: (blocks decoded, why the next one could not be).
    """

def find_frames(packed: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> int:
    """
    Find the zstd frames at the start of `packed` by their headers; tells how many are whole.
    """

class ZstdError(ValueError):
    pass

class ZstdMissing(ImportError):
    pass

def look_for_zstd(names: Sequence[str]) -> None:
    """
    Look for the library zstd under these names from now on, unless it was found.
    """

def has_zstd() -> bool:
    """Whether the library zstd is found."""

def zstd_compress(data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], level: int) -> bytes:
    """One zstd frame that holds `data`, with a checksum."""

def zstd_content_size(frame: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int | None:
    """The size that a frame says it has when decoded, or None."""

def zstd_decompress(frame: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Decode one frame into an array of exactly its size."""

class ZstdStream:
    """Decodes a stream of zstd frames piece by piece."""

    def __init__(self, window_log_max: int = 27) -> None: ...

    def step(self, data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> tuple[int, int]:
        """Decode from `data` into `out`: (bytes consumed, bytes produced)."""

    @property
    def between_frames(self) -> bool:
        """Whether everything so far was whole frames."""

order_version: int = 1

def derive(key: int, word: int) -> int:
    """The key of something named by `word` under `key`."""

def pack(lengths: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity: int, window: int, bins: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu')]) -> int:
    """
    Write the bin of each item into `bins` (those of length 0 get 2^32 - 1), and give the number of bins.
    """

class OrderSpec:
    """A shuffle of some number of samples under a key."""

    def __init__(self, shuffle: str, samples: int, key: int = 0, block_samples: int = 1, group_blocks: int = 1, window_bins: Sequence[int] | None = None, window_rows: int = 1, first_in_order: bool = False, unit: int = 1, window_block: int = 0, foremost: int | None = None, always_in_order: bool = False, gaps: Sequence[int] = []) -> None: ...

    @property
    def samples(self) -> int: ...

    def at(self, epoch: int, positions: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """Write the sample at each position of an epoch into `out`."""

    def inverse(self, epoch: int, samples: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """Write the position of each sample in an epoch into `out`."""

class Course:
    """How a phase goes through one source."""

    def __init__(self, order: OrderSpec, begun: OrderSpec, split: int = 1, epoch: int = 0, offset: int = 0) -> None: ...

    @property
    def left(self) -> int:
        """Samples left of the epoch in which the phase began."""

class Plan:
    """Position in a phase -> source and sample."""

    def __init__(self, courses: Sequence[Course], quotas: Sequence[int] | None = None, key: int = 0, start: int = 0) -> None: ...

    def rows(self, first: int, sources: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')], samples: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """Write source and sample of the positions from `first` on."""

    def used(self, source: int, position: int) -> int:
        """How often a source is used before a position."""

    def position_of(self, source: int, number: int) -> int:
        """Where a source is used for the n-th time."""

class Clock:
    """Step -> rows, within one phase of a run."""

    def __init__(self, left: int, size: int, global_rows: int, rank_start: int, rank_rows: int, drop_last: bool = False, start: int = 0) -> None: ...

    def steps_in(self, samples: int) -> int:
        """Steps that an epoch of so many samples has."""

    def number_of(self, position: int) -> int:
        """The step that uses a position."""

    def resized(self, number: int, global_rows: int, rank_start: int, rank_rows: int) -> tuple[Clock, int, int, int]:
        """
        The clock that begins at a step with steps of another size, and the step's epoch, offset and position.
        """

    def step(self, number: int) -> tuple[int, int, int, int, int, int]:
        """
        Epoch, offset, position, rows of all ranks, first own position, own rows.
        """

def partition(costs: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], parts: int, equal_sizes: bool, refine: bool, part_of: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Write the part of each item into `part_of`, so that parts cost about the same; part 0 costs the most.
    """

class DataError(RuntimeError):
    pass

class IdError(DataError):
    pass

class RingClosed(RuntimeError):
    pass

class BudgetFull(RuntimeError):
    pass

class StoreFiles:
    """The files of a store, mapped when first touched."""

    def __init__(self, directory: str, file: str, dtype: str, header_bytes: int, table: Annotated[NDArray[numpy.uint64], dict(shape=(None, 8), order='C', device='cpu', writable=False)], index: str, index_file: str, pointers_offset: int, boundaries_offset: int, sequences: int, boundaries: int, block_tokens: int = 0, paths: Sequence[tuple[str, str]] = []) -> None: ...

    @property
    def tokens(self) -> int: ...

    @property
    def documents(self) -> int: ...

class Packing:
    """Documents of a store in bins of a capacity, window by window."""

    def __init__(self, store: StoreFiles, window_documents: int, capacity: int, key: int | None = None, fill: str = 'best_fit', documents: int | None = None, budget: int = 0, unit: int = 0) -> None: ...

    @property
    def samples(self) -> int:
        """Bins of all windows."""

    @property
    def window_documents(self) -> int: ...

    @property
    def bins(self) -> list[int]:
        """Bins of each window."""

    @property
    def facts(self) -> tuple[int, int, int, int]:
        """
        Tokens that lie in bins, tokens that fit none, empty documents, most documents of a bin.
        """

    @property
    def longest(self) -> int:
        """The first bin that holds a longest document, where bins go by length."""

    def documents(self, sample: int) -> list[int]:
        """Documents of a bin, in order."""

    def sample_of(self, document: int) -> int | None:
        """The bin that holds a document; None where it is empty."""

class FeedSource:
    """A store, and how its documents become rows."""

    def __init__(self, store: StoreFiles, id_limit: int, documents: str, packing: Packing | None = None) -> None: ...

class Feed:
    """A plan joined with the stores it speaks of."""

    def __init__(self, sources: Sequence[FeedSource], plan: Plan, length: int, labels: str, pad_id: int, id_bytes: int, mean_of: str = 'targets', unit: int = 0) -> None: ...

    def batch_bytes(self, samples: int) -> int:
        """Bytes of the buffer of a batch of so many samples."""

    def scratch_bytes(self, clock: Clock, threads: int) -> int:
        """Bytes that so many threads need besides buffers."""

class Ring:
    """Threads that fill batches ahead of the trainer, handed over in order."""

    def __init__(self, feed: Feed, clock: Clock, first_step: int, threads: int, depth: int, budget: Budget, pad_last: bool = False, steps_per_update: int = 0, end_step: int = 18446744073709551615) -> None: ...

    def extend(self, feed: Feed, clock: Clock, end_step: int = 18446744073709551615) -> bool:
        """
        Fill the steps that are not begun by another feed, up to a later end; False, and nothing changes, if the clock is another one or the feed needs more room.
        """

    def take(self) -> Batch | None:
        """The next batch; None when the user holds every buffer."""

    def close(self) -> None:
        """
        Stop the threads, and let go of all buffers that are not in the user's hands.
        """

    @property
    def ready(self) -> int:
        """Batches that wait to be taken."""

    @property
    def counters(self) -> tuple[int, int, int, int, int]:
        """
        Batches taken and filled; nanoseconds of filling, of waiting for room, of waiting for a batch.
        """

class DirectFill:
    """
    Fills steps of any size in the thread that asks for them, one thread at a time.
    """

    def __init__(self, feed: Feed, budget: Budget, pad_last: bool = False, steps_per_update: int = 0) -> None: ...

    def take(self, clock: Clock, step: int) -> Batch | None:
        """The batch of a step; None when the user holds every buffer."""

    def stop(self) -> None:
        """Send away who fills, for good."""

    @property
    def since_change(self) -> tuple[int, int]:
        """
        Batches, and nanoseconds of filling them, since the clock was another one.
        """

    @property
    def counters(self) -> tuple[int, int, int, int, int]:
        """As those of a ring: who fills waits for the batch."""

class Buffers:
    """Buffers for batches of any size, used again and again."""

    def __init__(self, budget: Budget, keep: int = 4) -> None: ...

class RolloutRows:
    """
    Blocks of rollouts -> rows of a batch, with a column for all that is said of tokens.
    """

    def __init__(self, blocks: Sequence[tuple[NDArray[numpy.int64], NDArray[numpy.uint32], NDArray[numpy.uint8], Sequence[NDArray[Any]]]], columns: Sequence[tuple[str, bool]], labels: str, pad_id: int, id_bytes: int, packed: bool) -> None:
        """
        Blocks are (ends, token ids, mask, columns); columns (kind, whether beside the inputs).
        """

    def batch(self, buffers: Buffers, blocks: NDArray[numpy.uint64], rows: NDArray[numpy.uint64], weights: NDArray[numpy.float64] | None, chosen: NDArray[numpy.uint64], row_ends: NDArray[numpy.uint64], length: int | None, unit: int) -> tuple[Batch, list[NDArray[Any]]] | None:
        """
        A batch of the chosen rollouts of a step, those of row r up to row_ends[r], and its columns; None where the budget has no room. Without a length, rows are as long as the longest needs, padded to a multiple of `unit`.
        """

class ChatNames:
    """What rows of conversations are written in."""

    def __init__(self, *, messages: str, role: str, content: str, besides: Sequence[str], roles: Sequence[tuple[str, str]], looked_for: Sequence[str]) -> None: ...

class ChatShape:
    """What a format makes of conversations in which the same roles speak."""

    def __init__(self, parts: Sequence[tuple[int, bool, bool, float, int, bytes]], verbatim: bool) -> None:
        """
        Parts: (0 text, 1 content, 2 control token; opens a run; straddles; weight; message or id; text).
        """

class ChatRows:
    """Plain conversations of a block of JSON rows."""

    def __init__(self, text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], names: ChatNames) -> None: ...

    @property
    def shapes(self) -> list[str]:
        """Who speaks when, a letter for each message: every shape that occurs."""

    def lay(self, shapes: Sequence[ChatShape]) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]]:
        """
        Put rows into their shapes (one without parts leaves them out): the runs to encode, end to end, and their ends.
        """

    def weigh(self, shapes: Sequence[ChatShape], ids: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], altered: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, most_tokens: int, keep_untrained: bool, keep_straddlers: bool) -> tuple[Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], int]:
        """
        The tokens of rows, with control tokens and weights: (ids, weights, ends, places, straddlers).
        """

def masked_counts(mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Write the number of each rollout's masked tokens into `out`."""

@overload
def masked_sums(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

@overload
def masked_sums(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Write the sum of each rollout's masked values into `out`."""

@overload
def spread_rows(rows: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

@overload
def spread_rows(rows: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Give every masked token the value of its rollout, and the others 0."""

@overload
def masked_moments(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[int, float, float]: ...

@overload
def masked_moments(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[int, float, float]:
    """
    How many values are masked, their mean, and the sum of their squared distances from it.
    """

@overload
def rescale(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], shift: float, scale: float, lift: float, out: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

@overload
def rescale(values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], shift: float, scale: float, lift: float, out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """
    Write (value - shift) * scale + lift where the mask is set and 0 elsewhere; `out` may be `values`.
    """

@overload
def scan_returns(ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], rewards: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], token_rewards: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, done: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, bootstrap: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, gamma: float, lam: float, advantages: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], returns: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')] | None) -> int: ...

@overload
def scan_returns(ends: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], mask: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)], rewards: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], token_rewards: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, done: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, bootstrap: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, gamma: float, lam: float, advantages: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')], returns: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')] | None) -> int:
    """
    Scan each rollout from its end; give the first one with something that is not a finite number, or -1.
    """

class FrameError(ValueError):
    pass

def read_frames(raw: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], plies: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, behind: int = 0) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint16], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]]:
    """
    The frames of a chunk, or some of them: (bytes of the fields, ends, moves, probabilities).
    """

def plies_at_rate(rounds: int, use: int, length: int, rate: float) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """The positions that a use of a game gives."""

def gunzip(packed: bytes, size: int) -> bytes | None:
    """
    The bytes of a gzip file of one member that has so many, or None for any other.
    """

def gunzip_front(packed: bytes, size: int, sum: int) -> bytes | None:
    """
    The first bytes of a gzip file that was found sound with this checksum, else None.
    """

def crc32(packed: bytes) -> int:
    """The checksum that `gunzip_front` asks for."""

def fill_tensors(columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], planes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], policy: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Write into the bytes of arrays of float32."""

def fill_half_tensors(columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], planes: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], policy: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], values: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Write into the bytes of arrays of float16."""

def fill_boards(fields: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], boards: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu')], rule50: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Write the planes as boards of 64 bits, and what plane 109 stands for."""

class Reservoir:
    """Frames in random order; see millstream.games.Reservoir."""

    def __init__(self, capacity: int, seed: int) -> None: ...

    def __len__(self) -> int: ...

    @property
    def counter(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def exchange(self, columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], origins: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint16], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]], Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))]]:
        """(columns, origins, slots, origins of what is there now)"""

    def drain(self, most: int) -> tuple[tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint16], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]], Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))]]:
        """The same for frames that are left."""

    def origins(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """Where the frame in each slot is from."""

    def restore(self, columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], origins: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], counter: int) -> None:
        """Fill the slots in order."""

def positions_of(fields: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """The bytes of the positions that frames show."""

def count_repeats(positions: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
    """How often each position was there before."""

def moves_between(positions: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.int8], dict(shape=(None,))], Annotated[NDArray[numpy.int8], dict(shape=(None,))], Annotated[NDArray[numpy.int8], dict(shape=(None,))]]:
    """(origins, targets, promotions) of the moves of a game."""

def wrong_moves(positions: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], moves: tuple[Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
    """
    What is wrong with each move (`Wrong` of legal.h): 0 for nothing, 1 for one that is not legal.
    """

def encode_positions(fields: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], positions: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], format: int) -> None:
    """Write positions into frames, in an input format."""

def move_entries(moves: tuple[Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)]], transforms: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], half_turn: bool) -> Annotated[NDArray[numpy.int16], dict(shape=(None,))]:
    """The entry of each move in the policy of its frame, or -1."""

def turn_entries(entries: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], old: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], new: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], half_turn: bool) -> Annotated[NDArray[numpy.int16], dict(shape=(None,))]:
    """The entries of the same moves under other transforms, or -1."""

def look_at_game(columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], follow: bool) -> tuple[list[tuple[int, str, float, bool]], Annotated[NDArray[numpy.uint8], dict(shape=(None,))], tuple[Annotated[NDArray[numpy.int8], dict(shape=(None,))], Annotated[NDArray[numpy.int8], dict(shape=(None,))], Annotated[NDArray[numpy.int8], dict(shape=(None,))]]]:
    """
    (faults, bytes of the positions, moves). A fault: ply, reason, what was found, whether that is a whole number.
    """

def uses_half_turn(columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], positions: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], moves: tuple[Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.int8], dict(shape=(None,), order='C', device='cpu', writable=False)]]) -> bool:
    """Whether policies of transposed frames are turned by 180 degrees."""

def convert_game(columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], positions: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], format: int, half_turn: bool) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint16], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]]:
    """(bytes of the fields, moves, probabilities) in another input format."""

def deblunder(fields: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], last: int, threshold: float, width: float, own_result: bool) -> None:
    """Write results without blunders."""

def add_averages(fields: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu')], theta: float) -> None:
    """Write averages of later plies."""

def adjust_policies(columns: tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]], more: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], offset: float, power: float) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]:
    """Other probabilities for the same moves."""
