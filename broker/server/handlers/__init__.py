"""One module per API; each decides the answer to one kind of request."""
