"""The network side of a node: connections, dispatch of requests, and one handler module per API."""
