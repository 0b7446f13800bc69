"""From what is kept of pages to rates: the estimator, priors of pages and groups, request rates, predictions.

Uses `numerics` and `history`. Start with `estimators`, then `prior`.
"""
