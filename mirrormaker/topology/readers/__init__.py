"""What each section of a topology file may hold: the keys of the file, and their kinds, for the dataclasses
of the model.
"""
