"""Policies compared: backtests, frontiers, simulations, figures of papers.

Uses `pictures`, `command`, `nightly` and `webpage`. Start with `experiment`, which they share, and
`backtest`.
"""
