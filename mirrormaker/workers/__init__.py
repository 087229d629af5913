"""Worker processes of a daemon: what runs them, and how they are told of as one."""
