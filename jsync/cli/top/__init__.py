"""`jsync top`: streams and consumers by rate, lag and redeliveries, live.

engine    rates from measurements, and the state that keys change: pure
sampler   asks the server, on a thread of its own
screen    draws the state
keys      the keyboard of a terminal
command   puts them together
"""
