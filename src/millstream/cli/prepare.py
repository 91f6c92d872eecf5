"""`millstream prepare`: raw text -> a store of tokens."""

from __future__ import annotations

import argparse
import dataclasses

from millstream.cli import show
from millstream.cli.progress import shown_progress
from millstream.sources.chunk import MAX_DOCUMENT_BYTES

SUMMARY = "turn raw files into a store of tokens"
DESCRIPTION = """\
Turn text, JSON lines, CSV, Parquet, Arrow or tar files, compressed or not, into a store of tokens that loaders read
without parsing anything.
The same input gives the same bytes. A run that is killed leaves nothing that opens."""
EPILOG = """\
examples:
  millstream prepare book.txt corpus --tokenizer char
  millstream prepare texts/ corpus --tokenizer bpe:8192         learn a vocabulary of 8192 from the texts
  millstream prepare 'data/**/*.jsonl' corpus --tokenizer gpt2 --text-field content
  millstream prepare data/ corpus --tokenizer tokenizer.json --on-bad quarantine

A tokenizer is a Hugging Face tokenizer.json (or its folder), the name of a tiktoken encoding, or "char",
"bpe" or "bpe:<size>" to learn one from the source. It is kept beside the tokens.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("source", nargs="+", help="files, folders or patterns")
    parser.add_argument("output", help="the store to make: a folder, or one file that ends in .bin")
    parser.add_argument("-t", "--tokenizer", default="bpe", help="see below (default: bpe)")
    parser.add_argument("--format", help="text, jsonl, csv, …: when the file names do not tell")
    parser.add_argument("--text-field", default="text", help="the field or column of the text (default: text)")
    parser.add_argument(
        "--documents", choices=("file", "line", "separator"), default="file", help="text: what a document is"
    )
    parser.add_argument("--separator", help='text: what stands between documents, e.g. "<|endoftext|>"')
    parser.add_argument("--eos", default="auto", help='end token: "auto", "none", or a token (default: auto)')
    parser.add_argument("--on-bad", choices=("error", "skip", "quarantine"), default="error", help="bad records")
    parser.add_argument("--max-document-bytes", type=int, default=MAX_DOCUMENT_BYTES, help="default: 256 MiB")
    parser.add_argument("--dtype", choices=("uint16", "uint32", "int32"), help="default: the smallest that fits")
    parser.add_argument("--workers", type=int, help="threads (default: all processors)")
    parser.add_argument("--overwrite", action="store_true", help="replace an older store")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Prepare a store and report."""
    from millstream.api import prepare

    separated = arguments.separator is not None and arguments.documents == "file"
    with shown_progress(quiet=arguments.quiet) as progress:
        report = prepare(
            arguments.source,
            arguments.output,
            arguments.tokenizer,
            workers=arguments.workers,
            on_bad=arguments.on_bad,
            eos=_eos(arguments.eos),
            format=arguments.format,
            text_field=arguments.text_field,
            documents="separator" if separated else arguments.documents,
            separator=arguments.separator,
            max_document_bytes=arguments.max_document_bytes,
            dtype=arguments.dtype,
            overwrite=arguments.overwrite,
            progress=progress,
        )
    if arguments.json:
        show.print_json(dataclasses.asdict(report))
        return 0
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in report.skipped.items())
    rows = [
        ("store", f"{report.path}  ({report.dtype}, {report.fingerprint})"),
        ("tokens", f"{report.tokens:,}"),
        ("documents", f"{report.documents:,} of {show.counted(report.files, 'file')}, {show.size(report.bytes)}"),
        ("tokenizer", report.tokenizer),
        ("left out", left_out),
        ("kept aside", str(report.quarantine or "")),
        ("took", f"{show.duration(report.seconds)}, {show.count(report.tokens_per_second)} tokens/s"),
    ]
    print(show.table(rows))
    return 0


def _eos(eos: str) -> str | int | None:
    if eos == "none":
        return None
    return int(eos) if eos.isdecimal() else eos
