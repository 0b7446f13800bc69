"""One night on any runner: its options, its wiring, its report.

Uses `command`. Start with `nightly`, the whole job on a page; `options` declares what it can be told.
"""
