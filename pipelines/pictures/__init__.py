"""Pictures of experiments. Needs the extra `plots`."""
