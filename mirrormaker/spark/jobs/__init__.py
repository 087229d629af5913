"""Jobs on the aggregate that ship with the project."""
