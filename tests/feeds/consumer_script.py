"""Run by test_crash.py and killed by it: receives rollouts, and says which, and at which place that leaves it.

Arguments, as JSON: where, the settings of the feed, the cursor to begin at or null.
"""

from __future__ import annotations

import json
import sys

from feeds.transports import numbers_of
from millstream.feeds import open_feed


def main() -> None:
    where, settings, cursor = json.loads(sys.argv[1])
    feed = open_feed(where, **settings)
    if cursor is not None:
        feed.seek(cursor)
    while True:
        for arrival in feed.receive(timeout_s=1):
            print(json.dumps([numbers_of([arrival]), arrival.cursor]), flush=True)


if __name__ == "__main__":
    main()
