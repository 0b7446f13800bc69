"""The whole job: its time and memory, against its own kernels and a query, and what a cluster sees of it."""
