"""Whether live training is exact when its processes are killed (SIGKILL): what was lost, and what came twice.

    python benchmarks/kills.py --kills 100 --over spool
    python benchmarks/kills.py --kills 30 --over redis

Two engines share the work on every group; a trainer goes over each rollout batch twice, and writes a checkpoint every
few steps. By turns the trainer, an engine or both are killed, at moments of all phases, and started again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "tests"))

from feeds.redis_server import RedisServer
from loaders.kills import Outcome, Siege, plan_over


def report(outcome: Outcome, seconds: float) -> None:
    """Print what became of it."""
    print(f"{sum(outcome.kills.values())} kills in {seconds:.0f} s; {outcome.groups:,} groups")
    for title, counts in (("victim", outcome.kills), ("the trainer was at", outcome.phases)):
        print(f"  {title}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    print(f"  put again and recognised: {outcome.repeated} rollouts")
    print(f"  lost: {len(outcome.lost)}   twice: {len(outcome.twice)}   journal agrees: {outcome.journaled}")
    print(f"  files left behind: {len(outcome.left)}")


def main() -> None:
    """Kill, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--over", choices=["spool", "redis", "http"], default="spool")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, server = Path(name), RedisServer(Path(name))
        if asked.over == "redis":
            server.start()
        began = time.monotonic()
        try:
            outcome = Siege(plan_over(asked.over, folder / "run", server), asked.seed).run(asked.kills)
        finally:
            server.kill()
        report(outcome, time.monotonic() - began)
    sys.exit(not outcome.exact)


if __name__ == "__main__":
    main()
