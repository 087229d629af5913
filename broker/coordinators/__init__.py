"""What coordinators have in common whose state lives in a topic: where a key lives, the way to the topic's
log, and the writer of one of its partitions.
"""
