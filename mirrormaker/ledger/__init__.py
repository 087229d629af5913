"""What of each source partition is where at the destination: written down as it is copied, and looked up."""
