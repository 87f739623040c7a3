"""Passes: pure functions from a Program to a Program, one module each; `pipeline` holds the list
per target.
"""
