"""Kinds of values that a topology file may hold: each reads a node of the document, says in JSON Schema what
is allowed, and in words what it is.
"""
