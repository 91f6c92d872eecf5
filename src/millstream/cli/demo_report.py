"""What the demo says at the end."""

from __future__ import annotations

from typing import Any

from millstream.api import PrepareReport
from millstream.cli import show


def print_report(facts: dict[str, Any], corpus: PrepareReport, losses: list[float], note: str) -> None:
    """Print the short report for people."""
    explained = facts["explained"]
    span = f"tokens {explained['start']:,}-{explained['stop']:,}"
    rows = [
        ("text", f"{show.counted(corpus.files, 'file')}, {show.size(corpus.bytes)}: {facts['text']}"),
        ("note", note),
        ("store", f"{corpus.path}  ({corpus.tokens:,} tokens of {corpus.tokenizer}, {corpus.dtype})"),
        ("prepared in", f"{show.duration(corpus.seconds)}, {show.count(corpus.tokens_per_second)} tokens/s"),
        (
            "trained on",
            f"{show.count(facts['trained_tokens'])} tokens in {show.duration(facts['train_seconds'])}",
        ),
        ("waited for data", f"{facts['wait_fraction']:.2%} of that time"),
        ("loader alone", f"{show.count(facts['loader_tokens_per_second'])} tokens/s"),
        ("loss", f"{losses[0]:.2f} {show.sparkline(losses, 40)} {losses[-1]:.2f}"),
        (
            "on unseen files",
            f"{facts['held_out_before']:.2f} -> {facts['held_out_after']:.2f}  "
            f"(knowing only how frequent tokens are: {facts['unigram']:.2f})",
        ),
        (
            f"{_mark(explained['equal'])} explained",
            f"step {explained['step']} row {explained['row']} is {explained['file']} {span}",
        ),
        ("", f"  {explained['text']}"),
        (
            f"{_mark(facts['resumed_equal'])} resumed",
            "stopped, started again: the next batch is the same, bit for bit",
        ),
        ("in all", show.duration(facts["seconds"])),
    ]
    print(show.table(rows))
    size = "--chunk-size 128 --batch-size 32"
    print(f"""
try next:
  millstream inspect {corpus.path}
  millstream explain {corpus.path} --step 100 {size}
  millstream bench {corpus.path} --chunk-size 1024
  millstream prepare your-texts/ your-corpus --tokenizer bpe""")


def _mark(good: object) -> str:
    return "✓" if good else "✗"
