"""Rows of fine-tuning files -> conversations, whatever format they were written in."""
