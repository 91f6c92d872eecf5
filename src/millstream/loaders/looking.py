"""Looking at raw conversations before they are learned: one of them, or what is wrong with all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from millstream.chats.lint import LintReport, lint_files
from millstream.chats.raw_row import show_raw_row
from millstream.loaders.chat_keywords import ChatKeywords, chat_settings, prepared_chat
from millstream.loaders.raw import RawSettings
from millstream.sources import Reading
from millstream.stats.progress import OnProgress
from millstream.stats.styled import Shown
from millstream.tokens import load_tokenizer


def show_chat(
    source: Any,
    row: int = 0,
    *,
    tokenizer: object,
    max_length: int | None = None,
    file_format: str | None = None,
    **keywords: Unpack[ChatKeywords],
) -> Shown:
    """Show what becomes of one row of raw conversations, counted from 0; `keywords` are those of the loader.

    >>> from millstream import BPETokenizer
    >>> tokenizer = BPETokenizer.train(["2+2? 4"], vocab_size=260)
    >>> chats = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
    >>> show_chat(chats, tokenizer=tokenizer, chat_template="chatml", add_control_tokens=True)
    rows:1  26 tokens, 2 trained (7.7 %)
    ── 0 user
    <|im_start|>user
    2+2?<|im_end|>
    ── 1 assistant
    <|im_start|>assistant
    ⟦4<|im_end|>⟧
    <BLANKLINE>
    """
    settings = replace(prepared_chat(keywords, tokenizer, max_length), strict=False)
    found = RawSettings(reading={"format": file_format}).found(source)
    encoder = settings.encoder(load_tokenizer(tokenizer))
    return show_raw_row(found, Reading(whole_rows=True), row, encoder, settings)


def lint(
    source: Any,
    *,
    tokenizer: object = None,
    max_length: int | None = None,
    file_format: str | None = None,
    progress: OnProgress | None = None,
    **keywords: Unpack[ChatKeywords],
) -> LintReport:
    """Say what is wrong with files of conversations, before a model learns it; `keywords` are those of the loader.

    Rows that cannot be used, masks that learn nothing or everything, stop tokens that are not learned, duplicates,
    rows that are too long, and more: each in plain words, with counts, examples and what to do. Without a tokenizer
    only what the rows say is looked at. `report.ok` is false if there is an error; `print(report)` shows it all.

    >>> chats = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
    >>> report = lint(chats + chats + [{"messages": []}])
    >>> for finding in report.findings:
    ...     print(finding.severity, finding.kind, finding.examples)
    error empty conversation ('rows:3: messages has no messages',)
    warning duplicate ('rows:2: the same as rows:1',)
    """
    if tokenizer is None:
        settings = chat_settings(keywords, None, max_length)
    else:
        settings = prepared_chat(keywords, tokenizer, max_length)
    found = RawSettings(reading={"format": file_format}).found(source)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    return lint_files(found, settings, loaded, progress or _nobody)


def _nobody(progress: object) -> None:
    """Nobody asked how far it is."""
