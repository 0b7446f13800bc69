"""Crawls that requests trigger: whether a page that is asked for is crawled, and what comes of such rules.

Uses `numerics`, `history`, `estimation`, `predictors` and `simulation`. Start with `value`, which says what
a crawl at a request is worth; `strategies` has the rules, those of Han et al. 2019 among them; `networks`
what a network of theirs is told; `replay` follows a rule through a log of requests; `savings` compares
them. `pairs` says how bursty requests are, and `sharing` what part of a budget crawls at requests should
have.
"""
