"""From a Python function to a Program: its source is rewritten, run once with symbolic arguments,
and recorded.
"""
