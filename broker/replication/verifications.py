"""What a leader is asking a transaction's coordinator about one partition at the moment.

The answer says that the transaction is open. If its marker comes in between, a record appended on the
strength of the answer would open the transaction again, and nobody would ever end it: so a question is spoilt
by any marker of its producer, and by a change of roles. Owned by the event loop.
"""

from __future__ import annotations


class Question:
    """Whether a producer may begin its transaction here."""

    __slots__ = ("is_spoilt", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.is_spoilt = False
        """Whether the answer no longer counts."""


class Verifications:
    """Those of one partition."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: list[Question] = []

    def begin(self, producer_id: int) -> Question:
        """The coordinator is about to be asked; `end` has to follow."""
        question = Question(producer_id)
        self._open.append(question)
        return question

    def end(self, question: Question) -> None:
        """What the answer allowed has been done."""
        self._open.remove(question)

    def marked(self, producer_id: int) -> None:
        """A marker of the producer is in the log."""
        for question in self._open:
            if question.producer_id == producer_id:
                question.is_spoilt = True

    def spoil(self) -> None:
        """Others may have led the partition meanwhile."""
        for question in self._open:
            question.is_spoilt = True
