"""A mesh on paper: bandwidth, lag and catch-up under assumed rates, link sizes and outages. Pure."""
