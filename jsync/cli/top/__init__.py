"""`jsync top`: streams and consumers by rate, lag and redeliveries, live.

The parts, lowest first:

    engine   rates from measurements, and the state that keys change (pure)
    sampler  requests the counts, on another thread
    screen   draws the state
    command  connects these, and the keyboard
"""
