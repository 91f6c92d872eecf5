"""Millstream: training data at the speed of memory."""
