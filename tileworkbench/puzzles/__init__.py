"""Puzzles: kernels to complete, judged in the simulator and against a numpy specification.

A puzzle is a file in `tasks/`: its text, the specification, a skeleton, three hints, a solution,
and wrong answers, which a test holds the judge against. `%%tile puzzle 03` judges a cell.
"""
