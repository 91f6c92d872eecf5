"""Rewards -> advantages, returns and weights: pure functions over ragged arrays, in float64."""
