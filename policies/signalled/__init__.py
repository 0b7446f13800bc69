"""When to crawl a page whose changes are announced by noisy signals: thresholds of its clock, rates, values.

Uses `numerics` and `objectives`. Start with `value` and `pages`; `block` is what the search sees of them.
"""
