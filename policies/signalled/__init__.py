"""When to crawl a page whose changes are announced by noisy signals: thresholds of its clock, rates, values.

Uses `numerics` and `objectives`. Start with `value` and `pages`; `first_signal` has the closed forms of most
pages, `block` is what the search sees of them.
"""
