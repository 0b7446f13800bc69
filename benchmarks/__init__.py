"""Speed, memory and what parts of the job are worth, measured. Nothing in `tests` asserts a time.

Rooms are called after those of the layers; `measuring` is what they share. `python -m benchmarks` lists all.
"""
