"""What a topology file says: its model, the loader with line numbers, and the checks across its parts."""
