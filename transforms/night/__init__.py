"""The stages of a night, in order: folding, learning, solving, scheduling, commit.

Uses `intake` and the rooms below. Start with `folding`, `learning`, `solving`, `scheduling` and `commit`; the
others serve one of these.
"""
