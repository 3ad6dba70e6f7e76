"""Key-value buckets (ADR-8): streams of which the last message of a subject is a value.

The parts, lowest first:

    codecs      keys and values in another form (ADR-54); pure
    aesgcm      values encrypted, each for its key alone
    engine      names, subjects, entries, and what a message of a bucket means; pure
    config      the configuration of a bucket, as the stream that it is; pure
    status      what a bucket holds and how it is set up; pure
    watch       the changes of keys, one by one
    markers     delete markers removed
    live        a local copy of a bucket that its changes keep current
    lease       how long a holder believes in a lock; pure
    lock        a key that its holder renews
    election    a lock that a candidate waits for, again and again
    bucket      what the user has: puts, gets, history, keys
    manager     buckets created, changed, found and deleted: a part of `JetStream`
"""
