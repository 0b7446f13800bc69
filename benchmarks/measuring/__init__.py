"""What benchmarks share: figures and their table, processor time, real histories and how they were polled."""
