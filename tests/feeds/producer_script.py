"""Run by test_crash.py and killed by it: puts rollouts from `first` on, and says which of them are flushed.

Arguments, as JSON: where, the settings of the source, the first number.
"""

from __future__ import annotations

import json
import sys

from feeds.transports import record
from millstream.feeds import Gather, open_source


def main() -> None:
    where, settings, first = json.loads(sys.argv[1])
    source = open_source(where, gather=Gather(most_bytes=3000, seconds=0.01), **settings)
    for number in range(first, 10**6):
        source.put(record(number))
        if number % 5 == 4:
            source.flush()
            print(number, flush=True)


if __name__ == "__main__":
    main()
