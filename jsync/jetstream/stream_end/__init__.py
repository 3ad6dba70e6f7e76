"""The end of a stream: the one meaning of "up to now".

A read to the end reads up to a sequence, and the leader of the stream says which one. "Nothing
is pending" proves nothing: it is the word of the server that has the consumer, which may be a
replica behind the leader, and servers count an entry that is being replaced one too few.

1. When a read begins, ask for the end: `stream_end`, or the steps of `ask_end`.
2. A message at that sequence, or behind it, completes the read.
3. If the server has nothing more before that, ask the leader for the rest: `stream_rest`, or the
   steps of `ask_rest`. `first` is None if everything up to the end was read or is gone: deleted,
   purged, expired, replaced, or of a subject that the filter leaves out. Otherwise the server of
   the consumer is behind. Wait for it, or leave it for another consumer.

An answer counts only if the leader gave it, and if most servers of the stream have answered that
leader lately. Others answer too: any replica while there is no leader, and a leader that was
frozen or cut off, until it learns of its successor. An old word raises
`JetStreamUnavailableError`, and the question has to be asked again.

A mirror has a leader and an end of its own. What it has not copied yet is behind its end.
"""
