"""One module per API, request and response together, and one per family of stored values."""
