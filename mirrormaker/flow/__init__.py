"""Copying: which topics go where, how partitions are shared out, the copy machine, and its driver."""
