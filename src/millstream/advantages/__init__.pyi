from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.advantages.compute import Advantages as Advantages
    from millstream.advantages.compute import compute_advantages as compute_advantages
    from millstream.advantages.correction import correction_weights as correction_weights
    from millstream.advantages.estimators import Estimate as Estimate
    from millstream.advantages.estimators import Scored as Scored
    from millstream.advantages.estimators import find_estimator as find_estimator
    from millstream.advantages.estimators import register_estimator as register_estimator
    from millstream.advantages.groups import GroupedRewards as GroupedRewards
    from millstream.advantages.groups import group_codes as group_codes
    from millstream.advantages.masked import masked_counts as masked_counts
    from millstream.advantages.rewards import adapt_beta as adapt_beta
    from millstream.advantages.settings import AdvantageSettings as AdvantageSettings
    from millstream.advantages.settings import Overlong as Overlong
    from millstream.advantages.settings import is_number as is_number

__all__ = [
    "AdvantageSettings",
    "Advantages",
    "Estimate",
    "GroupedRewards",
    "Overlong",
    "Scored",
    "adapt_beta",
    "compute_advantages",
    "correction_weights",
    "find_estimator",
    "group_codes",
    "is_number",
    "masked_counts",
    "register_estimator",
]
