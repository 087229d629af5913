"""What filters and transforms do to single records. Pure, but for the import of a route's own functions."""
