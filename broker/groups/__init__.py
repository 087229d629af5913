"""The group coordinator: membership of consumer groups and the offsets they committed, kept in
`__consumer_offsets`.

`membership` and `offsets` decide, `log_codec` writes and reads what must survive, `coordinator` drives them
on the event loop. A group lives on one partition of the topic and moves with that partition's leader.
"""
