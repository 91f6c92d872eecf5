"""Rewards -> advantages, returns and weights: pure functions over ragged arrays, in float64."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "compute": "Advantages compute_advantages",
        "correction": "correction_weights",
        "estimators": "Estimate Scored find_estimator register_estimator",
        "groups": "GroupedRewards group_codes",
        "masked": "masked_counts",
        "rewards": "adapt_beta",
        "settings": "AdvantageSettings Overlong is_number",
    },
)
