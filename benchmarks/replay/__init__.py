"""Policies and whole jobs on real and drawn histories.

The tables of docs/backtest.md, docs/dynamics.md and docs/on_request.md. Start in `backtest_histories`, which
also has the histories, their windows and budgets.
"""
