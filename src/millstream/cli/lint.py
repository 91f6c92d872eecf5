"""`millstream lint`: what is wrong with files of conversations, of rollouts or of games."""

from __future__ import annotations

import argparse
from typing import get_args

from millstream.cli.options import TEMPLATES, add_chat_arguments, given_chat_arguments
from millstream.cli.progress import shown_progress
from millstream.cli.stderr import in_flags, say
from millstream.cli.terminal import print_json, print_shown
from millstream.games import Rules
from millstream.stats import Shown, Styled

DESCRIPTION = """\
Read files to the end and say what is wrong with them, before a model learns it; the first row decides their kind.
Of conversations: rows that cannot be used, by file and line; masks that learn nothing or everything; stop tokens that
are not learned; two beginnings of a text; duplicates; rows that are too long; empty answers; control strings in texts;
tokens half in what is learned; turns that do not alternate; fields that nothing reads.
Of rollouts: records that cannot be used; masks that train nothing, the prompt or a tool's words; ids with two contents;
rewards that are all the same, in a group or everywhere; groups of one; no log-probabilities; versions that are too old
or from the future; rollouts that are too long or were cut off.
Of self-play games: files and games that cannot be read, and games that break a rule, by file, game and ply.
Each with its count, its share, some examples, and what to do.
Exit code 0: no error (there may be warnings); 1: errors; 2: the files could not be read."""
EPILOG = f"""\
examples:
  millstream lint chats.jsonl                                      without a tokenizer: only what the rows say
  millstream lint chats.jsonl --template chatml --tokenizer model/ --max-length 4096
  millstream lint 'chats/*.parquet' --template llama3.1 --tokenizer model/ --json | jq '.findings[].kind'
  millstream lint rollouts.jsonl
  millstream lint 'rollouts/*.parquet' --tokenizer model/ --max-tokens 8192 --policy-version 40 --max-staleness 2
  millstream lint spool/ --quiet                                   what waits in the folder of a feed
  millstream lint games/ --rules legal                             self-play games, move by move

{TEMPLATES}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("source", nargs="+", help="files, folders, patterns or a spool")
    parser.add_argument(
        "--kind", choices=("chat", "rollouts", "games"), help="what they hold, where the first row does not tell"
    )
    parser.add_argument("-t", "--tokenizer", help="the model's; without it tokens are not looked at")
    parser.add_argument("--format", help="messages, sharegpt, alpaca, …: when the fields do not tell")
    parser.add_argument("--file-format", help="jsonl, parquet, …: when the file names do not tell")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    rollouts = parser.add_argument_group("of rollouts")
    rollouts.add_argument("--max-tokens", type=int, metavar="N", help="the most tokens that fit (default: any number)")
    rollouts.add_argument("--policy-version", type=int, metavar="V", help="what trains next (default: the youngest)")
    rollouts.add_argument("--max-staleness", type=int, metavar="N", help="how many versions older one may be")
    games = parser.add_argument_group("of self-play games")
    games.add_argument("--rules", choices=get_args(Rules), help="how strictly they are looked at (default: moves)")
    add_chat_arguments(parser.add_argument_group("how conversations become tokens"))


def run(arguments: argparse.Namespace) -> int:
    """Lint; the exit code is the answer."""
    from millstream.loaders import lint

    with shown_progress(quiet=arguments.quiet, machine=arguments.json) as progress:
        report = lint(
            arguments.source[0] if len(arguments.source) == 1 else arguments.source,
            kind=arguments.kind,
            tokenizer=arguments.tokenizer,
            max_length=arguments.max_length,
            file_format=arguments.file_format,
            max_tokens=arguments.max_tokens,
            policy_version=arguments.policy_version,
            max_staleness=arguments.max_staleness,
            rules=arguments.rules,
            progress=progress,
            **given_chat_arguments(arguments),
        )
    if arguments.json:
        print_json(report.to_json())
    elif arguments.quiet:
        for finding in report.findings:
            if finding.severity == "error":
                where = f"{finding.message} ({finding.rows:,}: {', '.join(finding.examples)})"
                say("error", where, in_flags(finding.advice, vars(arguments)))
    else:
        print_shown(Shown(_with_flags(part, arguments) for part in report.shown().parts))
    return 0 if report.ok else 1


def _with_flags(part: Styled, arguments: argparse.Namespace) -> Styled:
    """Advice names the flags of this verb."""
    return part._replace(text=in_flags(part.text, vars(arguments))) if part.style == "note" else part
