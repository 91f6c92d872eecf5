"""Write tests/chats/golden/templates.json: what the originals make of a few conversations.

It runs where `make oracles` runs. Long renderings are kept as digests.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from chats.talk import as_row, everything
from oracles.chats import ORIGINALS, rendered

GOLDEN = Path(__file__).parent.parent / "chats/golden/templates.json"
EACH = 3
LONG = 600


def main() -> None:
    made: dict[str, list[dict[str, Any]]] = {}
    for original in ORIGINALS:
        settings = {
            "variant": original.variant,
            "history_reasoning": original.history,
            "bos_token": original.tokens[0],
            "eos_token": original.tokens[1],
        }
        rows = made.setdefault(f"{original.name} {json.dumps(settings)}", [])
        if rows:
            continue
        chosen = list(original.conversations(9, 4 * EACH))[:EACH]
        for conversation, asked in [(each, True) for each in everything(original.form)] + chosen:
            text, _ = rendered(original, conversation, asked=asked)
            kept = {"digest": hashlib.sha256(text.encode()).hexdigest()} if len(text) > LONG else {"text": text}
            rows.append({**as_row(conversation), "asked": asked, **kept})
    lists = (f"{json.dumps(key)}: [\n{_lines(rows)}\n]" for key, rows in made.items())
    GOLDEN.write_text("{\n" + ",\n".join(lists) + "\n}\n", "utf-8")


def _lines(rows: list[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


if __name__ == "__main__":
    main()
