"""Write tests/chats/golden/templates.json: what the originals make of a few conversations.

It runs where `make oracles` runs. Renderings with tools are kept as digests, since most of their text is the schemas.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from chats.talk import as_row
from oracles.chats import ORIGINALS, rendered

GOLDEN = Path(__file__).parent.parent / "chats/golden/templates.json"
EACH = 4


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
        for conversation, asked in original.conversations(9, 4 * EACH):
            if len(rows) == EACH:
                break
            text, _ = rendered(original, conversation, asked=asked)
            kept = {"digest": hashlib.sha256(text.encode()).hexdigest()} if conversation.tools else {"text": text}
            rows.append({**as_row(conversation), "asked": asked, **kept})
    lists = (f"{json.dumps(key)}: [\n{_lines(rows)}\n]" for key, rows in made.items())
    GOLDEN.write_text("{\n" + ",\n".join(lists) + "\n}\n", "utf-8")


def _lines(rows: list[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


if __name__ == "__main__":
    main()
