"""Groups of the consumer protocol (KIP-848): the coordinator computes who gets what, members follow.

`group` decides, `image` is what the log says, `records` are the steps between two images. A group has an
epoch, which grows with every change of members, subscriptions or topics; a target assignment made for an
epoch; and members, each of which walks from what it has to its target: it first gives up what is no longer
its own, then gets what others have given up.
"""
