"""`millstream <verb>`: reads the command line, runs the verb, and turns errors into words and exit codes.

0: done. 1: the answer is no (a damaged store, errors in conversations, rollouts or games). 2: an error, with a hint.
130: stopped with Ctrl-C. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Container, Sequence
from typing import TextIO

from millstream.cli import bench, demo, explain, inspect, lint, prepare, show_row, verify, watch
from millstream.cli.flags import spoken_as_flags
from millstream.errors import LossWarning, MillstreamError, WaitWarning

VERBS = {
    "demo": demo,
    "prepare": prepare,
    "inspect": inspect,
    "verify": verify,
    "explain": explain,
    "show": show_row,
    "lint": lint,
    "bench": bench,
    "watch": watch,
}

EPILOG = """\
a first session:
  millstream demo                                   see everything work, in under a minute
  millstream prepare texts/ corpus --tokenizer bpe  raw text -> a store of tokens
  millstream inspect corpus                         what is in it
  millstream explain corpus --step 100              where the rows of step 100 come from
  millstream bench corpus                           how fast it can be read here

and with conversations:
  millstream lint chats.jsonl --template chatml --tokenizer model/     what is wrong with them
  millstream show chats.jsonl --template chatml --tokenizer model/     what is learned of one
  millstream prepare chats.jsonl chats --kind chat --template chatml --tokenizer model/

and with rollouts, in files or in a spool:
  millstream inspect rollouts.jsonl                       how many, how long, which rewards
  millstream lint rollouts.jsonl --max-tokens 8192        what is wrong with them
  millstream show rollouts.jsonl --tokenizer model/       what is learned of one, and how good it was

and with self-play games:
  millstream inspect games/                               how many, of which versions, and which files are bad
  millstream show games/ --game 3 --ply 20                a position, and what the search thought of it
  millstream lint games/                                  which games break the rules

and with a pipeline that never ends:
  millstream watch mill.yaml                              which stage is busy, which queue is full

`millstream <verb> --help` teaches one verb.
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line as argparse knows it."""
    parser = argparse.ArgumentParser(
        prog="millstream",
        description="Training data at the speed of memory: reproducible, resumable, explainable batches.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = importlib.metadata.version("millstream")
    parser.add_argument("--version", action="version", version=f"millstream {version}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-v", "--verbose", action="count", default=0, help="log what happens (-vv: more)")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="<verb>", required=True)
    for name, verb in VERBS.items():
        one = verbs.add_parser(
            name,
            parents=[common],
            help=verb.SUMMARY,
            description=verb.DESCRIPTION,
            epilog=verb.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.add_arguments(one)
        one.set_defaults(run=verb.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows few letters gets "?" for the others
            stream.reconfigure(errors="replace")
    arguments = build_parser().parse_args(argv)
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(arguments.verbose, 2)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("millstream")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    debug = arguments.debug or bool(os.environ.get("MILLSTREAM_DEBUG"))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _guarded(arguments, debug=debug)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _guarded(arguments: argparse.Namespace, *, debug: bool) -> int:
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _say("stopped")
        return 130
    except BrokenPipeError:
        # The reader has left (`| head`); nothing may be flushed into the broken pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if debug:
            traceback.print_exc()
        _explain_error(error, vars(arguments))
        return 2
    return code


def _explain_error(error: Exception, options: Container[str]) -> None:
    if isinstance(error, MillstreamError):
        _say(f"error: {error.message}")
        if error.hint:
            _say(f"hint: {spoken_as_flags(error.hint, options)}")
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        _say(f"error: {where}{error.strerror or error}")
        _say("hint: look at the path, its permissions and the space on its disk")
    else:
        _say(f"error: {type(error).__name__}: {error}")
        _say("hint: this is not your fault; run it again with --debug and report what it shows")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One of ours speaks of the data: the line of code that it came from is of no use here."""
    where = "" if issubclass(category, LossWarning | WaitWarning) else f"{filename}:{lineno}: {category.__name__}: "
    _say(f"warning: {where}{message}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
