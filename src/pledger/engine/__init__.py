"""Drives machines: transitions, group commit, timers, inbox, activities, leases.

Clock, store and randomness are handed in.
"""
