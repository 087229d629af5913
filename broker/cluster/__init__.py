"""The cluster: its image, placement of replicas, the controller and its election, registration of nodes,
topics.
"""
