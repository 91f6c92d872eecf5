"""`millstream verify`: is every byte of a store what was written?"""

from __future__ import annotations

import argparse

from millstream.cli.progress import shown_progress
from millstream.cli.stderr import say
from millstream.cli.terminal import print_json
from millstream.stats import Progress, counted, size
from millstream.store import TokenStore

DESCRIPTION = """\
Read every byte of a store and compare it with its checksums. Exit code 0: all is well; 1: something is
damaged, and the files and blocks are named; 2: the store could not be opened."""
EPILOG = """\
examples:
  millstream verify corpus
  millstream verify corpus --json | jq '.damages[].file'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("store", help="a store: a folder or a .bin file")
    parser.add_argument("--dtype", choices=("uint16", "uint32", "int32"), help="for a bare file of ids")
    parser.add_argument("--version", help="an older version, by the first digits of its fingerprint")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Verify a store; the exit code is the answer."""
    with (
        TokenStore(arguments.store, dtype=arguments.dtype, version=arguments.version) as store,
        shown_progress(quiet=arguments.quiet, machine=arguments.json) as progress,
    ):
        report = store.verify(lambda done, total: progress(Progress("verify", done, total, "bytes")))
    if arguments.json:
        damages = [vars(damage) for damage in report.damages]
        facts = {"ok": not damages, "bytes": report.bytes, "blocks": report.blocks}
        print_json({**facts, "damages": damages, "unchecked": report.unchecked})
        return 1 if damages else 0
    for damage in report.damages:
        if arguments.quiet:
            say("error", f"damaged: {damage}")
        print(f"damaged: {damage}")
    for note in report.unchecked:
        print(f"note: {note}")
    blocks = f"{counted(report.blocks, 'block')}, {size(report.bytes)}"
    if report.damages:
        print(f"{arguments.store}: {len(report.damages)} damaged, of {blocks}")
        return 1
    print(f"{arguments.store}: all is well ({blocks})")
    return 0
