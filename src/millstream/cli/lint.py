"""`millstream lint`: what is wrong with files of conversations."""

from __future__ import annotations

import argparse

from millstream.cli import chats, show
from millstream.cli.flags import spoken_as_flags
from millstream.cli.paint import print_shown
from millstream.cli.progress import shown_progress
from millstream.stats.styled import Shown, Styled

SUMMARY = "say what is wrong with conversations, in plain words"
DESCRIPTION = """\
Read files of conversations to the end and say what is wrong with them, before a model learns it: rows that cannot be
used, by file and line; masks that learn nothing or everything; stop tokens that are not learned; two beginnings of a
text; duplicates; rows that are too long; empty answers; control strings in texts; tokens half in what is learned;
turns that do not alternate; fields that nothing reads. Each with its count, its share, some examples, and what to do.
Exit code 0: no error (there may be warnings); 1: errors; 2: the files could not be read."""
EPILOG = f"""\
examples:
  millstream lint chats.jsonl                                      without a tokenizer: only what the rows say
  millstream lint chats.jsonl --template chatml --tokenizer model/ --max-length 4096
  millstream lint 'chats/*.parquet' --template llama3.1 --tokenizer model/ --json | jq '.findings[].kind'

{chats.TEMPLATES}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("source", nargs="+", help="files, folders or patterns")
    parser.add_argument("-t", "--tokenizer", help="the model's; without it tokens are not looked at")
    parser.add_argument("--format", help="messages, sharegpt, alpaca, …: when the fields do not tell")
    parser.add_argument("--file-format", help="jsonl, parquet, …: when the file names do not tell")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    chats.add_chat_arguments(parser.add_argument_group("how conversations become tokens"))


def run(arguments: argparse.Namespace) -> int:
    """Lint; the exit code is the answer."""
    from millstream.loaders.looking import lint

    with shown_progress(quiet=arguments.quiet, machine=arguments.json) as progress:
        report = lint(
            arguments.source,
            tokenizer=arguments.tokenizer,
            max_length=arguments.max_length,
            file_format=arguments.file_format,
            progress=progress,
            **chats.given_chat_arguments(arguments),
        )
    if arguments.json:
        show.print_json(report.to_json())
    else:
        print_shown(Shown(_in_flags(part, arguments) for part in report.shown().parts))
    return 0 if report.ok else 1


def _in_flags(part: Styled, arguments: argparse.Namespace) -> Styled:
    """Advice names the flags of this verb."""
    return part._replace(text=spoken_as_flags(part.text, vars(arguments))) if part.style == "note" else part
