"""Device functions of asynchronous copies and of the memory barriers (mbarrier) that count them."""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.functions import Helper, asm, function

_COPIES = {
    size: function(
        f"void cp_async_{size}(unsigned to, const void* from)",
        asm(
            f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size};",
            "",
            '"r"(to), "l"(from)',
            "memory",
        ),
    )
    for size in (4, 8, 16)
}
_COPIES_OR_ZEROS = {
    size: function(
        f"void cp_async_{size}_or_zero(unsigned to, const void* from, bool inside)",
        asm(
            f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size}, %2;",
            "",
            f'"r"(to), "l"(from), "r"(inside ? {size} : 0)',
            "memory",
        ),
    )
    for size in (4, 8, 16)
}


def _mbarrier() -> dict[str, Helper]:
    """ "Parallel Synchronization and Communication Instructions: mbarrier"."""
    wait = (
        "  unsigned done;\n"
        "  do {\n"
        '    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "\n'
        '                 "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(barrier), "r"(parity) '
        ': "memory");\n'
        "  } while (!done);"
    )
    test = wait.replace("try_wait", "test_wait")
    arrive = "{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }"
    return {
        "mbarrier_init": Helper(
            function(
                "void mbarrier_init(unsigned barrier, unsigned count)",
                asm(
                    "mbarrier.init.shared.b64 [%0], %1;",
                    "",
                    '"r"(barrier), "r"(count)',
                    "memory",
                ),
            ),
            arch=80,
        ),
        "mbarrier_arrive": Helper(
            function(
                "void mbarrier_arrive(unsigned barrier)",
                asm(arrive, "", '"r"(barrier)', "memory"),
            ),
            arch=80,
        ),
        "mbarrier_expect": Helper(
            function(
                "void mbarrier_expect(unsigned barrier, unsigned bytes)",
                asm(
                    "mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;",
                    "",
                    '"r"(barrier), "r"(bytes)',
                    "memory",
                ),
            ),
            arch=90,
        ),
        "mbarrier_complete": Helper(
            function(
                "void mbarrier_complete(unsigned barrier, unsigned bytes)",
                asm(
                    "fence.acq_rel.cta; mbarrier.complete_tx.relaxed.cta.shared.b64 [%0], %1;",
                    "",
                    '"r"(barrier), "r"(bytes)',
                    "memory",
                ),
            ),
            arch=90,
        ),
        "mbarrier_wait": Helper(
            function("void mbarrier_wait(unsigned barrier, unsigned parity)", test), arch=80
        ),
    }


COPIES: dict[str, Helper] = {
    "cp_async_commit": Helper(
        function(
            "void cp_async_commit()", '  asm volatile("cp.async.commit_group;" ::: "memory");'
        ),
        arch=80,
    ),
    "fence_async": Helper(
        function(
            "void fence_async()", '  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
        ),
        arch=90,
    ),
    **{f"cp_async_{n}": Helper(text, arch=80) for n, text in _COPIES.items()},
    **{f"cp_async_{n}_or_zero": Helper(text, arch=80) for n, text in _COPIES_OR_ZEROS.items()},
    **_mbarrier(),
}


def wait_helper(pending: int) -> tuple[str, Helper]:
    """cp.async.wait_group takes its count as a literal."""
    name = f"cp_async_wait_{pending}"
    text = f'  asm volatile("cp.async.wait_group {pending};" ::: "memory");'
    return name, Helper(function(f"void {name}()", text), arch=80)
