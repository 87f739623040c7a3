"""What a pipelined loop does, and when: read off the lowered program, with predicted times.

`leaves` says what a statement is, `walk` lists what each group of threads does, `times` says when,
`model` is the result as plain data, and `chrome` writes it as a file that Perfetto opens.
"""
