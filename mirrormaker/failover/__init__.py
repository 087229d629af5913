"""Failover groups switched from one side to the other and back: rehearsed, fenced, and taken up again."""
