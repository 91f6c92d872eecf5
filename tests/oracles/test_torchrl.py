"""torchrl's generalised advantages are ours: several episodes in a row, rollouts cut off, tools between tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advantages.compared import close
from millstream.advantages.returns import gae
from oracles.asked import asked

pytestmark = pytest.mark.oracle
torch = asked("torch")
functional = asked("torchrl.objectives.value.functional")
ROLLOUTS = 10_000


def test_each_of_many_rollouts_is_theirs_without_the_tokens_of_tools() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, ROLLOUTS)
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    values, rewards = rng.normal(size=total), rng.normal(size=total)
    mask, done = rng.random(total) < 0.8, rng.random(total) < 0.1
    done &= mask
    bootstrap = np.where(rng.random(ROLLOUTS) < 0.5, rng.normal(size=ROLLOUTS), 0)
    given: dict[str, Any] = {"token_rewards": rewards, "done": done, "bootstrap": bootstrap}
    ours, returns = gae(np.zeros(ROLLOUTS), values, mask, ends, gamma=0.97, lam=0.9, **given)
    for row, (start, end) in enumerate(zip(ends - lengths, ends, strict=True)):
        places = start + np.flatnonzero(mask[start:end])
        if not len(places):
            continue
        following = np.append(values[places[1:]], bootstrap[row])
        columns = [torch.from_numpy(each[:, None]) for each in (values[places], following, rewards[places])]
        ended = torch.from_numpy(done[places][:, None])
        theirs, targets = functional.generalized_advantage_estimate(0.97, 0.9, *columns, ended)
        assert close(ours[places], theirs[:, 0]), row
        assert close(returns[places], targets[:, 0]), row
    assert not ours[~mask].any()
