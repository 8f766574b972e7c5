"""What has happened: events, payloads, failures, transitions, and the fold from them to the state of a run.

Pure: nothing here does I/O, reads a clock or draws a random number.
"""
