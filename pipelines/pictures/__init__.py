"""Pictures of experiments. Needs the extra `plots`.

Uses no other room. Start with `plots`.
"""
