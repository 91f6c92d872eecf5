"""A column of an Arrow table -> the same, if every offset, view and index in it points inside its buffers.

pyarrow trusts a file, and reads past the ends of its buffers, so each column is validated before its values are read.
pyarrow is imported in this file only, and only when such a file is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.errors import MillstreamError, MissingExtra
from millstream.sources.chunk import FileFailure

Sizes: TypeAlias = npt.NDArray[np.float64]
_LEAST_BYTES = 4096
"""Columns that are smaller may expand as those of this size: a row of nulls needs no byte at all."""


def arrow() -> Any:
    """The package pyarrow."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra.of("pyarrow", "parquet") from None
    return pyarrow


@contextmanager
def pyarrow_errors() -> Iterator[None]:
    """Any error of pyarrow over the bytes of a file becomes a failure of the file: it raises nearly every kind.

    >>> with pyarrow_errors():
    ...     raise IndexError("View at slot 0 references buffer 7")
    Traceback (most recent call last):
    millstream.sources.chunk.FileFailure: damaged: View at slot 0 references buffer 7
    """
    try:
        yield
    except (FileFailure, MillstreamError):
        raise
    except Exception as error:
        said = str(error).splitlines() or [type(error).__name__]
        raise FileFailure("damaged", said[0], has_place=False) from error


def validated(column: Any, max_expansion: int) -> Any:
    """The column itself, if it holds together and what it stands for is not more than `max_expansion` times its bytes.

    Values that only mean nothing, such as texts that are not UTF-8, are bad by themselves and not here.

    >>> import pyarrow as pa
    >>> validated(pa.array(["a", "b"]), 1000).to_pylist()
    ['a', 'b']
    >>> words = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a", "b"]), safe=False)
    >>> with pyarrow_errors():  # doctest: +ELLIPSIS
    ...     validated(words, 1000)
    Traceback (most recent call last):
    millstream.sources.chunk.FileFailure: damaged: Dictionary indices invalid: ... out of bounds: 7 ...
    """
    for array in getattr(column, "chunks", [column]):
        array.validate()
        (array if _lists_nulls(array.type) else array.view(_bare(array.type))).validate(full=True)
        most = max_expansion * max(array.get_total_buffer_size(), _LEAST_BYTES)
        if _may_expand(array.type) and (len(array) > most or _sizes(array, most).sum() > most):
            found = f"its {len(array):,} rows stand for more than {max_expansion:,} times their bytes"
            raise FileFailure("expands too far", found, "if the file is good, raise max_expansion", has_place=False)
    return column


def _lists_nulls(kind: Any) -> bool:
    """Whether there are lists of nothing: pyarrow forgets how many of these there are when it looks at them as another
    type."""
    types = arrow().types
    loose = types.is_nested(kind) and not types.is_struct(kind) and any(map(_has_nulls, _inside(kind)))
    return loose or any(map(_lists_nulls, _inside(kind)))


def _has_nulls(kind: Any) -> bool:
    return arrow().types.is_null(kind) or any(map(_has_nulls, _inside(kind)))


def _bare(kind: Any) -> Any:
    """The type of the same buffers as bytes and numbers, of which every value means something."""
    pa = arrow()
    types = pa.types
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _bare(kind.value_type), kind.ordered)
    if types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, _bare(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_bare_field(kind.key_field), _bare_field(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(_bare_field(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([_bare_field(each) for each in kind])
    if types.is_union(kind):
        return pa.union([_bare_field(each) for each in kind], kind.mode, kind.type_codes)
    if types.is_decimal(kind) or types.is_date(kind) or types.is_time(kind):
        return pa.binary(kind.byte_width)
    lists = {pa.list_: types.is_list, pa.large_list: types.is_large_list}
    lists |= {pa.list_view: types.is_list_view, pa.large_list_view: types.is_large_list_view}
    for made, is_one in lists.items():
        if is_one(kind):
            return made(_bare_field(kind.value_field))
    texts = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    return texts.get(kind, kind)


def _bare_field(field: Any) -> Any:
    return field.with_type(_bare(field.type))


def _may_expand(kind: Any) -> bool:
    """Whether a value of this type may stand for more than the bytes that are there for it."""
    types = arrow().types
    views = (types.is_list_view, types.is_large_list_view, types.is_string_view, types.is_binary_view)
    far = (types.is_dictionary, types.is_union, *views)
    free = (types.is_null, types.is_run_end_encoded, types.is_fixed_size_list)
    nothing = types.is_struct(kind) and not kind.num_fields
    return nothing or any(is_one(kind) for is_one in (*far, *free)) or any(map(_may_expand, _inside(kind)))


def _inside(kind: Any) -> list[Any]:
    """The types of what a value of this type holds."""
    if arrow().types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(place).type for place in range(kind.num_fields)]


def _sizes(array: Any, most: int) -> Sizes:
    """How much each value of an array stands for: the values in it, and the bytes of its texts. More than `most` values
    are not looked at."""
    if len(array) > most:
        return np.full(1, np.inf)
    types, kind = arrow().types, array.type
    sizes: Sizes = np.ones(len(array))
    if types.is_dictionary(kind) and len(array.dictionary):
        sizes += _sizes(array.dictionary, most)[array.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    elif types.is_run_end_encoded(kind):
        first, each = array.find_physical_offset(), _sizes(array.values, most)
        ends = np.clip(array.run_ends.to_numpy().astype(np.int64) - array.offset, 0, len(array))[first:]
        sizes += np.repeat(each[first : first + len(ends)], np.diff(ends, prepend=0))
    elif types.is_struct(kind):
        sizes += sum(_sizes(array.field(place), most) for place in range(kind.num_fields))
    elif types.is_union(kind):
        here, buffers = slice(array.offset, array.offset + len(array)), array.buffers()
        codes = np.frombuffer(buffers[1], np.int8)[here]
        places = np.frombuffer(buffers[2], np.int32)[here] if kind.mode == "dense" else np.arange(len(array))
        for place, code in enumerate(kind.type_codes):
            chosen = codes == code
            sizes[chosen] += _sizes(array.field(place), most)[places[chosen]]
    elif types.is_nested(kind):
        starts, stops = _spans(array)
        sums = np.concatenate([[0.0], np.cumsum(_sizes(array.values, most))])
        sizes += sums[stops] - sums[starts] if len(sums) > len(array.values) else np.inf
    else:
        sizes += _text_bytes(array)
    return sizes


def _spans(array: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the values of each list begin and end."""
    types, kind = arrow().types, array.type
    if types.is_fixed_size_list(kind):
        starts = (array.offset + np.arange(len(array))) * kind.list_size
        return starts, starts + kind.list_size
    offsets = array.offsets.to_numpy().astype(np.int64)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return offsets, offsets + array.sizes.to_numpy().astype(np.int64)
    return offsets[:-1], offsets[1:]


def _text_bytes(array: Any) -> npt.NDArray[Any] | int:
    """The bytes of each text; 0, where these are none."""
    types, kind = arrow().types, array.type
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return np.frombuffer(array.buffers()[1], np.int32)[::4][array.offset : array.offset + len(array)]
    if any(is_one(kind) for is_one in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)):
        lengths: npt.NDArray[Any] = np.diff(np.frombuffer(array.buffers()[1], *_offsets_of(array)))
        return lengths
    return 0


def _offsets_of(array: Any) -> tuple[Any, int, int]:
    """Type, number and first byte of the offsets of texts, as `numpy.frombuffer` takes them."""
    types = arrow().types
    wide = types.is_large_string(array.type) or types.is_large_binary(array.type)
    return (np.int64, len(array) + 1, 8 * array.offset) if wide else (np.int32, len(array) + 1, 4 * array.offset)
