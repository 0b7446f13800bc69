"""Freshness with and without change-indicating signals.

Start in `replay_signals`; `signal_modes` has what it compares.
"""
