"""The transaction coordinator: which producer owns a transactional id, what its transaction writes to, and
how it ends, kept in `__transaction_state`.

`machine` decides, `log_codec` writes and reads what must survive, `coordinator` drives them on the event
loop, `markers` has the ends written into the partitions. A transactional id lives on one partition of the
topic and moves with that partition's leader.
"""
