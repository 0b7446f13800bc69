"""From visits to rates of change: what the fold and the estimate cost, and how well they predict.

Start in `replay_estimators`.
"""
