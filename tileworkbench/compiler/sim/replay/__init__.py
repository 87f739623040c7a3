"""Time travel: what one block did, statement by statement, in both directions.

`recorder` watches a run and keeps what each statement changed, `memory` tells what that was, and
`model` is the result: plain data that gives the contents of all memory after any step.
"""
