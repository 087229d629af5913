"""Bytes to messages and back: requests, responses and stored values, each declared once as a table."""
