"""What a running daemon serves by HTTP: its state, its metrics, and changes to what it does."""
