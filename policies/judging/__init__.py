"""What was predicted for crawls against what they found, and forecasts that learn from it.

Uses `numerics`, `clocks`, `history`, `estimation` and `objectives`. Start with `calibration`.
"""
