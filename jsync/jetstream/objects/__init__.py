"""Object stores (ADR-20): files in streams, cut into chunks.

The parts, lowest first:

    engine         names, subjects, infos, digests, and the meaning of a store's messages (pure)
    chunk_index    the sequences of an object's chunks in the stream (pure)
    orphans        messages that are still in use, and those that a crash has left (pure)
    config         the configuration of a store, and of the stream behind it (pure)
    status         the size and the configuration of a store (pure)
    watch          the changes of objects, one by one
    repository     infos requested, stored and removed
    rename_marks   the mark of a rename in progress, and how other programs handle it
    rename         a rename, step by step
    upload_digest  the digest of a put, computed on another thread during the upload
    upload         a put in progress: first its chunks, then its info
    binary_file    the base of both kinds of files
    writer         an object as a binary file to write
    chunk_reader   the chunks of an object, in order, from any chunk on
    reader         an object as a binary file to read, and the check of its digest
    repair         the remains of crashes found and removed
    store          the API for the user: puts, gets, links, lists
    manager        stores created, changed, found and deleted: a part of `JetStream`
"""
