"""Raw data, checked before a model learns it: what is wrong with conversations, rollouts or games."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Unpack

from millstream.chats import lint_files
from millstream.errors import LoaderError, LossWarning
from millstream.games import Rules, lint_games
from millstream.loaders.chat_keywords import ChatKeywords, chat_settings, prepared_chat
from millstream.loaders.detect import are_games, are_rollouts, refuse_empty_folder, refuse_journal, refuse_nothing
from millstream.loaders.rollouts import is_feed
from millstream.loaders.show import found_rows
from millstream.rollouts import RolloutChunk, lint_rollouts, read_rollouts
from millstream.selfplay.chunk_feed import open_sources
from millstream.stats import LintReport, OnProgress, Progress
from millstream.tokens import load_tokenizer


def lint(
    source: Any,
    *,
    kind: Literal["chat", "rollouts", "games"] | None = None,
    tokenizer: object = None,
    max_length: int | None = None,
    file_format: str | None = None,
    max_tokens: int | None = None,
    policy_version: int | None = None,
    max_staleness: int | None = None,
    rules: Rules | None = None,
    progress: OnProgress | None = None,
    **keywords: Unpack[ChatKeywords],
) -> LintReport:
    """Say what is wrong with files of conversations, of rollouts or of games, before a model learns it.

    Rows that cannot be used, masks that learn nothing or everything, stop tokens that are not learned, duplicates,
    rows that are too long, and more: each in plain words, with counts, examples and what to do. `report.ok` is false if
    there is an error; `print(report)` shows it all. The first row tells what the files hold, unless `kind` says it.

    Of conversations, `keywords` and `max_length` are those of the loader, and without a tokenizer only what the rows
    say is looked at. Of rollouts, which may also be the folder of a spool, `max_tokens` is the most that fit,
    `policy_version` what trains next (by default the youngest that there is), and `max_staleness` how many versions
    older a rollout may be. Of self-play games, a file or a folder, `rules` is how strictly they are looked at:
    "values", "moves" (default) or "legal".

    >>> chats = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
    >>> report = lint(chats + chats + [{"messages": []}])
    >>> for finding in report.findings:
    ...     print(finding.severity, finding.kind, finding.examples)
    error empty conversation ('rows:3: messages has no messages',)
    warning duplicate ('rows:2: the same as rows:1',)
    >>> answer = {"group_id": "2+2?", "token_ids": [7, 8], "prompt_len": 1, "loss_mask": [1, 1], "finish": "stop"}
    >>> report = lint([{"rollout_id": name, "reward": float(name == "a"), **answer} for name in "ab"])
    >>> print(report.findings[0].kind, report.findings[0].examples)
    prompt trained ("rollouts:1: rollout 'a'", "rollouts:2: rollout 'b'")
    """
    if kind not in (None, "chat", "rollouts", "games"):
        raise LoaderError(f"kind={kind!r} is unknown", hint='choose "chat", "rollouts" or "games"')
    if kind is None:
        refuse_journal(source)
        refuse_empty_folder(source)
    limits = {"max_tokens": max_tokens, "policy_version": policy_version, "max_staleness": max_staleness}
    if kind == "games" or (kind is None and are_games(source)):
        _refuse({**keywords, **limits, "max_length": max_length}, about="rows", these="games", kind="chat")
        return _lint_games(source, rules or "moves", progress or _no_progress)
    _refuse({"rules": rules}, about="games", these="rows", kind="games")
    if kind == "rollouts" or (kind is None and are_rollouts(source, file_format)):
        _refuse({**keywords, "max_length": max_length}, about="conversations", these="rollouts", kind="chat")
        return _lint_rollouts(source, tokenizer, limits, file_format, progress or _no_progress)
    _refuse(limits, about="rollouts", these="conversations", kind="rollouts")
    found = found_rows(source, file_format)
    if tokenizer is None:
        settings = chat_settings(keywords, None, max_length)
    else:
        settings = prepared_chat(keywords, tokenizer, max_length)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    return lint_files(found, settings, loaded, progress or _no_progress)


def _refuse(given: Mapping[str, Any], *, about: str, these: str, kind: str) -> None:
    """Refuse keywords that are about the other kind of rows."""
    for name in (name for name, value in given.items() if value is not None):
        instead = "max_tokens= is the most tokens of a rollout" if name == "max_length" else f"leave out {name}="
        raise LoaderError(
            f"{name}= is about {about}, and these are {these}", hint=f'{instead}; if they are not, pass kind="{kind}"'
        )


def _lint_rollouts(
    source: Any,
    tokenizer: object,
    limits: Mapping[str, int | None],
    file_format: str | None,
    progress: OnProgress,
) -> LintReport:
    if is_feed(source):
        refuse_nothing(source)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)

    def chunks() -> Iterator[RolloutChunk]:
        rows = 0
        for chunk in read_rollouts(source, on_bad="skip", tokenizer=loaded, format=file_format):
            yield chunk
            rows += len(chunk.block) + len(chunk.bad) + chunk.repeated
            progress(Progress("lint", rows, None, "rollouts", chunk.file))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LossWarning)  # what is lost is among the findings
        return lint_rollouts(chunks(), tokenizer=loaded, **limits)


def _lint_games(source: Any, rules: Rules, progress: OnProgress) -> LintReport:
    opened = open_sources(source)
    bad = [(each.path, each.reason, each.found) for each in opened.bad]

    def tell(games: int, file: str) -> None:
        progress(Progress("lint", games, None, "games", file))

    return lint_games(opened.sources, bad, opened.skipped, rules=rules, progress=tell)


def _no_progress(progress: object) -> None:
    """Ignore progress."""
