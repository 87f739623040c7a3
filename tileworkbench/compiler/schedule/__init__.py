"""What happens before what, and what follows from it for memory and barriers.

`order` is the relation: what statements order, and for whom. On it rest

- `hazards`: pairs of accesses that need an order and have none; `barriers`: where to put barriers
  so that none is left;
- `lifetimes`: when shared buffers are in use, and which of them can have the same bytes;
- `pipelines`: the same relation between the iterations of a pipelined loop: which schedules keep
  dependences (`user_schedules` refuses others), how many versions of a buffer live at once
  (`versions` are rings of them), and, by `completion`, what each statement waits for:
  `commit_groups` for copies that threads start.

`thread_accesses` and `thread_conflicts` say which thread touches which element, `arrivals` which
memory barriers order anything.
"""
