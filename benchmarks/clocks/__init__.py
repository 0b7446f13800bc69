"""Hours and ages at which pages change.

What is learned of real hosts, and what it costs where there is nothing to learn.
"""
