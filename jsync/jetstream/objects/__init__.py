"""Object stores (ADR-20): files in streams, cut into chunks.

The parts, lowest first:

    engine      names, subjects, infos, digests, and what a message of a store means; pure
    places      where in the stream the chunks of an object are; pure
    config      the configuration of a store, as the stream that it is; pure
    status      what a store holds and how it is set up; pure
    driver      infos asked for, stored and removed
    hashing     the digest of a put, computed beside the sending
    upload      a put on its way: chunks out, then the info
    download    the chunks of an object, from any one on
    files       objects as binary files
    watch       the changes of objects, one by one
    check       what crashes have left, found and removed
    store       what the user has: puts, gets, links, lists
    manager     stores created, changed, found and deleted: a part of `JetStream`
"""
