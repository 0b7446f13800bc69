"""Options of the commands that compare policies, as words of a command line.

Apart from the jobs themselves, so that a shell completes them, and help is there, without Beam.
"""
