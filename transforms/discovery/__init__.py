"""The discovery job's stages: links seen to new targets, sums of sources, and when to refresh these.

tables       columns between stages and of the state
reading      files to visits by source, and targets by target
targets      what is found: each target once
visiting     visits of a shard, one after the other, and what links did between them
sources      sums of sources, carried from night to night; start here
learning     what all sources together tell
planning     one price for all sources, and instants
commit       the manifest

Uses `batches`, `files`, `rows`, `shards`, `kept`, `intake` and `night`.
"""
