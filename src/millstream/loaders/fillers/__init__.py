"""Fillers: what makes the steps of a run, for each kind of data."""
