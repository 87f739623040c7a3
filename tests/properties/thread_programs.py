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
            kinds += [self.common, self.share, self.decide, self.vote_of_block]
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

    def place(self) -> str:
        last, n = self.threads - 1, self.threads
        return self.random.choice([f"{last} - tx", f"(tx + 5) % {n}", "tx ^ 3", "7"])

    def share(self, _: int) -> None:
        """Through shared memory, with the kernel's own barriers or with those that it needs."""
        barriers = self.random.random() < 0.5
        self.write(f"S[tx] = {self.bounded()}")
        if barriers:
            self.write("T.sync_threads()")
        self.write(f"x = S[{self.place()}]")
        if barriers:
            self.write("T.sync_threads()")

    def decide(self, _: int) -> None:
        """By what is in shared memory, which is replaced then."""
        self.write(f"S[tx] = {self.bounded()}")
        kind = self.random.choice(["if", "own", "for", "while"])
        if kind == "own":  # each thread for itself, and at its own place
            self.write(f"if S[{self.place()}] % 3 == {self.random.randint(0, 2)}:")
            self.write(f"    S[tx] = {self.bounded()}")
            return
        at = self.random.randint(0, 31)
        if kind == "while":
            self.write(f"S[{at}] = 0")
        head = {
            "if": f"if S[{at}] % 2 == {self.random.randint(0, 1)}:",
            "for": f"for {self.fresh('i')} in range(S[{at}] % 4):",
            "while": f"while S[{at}] < {self.random.randint(1, 3)}:",
        }[kind]
        self.write(head)
        self.depth += 1
        if kind == "while":
            self.write(f"x = x + S[(tx + {self.random.randint(0, 3)}) % {self.threads}]")
            self.write(f"if tx == {self.random.randint(0, self.threads - 1)}:")
            self.write(f"    S[{at}] = S[{at}] + 1")
        else:
            self.share(BLOCK)
        self.depth -= 1

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


class RoleProgram:
    """Groups of 128 threads that hand rows of 64 integers on, through rings of buffers with memory
    barriers: each group changes a row in a way of its own.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.groups, self.steps = self.random.choice([2, 2, 3]), self.random.randint(1, 6)
        self.rings = [self.random.randint(1, 3) for _ in range(self.groups - 1)]
        self.alone = [self.random.random() < 0.5 for _ in range(2 * self.groups)]
        self.lines: list[str] = []
        order = self.random.sample(range(self.groups), self.groups)
        self.start()
        if self.random.random() < 0.4:
            self.write(2, f"for k in range({self.steps}):")
            for group in order:
                self.write(3, f"with T.ws({group}):")
                self.turn(group, 4, "k")
        else:
            for group in order:
                role = f"with T.ws({group}):" if self.random.random() < 0.6 else ""
                self.write(2, role or f"if tx // 128 == {group}:")
                self.write(3, f"for k{group} in range({self.steps}):")
                self.turn(group, 4, f"k{group}")
        if self.random.random() < 0.6:
            self.write(2, "T.sync_threads()")
            self.write(2, "if tx < 64:")
            self.write(3, "B[0, tx] = acc")

    @property
    def source(self) -> str:
        return "".join(self.lines)

    def write(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text + "\n")

    def start(self) -> None:
        shape = f'T.Tensor(({self.steps}, 64), "int32")'
        self.write(0, "@T.prim_func")
        self.write(0, f'def kernel(A: {shape}, B: {shape}, H: T.Tensor((8,), "int32")):')
        self.write(1, f"with T.Kernel(1, threads={128 * self.groups}) as bx:")
        self.write(2, "tx = T.get_thread_binding()")
        for g, stages in enumerate(self.rings):
            counts = [1 if self.alone[2 * g + side] else 128 for side in range(2)]
            self.write(2, f'S{g} = T.alloc_shared(({stages}, 64), "int32")')
            self.write(2, f"full{g} = T.alloc_barrier([{counts[0]}] * {stages})")
            self.write(2, f"free{g} = T.alloc_barrier([{counts[1]}] * {stages})")
        self.write(2, "acc = T.alloc_var('int32', init=1)")
        if self.random.random() < 0.5:
            self.write(2, "T.atomic_add(H[tx % 4], tx)")
        if self.random.random() < 0.5:
            self.write(2, "T.sync_threads()")

    def turn(self, group: int, depth: int, k: str) -> None:
        """One row: wait for it and for room, change it, say so."""
        before, after = group - 1, group
        source, target = f"A[{k}, @]", f"B[{k}, @]"
        if group > 0:
            stages = self.rings[before]
            source = f"S{before}[{k} % {stages}, @]"
            full = f"full{before}[{k} % {stages}]"
            self.write(depth, f"T.mbarrier_wait_parity({full}, ({k} // {stages}) % 2)")
        if group < self.groups - 1:
            stages = self.rings[after]
            target = f"S{after}[{k} % {stages}, @]"
            free = f"free{after}[{k} % {stages}]"
            self.write(depth, f"T.mbarrier_wait_parity({free}, ({k} // {stages}) % 2 ^ 1)")
        self.change(depth, f"(tx - {128 * group})", k, source, target)
        if self.random.random() < 0.3:
            self.write(depth, f"T.atomic_add(H[4 + {group}], 1)")
        if group > 0:
            self.arrive(depth, group, f"free{before}[{k} % {self.rings[before]}]", 2 * before + 1)
        if group < self.groups - 1:
            self.arrive(depth, group, f"full{after}[{k} % {self.rings[after]}]", 2 * after)

    def change(self, depth: int, thread: str, k: str, source: str, target: str) -> None:
        def at(place: str, index: str) -> str:
            return place.replace("@", index)

        kind = self.random.choice(["copy", "parallel", "keep", "exchange"])
        if kind == "copy":
            self.write(depth, f"T.copy({at(source, ':')}, {at(target, ':')})")
        elif kind == "parallel":
            self.write(depth, "for i in T.Parallel(64):")
            self.write(depth + 1, f"{at(target, 'i')} = {at(source, '63 - i')} + {k}")
        else:
            self.write(depth, f"if {thread} < 64:")
            if kind == "keep":
                self.write(depth + 1, f"acc = acc + {at(source, thread)}")
                self.write(depth + 1, f"{at(target, thread)} = acc")
            else:
                value = f"T.shfl_xor({at(source, thread)}, 5) * 2"
                self.write(depth + 1, f"{at(target, thread)} = {value}")

    def arrive(self, depth: int, group: int, barrier: str, side: int) -> None:
        if not self.alone[side]:
            self.write(depth, f"T.mbarrier_arrive({barrier})")
            return
        self.write(depth, f"T.sync_threads({group + 1}, 128)")
        self.write(depth, f"if tx == {128 * group}:")
        self.write(depth + 1, f"T.mbarrier_arrive({barrier})")
