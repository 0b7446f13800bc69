"""Learning from change-indicating signals (sitemaps, pings): how far each source is trusted, page by page.

Uses `numerics`, `history` and `estimation`. Start with `counts` and `fold`, then `estimation`; `trust` says
what the parameters mean.
"""
