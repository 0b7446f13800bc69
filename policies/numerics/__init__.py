"""Special functions, sums and scrambled counters that know nothing of crawling.

Uses NumPy and SciPy alone. Start with `special`: P(2, x) and its inverse, on which every crawl rate rests.
"""
