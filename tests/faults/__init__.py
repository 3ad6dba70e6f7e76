"""Fault campaigns: one for each part of jsync, with a model as the judge.

A campaign runs clients, faults and other writers beside each other for some seconds, and then
compares all that was observed with a model. `campaign.py` has its bounds.
"""
