"""The command line: one table of commands, each with its options, its checks and its run.

Uses all other rooms. Start with `cli`.
"""
