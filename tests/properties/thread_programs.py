"""Random kernels written for single threads, as source text: no races, and all threads of a warp at
an exchange, all of a block at a barrier.
"""

from __future__ import annotations

import random

HEADER = """\
@T.prim_func
def kernel(
    A: T.Tensor((2, {n}), "int32"), B: T.Tensor((2, {n}, 5), "int32"), H: T.Tensor((8,), "int32")
):
    with T.Kernel(2, threads={n}) as bx:
        tx = T.get_thread_binding()
        lane = T.get_lane_idx()
        S = T.alloc_shared(({n},), "int32")
        v = T.alloc_var("int32", init=1)
        x = T.alloc_var("int32", init=2)
        u = T.alloc_var("int32", init=3)
        mine = T.alloc_local((2,), "int32")
        mine[0] = tx
        mine[1] = 3
"""
FOOTER = """\
        B[bx, tx, 0] = v
        B[bx, tx, 1] = x
        B[bx, tx, 2] = u
        B[bx, tx, 3] = mine[0]
        B[bx, tx, 4] = mine[1]
"""
LANE, WARP, BLOCK = range(3)  # which threads are surely together


class ThreadProgram:
    """A kernel drawn from `seed`; `v`, `x` and `mine` differ between threads, `u` does not."""

    def __init__(self, seed: int, threads: int) -> None:
        self.random = random.Random(seed)
        self.threads = threads
        self.lines: list[str] = []
        self.depth = 2
        self.names = 0
        self.loops: list[str] = []
        for _ in range(self.random.randint(4, 9)):
            self.statement(BLOCK)

    @property
    def source(self) -> str:
        return "".join([HEADER.format(n=self.threads), *self.lines, FOOTER])

    def write(self, text: str) -> None:
        self.lines.append("    " * self.depth + text + "\n")

    def fresh(self, name: str) -> str:
        self.names += 1
        return f"{name}{self.names}"

    # Expressions

    def value(self, varying: bool = True, depth: int = 0) -> str:
        leaves = [str(self.random.randint(-3, 9)), "bx", "u", *self.loops]
        if varying:
            leaves += ["tx", "lane", "v", "x", f"mine[{self.random.randint(0, 1)}]", "A[bx, tx]"]
        if depth > 2 or self.random.random() < 0.35:
            return self.random.choice(leaves)
        a, b = self.value(varying, depth + 1), self.value(varying, depth + 1)
        form = self.random.choice(
            [
                *("({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} & {b})", "({a} ^ {b})"),
                *("T.max({a}, {b})", "T.min({a}, {b})", "({a} % {m})"),
                "T.if_then_else({c}, {a}, {b})",
            ]
        )
        condition = self.condition(varying) if "{c}" in form else ""
        return form.format(a=a, b=b, c=condition, m=self.random.randint(2, 7))

    def bounded(self, varying: bool = True) -> str:
        return f"T.clamp({self.value(varying)}, -1000, 1000)"

    def condition(self, varying: bool = True) -> str:
        if varying and self.random.random() < 0.3:
            return self.random.choice(["tx < 40", "tx >= 32", "lane == 0", "tx % 2 == 0"])
        sign = self.random.choice(["<", ">", "==", "!="])
        return f"{self.value(varying, 1)} {sign} {self.value(varying, 2)}"

    # Statements

    def statement(self, together: int) -> None:
        """One statement, where threads are `together`."""
        kinds = [self.assign, self.assign, self.name, self.count]
        if self.depth < 6:
            kinds += [self.branch, self.branch, self.loop, self.repeat]
        if together >= WARP:
            kinds += [self.shuffle, self.vote]
        if together == BLOCK:
            kinds += [self.common, self.share, self.vote_of_block]
        self.random.choice(kinds)(together)

    def body(self, together: int, most: int = 3) -> None:
        self.depth += 1
        for _ in range(self.random.randint(1, most)):
            self.statement(together)
        self.depth -= 1

    def assign(self, _: int) -> None:
        target = self.random.choice(["v", "x", "mine[0]", "mine[1]"])
        self.write(f"{target} = {self.bounded()}")

    def common(self, _: int) -> None:
        self.write(f"u = {self.bounded(varying=False)}")

    def name(self, _: int) -> None:
        name = self.fresh("n")
        self.write(f"{name} = {self.bounded()}")
        self.write(f"v = v + {name}")

    def count(self, together: int) -> None:
        if together == LANE and self.random.random() < 0.3:
            self.write("x = x + T.cast(T.popcount(T.activemask()), 'int32')")
        self.write(f"T.atomic_add(H[{self.value()} % 8], {self.random.randint(1, 3)})")

    def share(self, _: int) -> None:
        last, n = self.threads - 1, self.threads
        place = self.random.choice([f"{last} - tx", f"(tx + 5) % {n}", "tx ^ 3", "7"])
        self.write(f"S[tx] = {self.bounded()}")
        self.write("T.sync_threads()")
        self.write(f"x = S[{place}]")
        self.write("T.sync_threads()")

    def shuffle(self, _: int) -> None:
        kind = self.random.choice(["shfl_xor", "shfl_up", "shfl_down", "shfl_sync"])
        width = self.random.choice(["", ", width=8", ", width=16"])
        self.write(f"x = T.{kind}(v, {self.random.randint(0, 7)}{width})")

    def vote(self, _: int) -> None:
        form = self.random.choice(
            [
                *("T.any_sync({c})", "T.all_sync({c})"),
                "T.cast(T.popcount(T.ballot({c})), 'int32')",
                *("T.warp_reduce_sum(v)", "T.warp_reduce_max(v)", "T.warp_reduce_min(v)"),
            ]
        )
        self.write(f"x = T.clamp(x + {form.format(c=self.condition())}, -1000, 1000)")

    def vote_of_block(self, _: int) -> None:
        kind = self.random.choice(["count", "and", "or"])
        self.write(f"u = T.clamp(u + T.syncthreads_{kind}({self.condition()}), -1000, 1000)")

    def branch(self, together: int) -> None:
        kind = self.random.choice([LANE, LANE, WARP, BLOCK])
        condition = self.condition(varying=kind == LANE)
        if kind == WARP:
            condition = self.random.choice(["tx < 32", "tx // 32 == 1", "tx >= 32"])
        self.write(f"if {condition}:")
        self.body(min(together, kind))
        if self.random.random() < 0.5:
            self.write("else:")
            self.body(min(together, kind), 2)

    def loop(self, together: int) -> None:
        varying, leaves = self.random.random() < 0.4, self.random.random() < 0.3
        name = self.fresh("i")
        stop = f"{self.value()} % 4" if varying else str(self.random.randint(1, 4))
        inside = LANE if varying or leaves else together
        self.write(f"for {name} in range({stop}):")
        self.loops.append(name)
        self.body(inside)
        if leaves:
            self.depth += 1
            self.write(f"if {self.condition()}:")
            self.write("    " + self.random.choice(["break", "continue"]))
            self.depth -= 1
            self.body(LANE, 2)
        self.loops.remove(name)

    def repeat(self, _: int) -> None:
        name = self.fresh("c")
        self.write(f"{name} = T.alloc_var('int32', init=0)")
        self.write(f"while ({name} < 3) and ({self.condition()}):")
        self.depth += 1
        self.write(f"{name} = {name} + 1")
        self.depth -= 1
        self.body(LANE, 2)
