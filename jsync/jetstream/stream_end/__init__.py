"""The end of a stream: the one definition of "up to now".

A read to the end reads up to a sequence, which the leader of the stream reports. "Nothing is
pending" proves nothing. It comes from the server that has the consumer, which may be a replica
behind the leader, and while an entry is being replaced, servers count one too few.

1. When a read begins, get the end with `stream_end`, or with the steps of `end_steps`.
2. A message at or after that sequence completes the read.
3. If the server has nothing more before that, ask the leader with `stream_pending`, or with the
   steps of `pending_steps`. `first` is None if everything up to the end was read or is gone:
   deleted, purged, expired, replaced, or of a subject that the filter leaves out. Otherwise the
   server of the consumer is behind. Wait for it, or create another consumer.

An answer counts only if it comes from the leader, and if most servers of the stream have
answered that leader recently. Other servers answer, too: any replica while there is no leader,
and a leader that was frozen or cut off, until it learns of its successor. An outdated answer
raises `JetStreamUnavailableError`, and the request must be repeated.

A mirror has its own leader and its own end. Messages that it has not copied yet are after its
end.
"""
