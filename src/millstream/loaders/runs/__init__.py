"""Runs: where a loader stands in its data, for each kind of data."""
