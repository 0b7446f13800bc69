"""What every command shares: exit codes, messages, interrupts, options of inputs, the folder that it writes
to.

Uses `pictures`. Start with `errors` and `exit_codes`.
"""
