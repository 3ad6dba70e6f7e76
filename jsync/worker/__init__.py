"""Workers: handlers of consumers as a program that runs until it is stopped.

The parts, lowest first:

    routes        the handlers of a worker, and their settings (pure)
    metrics       counts of processes as data and as Prometheus text (pure)
    sources       the messages of a handler: from a consumer, or a member of a group
    runner        calls of handlers: acks, retries, time limits, counts
    dead_letters  dead letters at `max_deliver`, and the replay of all
    http          health and metrics over HTTP
    logs          logs as lines of JSON
    process       one process: signals, and reports to its supervisor
    process_pool  decides which processes run, and when they restart (pure)
    supervisor    several processes
    reload        changes of files, after which processes are replaced
    worker        `Worker` and `RunningWorker`
"""
