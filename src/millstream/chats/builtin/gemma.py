"""The formats of Gemma 1 to 3."""

from __future__ import annotations

from millstream.chats.builtin.sheet import Sheet

START, END = "<start_of_turn>", "<end_of_turn>"


def gemma(sheet: Sheet) -> None:
    """Gemma 1 and 2: user and model, nothing else."""
    sheet.put(sheet.bos)
    sheet.alternate(0)
    _turns(sheet, 0)


def gemma3(sheet: Sheet) -> None:
    """Gemma 3: the system message opens the first question."""
    sheet.put(sheet.bos)
    first = int(sheet.system_first())
    sheet.alternate(first)
    _turns(sheet, first)


def _turns(sheet: Sheet, first: int) -> None:
    for at, message in enumerate(sheet.messages[first:], first):
        sheet.put(f"{START}{'model' if message.role == 'assistant' else message.role}\n", at)
        if at == 1 == first:
            sheet.say(sheet.messages[0].content, 0)
            sheet.put("\n\n", 0)
        sheet.say(message.content.strip(), at)
        sheet.end(END, at)
        sheet.put("\n", at)
    if sheet.asked:
        sheet.put(f"{START}model\n")
