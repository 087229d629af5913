"""Whether what is at the destinations of routes is what their sources had: counted, compared, and told."""
