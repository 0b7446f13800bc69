"""What was predicted for crawls against what they found, and forecasts that learn from it.

Uses `estimation`, `signals` and `optimum`. Start with `calibration`.
"""
