"""Policies compared: backtests, frontiers, simulations, figures of papers.

Uses `nightly` and `pictures`. Start with `experiment`, which they share, and `backtest`.
"""
