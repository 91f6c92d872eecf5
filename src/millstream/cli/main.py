"""`millstream <verb>`: reads the command line, runs the verb, and turns errors into messages and exit codes.

0: done. 1: the answer is no (a damaged store, errors in conversations, rollouts or games). 2: an error, with a hint.
130: stopped with Ctrl-C. Data is written to stdout, everything else to stderr. With -q only errors are printed; with
--json both streams hold JSON alone.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from difflib import get_close_matches
from importlib import import_module, metadata
from types import ModuleType
from typing import NoReturn

from millstream.cli.stderr import in_flags, message_style, say
from millstream.errors import MillstreamError

VERBS = {
    "demo": "see everything work, in under a minute",
    "prepare": "turn raw files into a store of tokens",
    "inspect": "show what a store holds and what it was made from, or what rollouts or games hold",
    "verify": "read a whole store and compare it with its checksums",
    "explain": "name the documents of a step, or the steps of a document",
    "show": "show what is learned of a conversation, a rollout or a game",
    "lint": "say what is wrong with conversations, rollouts or games, in plain words",
    "bench": "measure how fast a store can be read on this machine",
    "watch": "run a pipeline of a recipe, or look at a running one, and show what each stage does",
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


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, with the command that shows the help."""

    def error(self, message: str) -> NoReturn:
        """Print the error and leave with 2."""
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"{self.prog} needs {missing.replace(', ', ' and ')}"
        say("error", message, f"{self.prog} --help")
        self.exit(2)


def verb_module(verb: str) -> ModuleType:
    """The module of a verb, imported only when that verb runs: most need much that the others do not."""
    return import_module(f"millstream.cli.{verb}")


def build_parser(wanted: str | None) -> Parser:
    """The command line as argparse knows it: all verbs, and the arguments of the one that is wanted."""
    parser = Parser(
        prog="millstream",
        description="Training data at the speed of memory: reproducible, resumable, explainable batches.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = metadata.version("millstream")
    parser.add_argument("--version", action="version", version=f"millstream {version}")
    common = Parser(add_help=False)
    common.add_argument("-v", "--verbose", action="count", default=0, help="log what happens (-vv: more)")
    common.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors (and JSON, if asked for)")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="<verb>")
    for name, summary in VERBS.items():
        if name != wanted:
            verbs.add_parser(name, help=summary)
            continue
        verb = verb_module(name)
        one = verbs.add_parser(
            name,
            parents=[common],
            help=summary,
            description=verb.DESCRIPTION,
            epilog=verb.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.add_arguments(one)
        one.set_defaults(run=verb.run, parser=one)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and give its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows few letters gets "?" for the others
            stream.reconfigure(errors="replace")
    given = list(sys.argv[1:] if argv is None else argv)
    with message_style(machine="--json" in given):
        arguments = _parsed(given)
    debug = arguments.debug or bool(os.environ.get("MILLSTREAM_DEBUG"))
    with ExitStack() as stack:
        stack.enter_context(message_style(quiet=arguments.quiet, machine=arguments.json, verbose=arguments.verbose))
        if arguments.quiet and not arguments.json:
            stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w"))))  # noqa: PTH123
        return _guarded(arguments, debug=debug)


def _parsed(given: list[str]) -> argparse.Namespace:
    """Parse the command line; an unknown verb or flag is refused with the nearest known one as a hint."""
    parser = build_parser(next((word for word in given if word in VERBS), None))
    if not given:
        parser.print_help()
        parser.exit(2)
    if not given[0].startswith("-") and given[0] not in VERBS:
        like = get_close_matches(given[0], VERBS, 1)
        meant = f"; did you mean {like[0]}?" if like else f", only {', '.join(VERBS)}"
        parser.error(f"there is no verb {given[0]}{meant}")
    arguments, unknown = parser.parse_known_args(given)
    if not hasattr(arguments, "run"):
        parser.error(f"the first word is one of {', '.join(VERBS)}")
    if unknown:
        like = get_close_matches(unknown[0].partition("=")[0], arguments.parser._option_string_actions, 1)
        meant = f"; did you mean {like[0]}?" if like else ""
        arguments.parser.error(f"{arguments.parser.prog} does not know {unknown[0]}{meant}")
    return arguments


def _guarded(arguments: argparse.Namespace, *, debug: bool) -> int:
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("note", "stopped")
        return 130
    except BrokenPipeError:
        # The reader has left (`| head`); nothing may be flushed into the broken pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        shown = traceback.format_exc()
        if debug and not arguments.json:
            print(shown, file=sys.stderr, end="")
        _explain_error(error, vars(arguments), {"traceback": shown} if debug and arguments.json else {})
        return 2
    return code


def _explain_error(error: Exception, options: Container[str], more: Mapping[str, str]) -> None:
    if isinstance(error, MillstreamError):
        say("error", error.message, in_flags(error.hint, options) if error.hint else None, **more)
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        hint = "look at the path, its permissions and the space on its disk"
        say("error", f"{where}{error.strerror or error}", hint, **more)
    else:
        hint = "this is not your fault; run it again with --debug and report what it shows"
        say("error", f"{type(error).__name__}: {error}", hint, **more)


if __name__ == "__main__":
    sys.exit(main())
