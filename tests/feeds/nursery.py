"""A process that makes producers and trainers to be killed: it has loaded everything, so each is there at once.

It reads JSON lines, [what, file, arguments], starts that in a child whose words go into the file, and says its number.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from feeds.transports import numbers_of, record
from millstream.feeds import Gather, open_feed, open_source


def produce(where: str, settings: dict[str, Any], first: int) -> None:
    """Put rollouts from a number on, and say which of them are flushed."""
    source = open_source(where, gather=Gather(most_bytes=3000, seconds=0.01), **settings)
    for number in range(first, 10**6):
        source.put(record(number))
        if number % 5 == 4:
            source.flush()
            print(number, flush=True)


def consume(where: str, settings: dict[str, Any], cursor: Any) -> None:
    """Receive rollouts, and say which, and at which place that leaves it."""
    feed = open_feed(where, **settings)
    if cursor is not None:
        feed.seek(cursor)
    while True:
        for arrival in feed.receive(timeout_s=1):
            print(json.dumps([numbers_of([arrival]), arrival.cursor]), flush=True)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended children
    for line in sys.stdin:
        what, file, arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), sys.stdout.fileno())
            {"produce": produce, "consume": consume}[what](*arguments)
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
