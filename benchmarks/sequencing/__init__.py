"""What it costs to say which page is crawled in which slot, in a night and in the simulator."""
