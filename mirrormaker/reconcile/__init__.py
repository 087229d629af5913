"""Making the clusters match what the topology asks for: look, compare, repair."""
