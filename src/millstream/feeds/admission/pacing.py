"""How many more groups those who make rollouts may begin, so that nothing grows stale while it waits its turn."""

from __future__ import annotations

from millstream.feeds.admission.rules import AdmissionRules


def groups_ahead(rules: AdmissionRules) -> int | None:
    """How many groups may be begun and not trained on; None: any number.

    >>> groups_ahead(AdmissionRules(groups_per_batch=4, max_staleness=1))
    8
    """
    if rules.groups_ahead is not None or rules.max_staleness is None:
        return rules.groups_ahead
    groups = rules.groups_per_batch
    if groups is None and rules.known_size is not None:
        groups = -(-(rules.rollouts_per_batch or 1) // rules.known_size)
    return None if groups is None else (1 + rules.max_staleness) * groups


def groups_wanted(rules: AdmissionRules, held: int) -> int | None:
    """How many more may be begun, when some are held here; None: any number.

    >>> rules = AdmissionRules(groups_per_batch=4, max_staleness=1)
    >>> groups_wanted(rules, held=3), groups_wanted(rules, held=9)
    (5, 0)
    """
    ahead = groups_ahead(rules)
    return None if ahead is None else max(0, ahead - held)
