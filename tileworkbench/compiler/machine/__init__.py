"""What each architecture has, as tables: warps, shared memory, matrix instructions, copy engines.

Lowering asks a `Machine` and never the name of an architecture, so a new one is a row. What runs
PTX and simulates hardware keeps tables of its own.
"""
