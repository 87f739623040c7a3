"""What one block did, statement by statement, to be looked at forwards and backwards.

`recorder` watches a run and keeps what each statement changed, `memory` tells what that was, and
`model` is the result: plain data that gives the contents of all memory after any step.
"""
