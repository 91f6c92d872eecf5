"""Chunks of raw files -> parts: the tokens and origins of their documents, and everything that was left out.

A part depends on its chunk and on the settings alone. So parts can be made by any number of workers, kept in a cache,
found again by a run that goes on, or made on another machine: the store that is written from them is the same.
"""
