"""What the multiplier search costs, and to tell why rates moved. Start in `bench_search`."""
