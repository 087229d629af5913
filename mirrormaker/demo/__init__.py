"""The main job end to end on real data: flights come in at three airports, and Spark computes on them.

Clusters and mirrors run as `mirrormaker up` runs them for anyone, in processes of their own under a temporary
folder. The demo is a client like any other: it produces, watches offsets, loads the aggregate into Spark, and
compares with the same figures computed straight from the CSV.
"""

from mirrormaker.demo.run import run_demo

__all__ = ["run_demo"]
