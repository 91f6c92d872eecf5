"""`millstream show`: a row as the model sees it, what of it is learned, and of rollouts how good it was."""

from __future__ import annotations

import argparse

from millstream.cli.games import add_game_arguments, game_facts, show_game
from millstream.cli.options import TEMPLATES, add_chat_arguments, add_run_arguments, given_chat_arguments, open_loader
from millstream.cli.rollouts import add_rollout_arguments, hold_rollouts, number_of, open_rollouts, refuse
from millstream.cli.terminal import print_json, print_shown
from millstream.errors import LoaderError
from millstream.loaders import ChatKeywords, ConversationDataLoader, are_games
from millstream.loaders.growing import is_raw
from millstream.stats import Shown
from millstream.store import WEIGHTED, TokenStore

DESCRIPTION = """\
Print a conversation as the tokens that a model gets, decoded. What is learned stands between ⟦ and ⟧, in colour where
the terminal has any; weights other than 1 are written after it. Above it: how many tokens are learned, whether the
conversation was shortened, and tokens that lie half in what is learned.
Of a rollout, after each ⟧ stands how good that was, or below each token where that differs: ▲ and △ for better than
expected, ▼ and ▽ for worse. Then the rewards of its group.
Of a self-play game, a position: the board, the moves that the search liked, and what was thought of it."""
EPILOG = f"""\
examples:
  millstream show chats.jsonl --template chatml --tokenizer model/ --row 7
  millstream show chats.jsonl --template qwen3 --variant training --tokenizer model/ --train last
  millstream show chats.jsonl --template chatml --tokenizer model/ --max-length 512 --truncation turns
  millstream show store --row 7                               the conversation of a store that `prepare` made
  millstream show store --step 100 --row 3 --packing --chunk-size 4096 --batch-size 8     a row of a batch
  millstream show rollouts.jsonl --row 7 --tokenizer model/               a rollout, its advantage and its group
  millstream show 'rollouts/*.parquet' --rollout-id 81-3 --tokenizer model/ --estimator gae      token by token
  millstream show spool/ --row 0                                          what waits in a spool, as ids
  millstream show games/ --game 3 --ply 20                                a position of a self-play game

{TEMPLATES}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("source", nargs="+", help="files of conversations, rollouts or games, a store, or a spool")
    parser.add_argument("--row", type=int, default=0, help="counted from 0; of rollouts, those that can be used")
    parser.add_argument("--rollout-id", metavar="ID", help="of rollouts: the one of this id")
    parser.add_argument("--step", type=int, help="the rows are those of this step's batch (not of files of chats)")
    parser.add_argument("-t", "--tokenizer", help="the model's; a store has its own")
    parser.add_argument("--format", help="messages, sharegpt, alpaca, …: when the fields do not tell")
    parser.add_argument("--file-format", help="jsonl, parquet, …: when the file names do not tell")
    parser.add_argument("--json", action="store_true", help="print the styled parts as JSON; of a game, plain facts")
    add_rollout_arguments(parser.add_argument_group("of rollouts"))
    add_game_arguments(parser.add_argument_group("of self-play games"))
    add_chat_arguments(parser.add_argument_group("how conversations become tokens (of files)"))
    add_run_arguments(parser.add_argument_group("the run (with --step)"))


def run(arguments: argparse.Namespace) -> int:
    """Show a row."""
    source = arguments.source[0] if len(arguments.source) == 1 else arguments.source
    if are_games(source) and arguments.json:
        print_json(game_facts(source, arguments.game or 0, arguments.ply or 0))
        return 0
    if are_games(source):
        shown = show_game(source, arguments.game or 0, arguments.ply or 0)
    elif arguments.game is not None or arguments.ply is not None:
        raise LoaderError("--game and --ply are about self-play games, and these are none", hint="leave them out")
    elif hold_rollouts(source, arguments):
        shown = _of_rollouts(source, arguments)
    else:
        shown = _of_files(source, arguments) if is_raw(source) else _of_store(source, arguments)
    if arguments.json:
        print_json({"row": arguments.row, "step": arguments.step, "parts": [part._asdict() for part in shown.parts]})
    else:
        print_shown(shown)
    return 0


def _of_rollouts(source: object, arguments: argparse.Namespace) -> Shown:
    refuse(arguments, (*ChatKeywords.__annotations__, "max_length", "file_format"), "conversations")
    with open_rollouts(source, arguments, arguments.estimator or "grpo") as loader:
        row = arguments.row if arguments.rollout_id is None else number_of(loader, arguments.rollout_id)
        step = arguments.step if arguments.rollout_id is None else None
        return loader.show(row, step, whole=arguments.whole)


def _of_files(source: object, arguments: argparse.Namespace) -> Shown:
    from millstream.loaders import show_chat

    if arguments.step is not None:
        raise LoaderError("--step is about a store", hint="prepare the conversations, or leave out --step")
    return show_chat(
        source,
        arguments.row,
        tokenizer=arguments.tokenizer,
        max_length=arguments.max_length,
        file_format=arguments.file_format,
        **given_chat_arguments(arguments),
    )


def _of_store(path: str, arguments: argparse.Namespace) -> Shown:
    given = given_chat_arguments(arguments) | ({} if arguments.max_length is None else {"max_length": 0})
    if given:
        flag = f"--{next(iter(given)).replace('_', '-')}"
        raise LoaderError(f"{path}: {flag} is about raw conversations, and these are tokens", hint=f"leave out {flag}")
    with TokenStore(path) as store:
        if store.dtype != WEIGHTED:
            raise LoaderError(f"{path}: this is a store of texts", hint="use inspect or explain")
        with open_loader(store, arguments, tokenizer=arguments.tokenizer) as loader:
            assert isinstance(loader, ConversationDataLoader)
            return loader.show(arguments.row, step=arguments.step)
