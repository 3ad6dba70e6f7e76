"""Workers: handlers of consumers as a program that runs for ever.

handlers    what a handler takes, and how it is set up; pure
calls       calls of handlers: acks, retries, time limits, counts
worker      `Worker` and `RunningWorker`
process     one process: signals, and reports to its supervisor
engine      which processes run, and when they begin again; pure
supervisor  several processes
figures     counts of processes as Prometheus text; pure
http        health and metrics over HTTP
logs        logs as lines of JSON
"""
