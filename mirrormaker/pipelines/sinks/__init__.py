"""What the batches of a pipeline are written into: each kind in a module of its own, every batch once."""
