"""Megatron numbers ranks and names their groups; a grid of the same sizes says the same."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from millstream import Topology

GROUPS = """
import itertools, json
from megatron.core.parallel_state import RankGenerator
for tp, cp, dp, pp in itertools.product((1, 2, 3), repeat=4):
    ranks = RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order="tp-cp-ep-dp-pp")
    print(json.dumps([ranks.get_ranks("tp-cp-pp"), ranks.get_ranks("dp")]))
"""


@pytest.mark.oracle
def test_a_grid_has_megatrons_groups() -> None:
    told = subprocess.run([sys.executable, "-c", GROUPS], check=True, capture_output=True, text=True)

    for (tp, cp, dp, pp), line in zip(itertools.product((1, 2, 3), repeat=4), told.stdout.splitlines(), strict=True):
        topology = Topology.grid(pipeline=pp, data=dp, context=cp, tensor=tp)
        same_model, same_place = json.loads(line)
        assert sorted(map(sorted, topology.groups)) == sorted(map(sorted, same_model))
        for group in same_place:
            assert [topology.data_rank(rank) for rank in group] == list(range(dp))
