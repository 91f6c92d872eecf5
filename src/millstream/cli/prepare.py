"""`millstream prepare`: a raw corpus -> a store of tokens."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from millstream.cli.progress import shown_progress
from millstream.sources import CHUNK_BYTES, MAX_DOCUMENT_BYTES, MAX_EXPANSION
from millstream.storage import ZSTD_LEVEL

if TYPE_CHECKING:
    from millstream.api import PrepareReport
from millstream.cli.options import TEMPLATES, add_chat_arguments, given_chat_arguments
from millstream.cli.terminal import left_out, print_json, table
from millstream.stats import count, counted, duration, share, size

DESCRIPTION = """\
Turn text, JSON lines, CSV, Parquet, Arrow or tar files, compressed or not, into a store of tokens that loaders read
without parsing anything. The same input gives the same bytes. A run that is killed leaves nothing that opens, and
--resume continues it; what was made of each piece is cached by content, so the same thing again is instant."""
EPILOG = """\
examples:
  millstream prepare book.txt corpus --tokenizer char
  millstream prepare texts/ corpus --tokenizer bpe:8192         learn a vocabulary of 8192 from the texts
  millstream prepare 'data/**/*.jsonl.zst' corpus --tokenizer gpt2 --text-field content
  millstream prepare data/ corpus --tokenizer tokenizer.json --recipe clean.toml --keep-rejected
  millstream prepare data/ corpus --tokenizer tokenizer.json --on-bad quarantine --resume
  millstream prepare chats.jsonl chats --kind chat --tokenizer model/ --chat-template chatml --max-length 4096

A tokenizer is a Hugging Face tokenizer.json (or its folder), the name of a tiktoken encoding, a SentencePiece model, or
"char", "bpe" or "bpe:<size>" to learn one from the source. It is kept beside the tokens.

A recipe is a TOML or YAML file: steps that clean, filter and deduplicate records, in their order.
  [[steps]]
  name = "normalize"
  [[steps]]
  name = "gopher_quality"
  min_words = 50
  [[steps]]
  name = "exact_dedup"
What a rule drops is counted and shown with examples in report.html beside the store.

With --kind chat each row is a conversation (messages, ShareGPT, Alpaca, prompt and completion, …: detected by its
fields, or by --format), and each token is kept with its weight in the loss. The tokenizer is the model's own.
`millstream lint` says what is wrong with such files, `millstream show` shows what is learned of a row.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("source", nargs="+", help="files, folders or patterns")
    parser.add_argument("output", help="the store to make: a folder, or one file that ends in .bin")
    parser.add_argument("-t", "--tokenizer", default="bpe", help="see below (default: bpe)")
    parser.add_argument("--kind", choices=("text", "chat"), default="text", help="what a record is (default: text)")
    parser.add_argument("--recipe", help="a TOML or YAML file of steps, see below")
    _add_reading(parser.add_argument_group("reading"))
    add_chat_arguments(parser.add_argument_group("conversations (--kind chat)", TEMPLATES))
    _add_running(parser.add_argument_group("running"))


def _add_reading(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--format", help="text, jsonl, csv, …: when the file names do not tell; of chats: of the rows")
    group.add_argument("--file-format", help="chats: jsonl, parquet, …: when the file names do not tell")
    group.add_argument("--include", action="append", default=[], help="take only names like this, e.g. '*.jsonl'")
    group.add_argument("--exclude", action="append", default=[], help="pass over names like this")
    group.add_argument("--text-field", help="the field or column of the text (default: text)")
    group.add_argument(
        "--documents", choices=("file", "line", "separator"), help="text: what a document is (default: file)"
    )
    group.add_argument("--separator", help='text: what stands between documents, e.g. "<|endoftext|>"')
    group.add_argument("--encoding", default="auto", help="default: UTF-8, or what a byte order mark says")
    group.add_argument("--on-invalid", choices=("reject", "replace"), default="reject", help="bytes that are no text")
    group.add_argument("--on-bad", choices=("error", "skip", "quarantine"), default="error", help="bad records")
    group.add_argument("--max-document-bytes", type=int, default=MAX_DOCUMENT_BYTES, help="default: 256 MiB")
    group.add_argument("--max-expansion", type=int, default=MAX_EXPANSION, help="compressed: at most this many times")
    group.add_argument("--eos", default="auto", help='end token: "auto", "none", or a token (default: auto)')
    group.add_argument("--special-tokens", choices=("text", "ids"), help="those spelled out in a text (default: text)")


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--workers", type=int, help="threads (default: all processors)")
    group.add_argument("--engine", choices=("local", "ray"), default="local", help="where the work is done")
    group.add_argument("--resume", action="store_true", help="continue an unfinished run")
    group.add_argument("--overwrite", action="store_true", help="replace an older store")
    group.add_argument("--no-cache", action="store_true", help="neither use nor fill the cache")
    group.add_argument("--cache-dir", help="default: $MILLSTREAM_CACHE, or ~/.cache/millstream")
    group.add_argument("--keep-rejected", action="store_true", help="keep every record that the recipe drops")
    group.add_argument("--compression", choices=("zstd", "none"), help="of cache and kept records")
    group.add_argument("--level", type=int, default=ZSTD_LEVEL, help=f"of the compression (default: {ZSTD_LEVEL})")
    group.add_argument("--chunk-bytes", type=int, default=CHUNK_BYTES, help="work is cut into (default: 4 MiB)")
    group.add_argument("--memory-budget", help="e.g. 2GB (default: what the workers need)")
    packed = {"nargs": "?", "type": int, "const": True, "default": False, "metavar": "LEVEL"}
    group.add_argument("--compress", help="pack the tokens of the store with zstd", **packed)  # type: ignore[arg-type]
    group.add_argument("--dtype", choices=("uint16", "uint32", "int32"), help="default: the smallest that fits")
    group.add_argument("--json", action="store_true", help="progress on stderr and the report on stdout as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prepare a store and report."""
    from millstream.api import prepare

    with shown_progress(quiet=arguments.quiet, machine=arguments.json) as progress:
        report = prepare(
            arguments.source,
            arguments.output,
            arguments.tokenizer,
            kind=arguments.kind,
            max_length=arguments.max_length,
            file_format=arguments.file_format,
            recipe=arguments.recipe,
            include=arguments.include,
            exclude=arguments.exclude,
            encoding=arguments.encoding,
            on_invalid=arguments.on_invalid,
            on_bad=arguments.on_bad,
            max_document_bytes=arguments.max_document_bytes,
            max_expansion=arguments.max_expansion,
            chunk_bytes=arguments.chunk_bytes,
            eos=_eos(arguments.eos),
            workers=arguments.workers,
            engine=arguments.engine,
            resume=arguments.resume,
            overwrite=arguments.overwrite,
            cache=not arguments.no_cache,
            cache_dir=arguments.cache_dir,
            keep_rejected=arguments.keep_rejected,
            compression=arguments.compression,
            level=arguments.level,
            memory_budget=arguments.memory_budget,
            special_tokens=arguments.special_tokens,
            dtype=arguments.dtype,
            compress=arguments.compress,
            progress=progress,
            **_given(arguments),
        )
    if arguments.json:
        print_json(dataclasses.asdict(report))
        return 0
    if report.was_there:
        print("this store is finished: an earlier run made it of the same files in the same way, and nothing was done")
    kept = [str(path) for path in (report.quarantine, report.rejected) if path is not None]
    rows = [
        ("store", f"{report.path}  ({report.dtype}, {report.fingerprint})"),
        ("tokens", f"{report.tokens:,}"),
        ("trained", _trained(report.details)),
        ("documents", f"{report.documents:,} of {counted(report.files, 'file')}, {size(report.bytes)}"),
        ("tokenizer", report.tokenizer),
        ("left out", left_out(report.skipped)),
        ("changed", ", ".join(f"{number:,} {what}" for what, number in report.details["changed"].items())),
        ("kept aside", ", ".join(kept)),
        ("took", "" if report.was_there else _took(report)),
        ("report", str(report.page) if report.page.exists() else ""),
    ]
    print(table(rows))
    return 0


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """What has no default here: it is passed on only if it was given."""
    texts = {name: getattr(arguments, name) for name in ("text_field", "documents", "separator")}
    return {name: value for name, value in texts.items() if value is not None} | given_chat_arguments(arguments)


def _took(report: PrepareReport) -> str:
    """How long it took, and what of that the bar of the reading does not show."""
    spent = report.details["phases"]
    spent = {**spent, "finishing": report.seconds - spent["tokenizer"] - spent["reading"]}
    names = {"tokenizer": "to get the tokenizer", "reading": "to read and encode", "finishing": "to finish the store"}
    parts = ", ".join(f"{duration(spent[name])} {what}" for name, what in names.items())
    return f"{duration(report.seconds)}, {count(report.tokens_per_second)} tokens/s: {parts}"


def _trained(report: dict[str, Any]) -> str:
    chat = report["chat"]
    return "" if chat is None else f"{chat['trained_tokens']:,}  ({share(chat['trained_tokens'], report['tokens'])})"


def _eos(eos: str) -> str | int | None:
    if eos == "none":
        return None
    return int(eos) if eos.isdecimal() else eos
