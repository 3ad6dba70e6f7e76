"""`jsync top`: streams and consumers by rate, lag and redeliveries, live.

engine    rates from measurements, and the state that keys change (pure)
sampler   requests the counts, on another thread
screen    draws the state
command   connects the parts, and the keyboard
"""
