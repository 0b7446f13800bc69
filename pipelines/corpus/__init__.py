"""Made-up corpora, for samples, tests and benchmarks.

Start with `synthesize`.
"""
