"""The chat formats that have a name, as functions that put down pieces: one file for each family.

sheet.py    what a format writes on
format.py   what a format is, and what it refuses
table.py    all of them, by name
"""
