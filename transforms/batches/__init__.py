"""How rows look and travel: schemas, columns, times, URLs, hashes, coders.

Start with `schemas`; `columns` and `times` read whatever type a file has.
"""
