"""Workers: handlers of consumers as a program that runs until it is stopped.

handlers    the arguments of a handler, and its settings (pure)
calls       calls of handlers: acks, retries, time limits, counts
worker      `Worker` and `RunningWorker`
process     one process: signals, and reports to its supervisor
sources     the messages of a handler: from a consumer, or a member of a group
dead        dead letters at `max_deliver`, and their replay
engine      decides which processes run, and when they restart (pure)
supervisor  several processes
reload      replaces processes after changes of files
figures     counts of processes as Prometheus text (pure)
http        health and metrics over HTTP
logs        logs as lines of JSON
"""
