"""ZooKeeper: the port that the rest sees, znode paths and codecs, and the only kazoo adapter."""
