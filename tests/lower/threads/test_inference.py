"""Layout inference: what follows from what, how often operators are asked, what conflicts say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import tileworkbench.language as T
from tests.lower.threads.planned import plan, program
from tests.tiers import examples
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.stmt import Kernel
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.layout.contain import contains
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.conflicts import LayoutExplanation
from tileworkbench.compiler.lower.threads.nests import AccessKind, analyse
from tileworkbench.compiler.lower.threads.solver import Solver
from tileworkbench.compiler.passes.bind_threads import BindThreads
from tileworkbench.compiler.passes.infer_thread_layouts import InferThreadLayouts, solve
from tileworkbench.compiler.target import parse_target
from tileworkbench.kernels.flash_attention import flash_attention

SM_80 = parse_target("cuda:sm_80")


def solved(found: Program) -> Solver:
    """The inference of a program's only kernel."""
    bound = BindThreads(SM_80)(found)
    kernel = next(stmt for stmt in statements(bound.body) if isinstance(stmt, Kernel))
    return solve(bound, kernel, SM_80)


def attention() -> Program:
    return flash_attention(1, 8, 1024, 1024, 64, T.float16).program


def test_operators_are_asked_a_few_times_each() -> None:
    found = solved(attention())
    assert len(found.operators) == 21
    assert found.calls <= 10 * len(found.operators)


def test_many_fragments_in_one_component_stay_cheap() -> None:
    count = 30
    lines = [f'F{n} = T.alloc_fragment((128,), "float32")' for n in range(count)]
    lines.append("T.copy(A, F0)")
    for n in range(1, count):
        lines.append(f"for i{n} in T.Parallel(128):")
        lines.append(f"    F{n}[i{n}] = F{n - 1}[i{n}] + 1.0")
    lines.append(f"T.copy(F{count - 1}, A)")
    found = solved(program(['A: T.Tensor((128,), "float32")'], "\n".join(lines)))
    assert found.calls <= 12 * len(found.operators)


def test_the_result_is_the_same_each_time() -> None:
    source = BindThreads(SM_80)(attention())
    infer = InferThreadLayouts(SM_80)
    assert print_program(infer(source)) == print_program(infer(source))


def test_free_choices_prefer_coalesced_traffic_to_few_registers() -> None:
    body = """
    F = T.alloc_fragment((64, 128), "float32")
    row = T.alloc_fragment((64,), "float32")
    T.copy(A, F)
    for i in T.Parallel(64):
        row[i] = F[i, 0]
    for i_1 in T.Parallel(64):
        B[i_1] = row[i_1]
    """
    found = solved(
        program(['A: T.Tensor((64, 128), "float32")', 'B: T.Tensor((64,), "float32")'], body)
    )
    layouts = {buffer.name: place for buffer, place in found.known.items()}
    # Neighbouring threads hold neighbouring vectors of a row, as the copy wants.
    assert layouts["F"] == Fragment(
        (64, 128), lambda i, j: (32 * (i % 4) + j // 4, i // 4 * 4 + j % 4)
    )


_EXTENTS = (2, 4, 8, 16)


@settings(max_examples=examples(80), deadline=None)
@given(hs.data())
def test_threads_own_what_their_iterations_read(data: hs.DataObject) -> None:
    """Random nests over fragments with permuted, grouped and missing indices."""
    extents = [data.draw(hs.sampled_from(_EXTENTS)) for _ in range(data.draw(hs.integers(1, 3)))]
    names = "ijk"[: len(extents)]
    lines, terms = [], []
    for number in range(data.draw(hs.integers(1, 3))):
        order = data.draw(hs.permutations(range(len(extents))))
        used = order[: data.draw(hs.integers(1, len(order)))]
        group = data.draw(hs.sampled_from([1, 1, 2]))
        shape = [max(extents[d] // group, 1) for d in used]
        index = ", ".join(f"{names[d]} // {group}" if group > 1 else names[d] for d in used)
        lines.append(f'F{number} = T.alloc_fragment(({", ".join(map(str, shape))},), "float32")')
        lines.append(f"T.fill(F{number}, 1.0)")
        terms.append(f"F{number}[{index}]")
    box = ", ".join(map(str, extents))
    lines.append(f'G = T.alloc_fragment(({box},), "float32")')
    lines.append(f"for {', '.join(names)} in T.Parallel({box}):")
    lines.append(f"    G[{', '.join(names)}] = {' + '.join(terms)}")
    planned = plan(program(['A: T.Tensor((8,), "float32")'], "\n".join(lines), threads=64))
    ranges = Ranges(planned)
    nests = [node for node in walk(planned.body) if isinstance(node, Parallel)]
    assert nests
    for nest in nests:
        assert nest.loop_layout is not None
        for access in analyse(nest, ranges).fragments:
            fragment = access.buffer.layout
            assert isinstance(fragment, Fragment) and access.map is not None
            assert contains(nest.loop_layout, fragment, None, access.map)
            if access.kind is AccessKind.STORE:
                assert contains(fragment, nest.loop_layout, access.map, None)


def transposed() -> Program:
    body = """
    F = T.alloc_fragment((8, 8), "float32", layout=Fragment((8, 8), lambda i, j: (i, j)))
    G = T.alloc_fragment((8, 8), "float32", layout=Fragment((8, 8), lambda i, j: (j, i)))
    T.copy(A, F)
    for i, j in T.Parallel(8, 8):
        G[i, j] = F[i, j]
    """
    return program(['A: T.Tensor((8, 8), "float32")'], body, threads=8)


def test_a_conflict_names_the_tile_and_both_layouts() -> None:
    with pytest.raises(LayoutError) as caught:
        plan(transposed())
    assert caught.value.render() == (
        "LayoutError: 'T.Parallel' cannot be spread over threads: some threads would read elements "
        "of 'F' that they do not hold\n"
        "note: 'T.Parallel' needs 'F' as (i, j) -> thread j, slot i: (0, 0) in thread 0, slot 0; "
        "(0, 1) in thread 1, slot 0; (0, 2) in thread 2, slot 0; (0, 3) in thread 3, slot 0\n"
        "note: 'F' has a given layout (T.annotate_layout, or an earlier pass), "
        "as (i, j) -> thread i, slot j: (0, 0) in thread 0, "
        "slot 0; (0, 1) in thread 0, slot 1; (0, 2) in thread 0, slot 2; (0, 3) in thread 0, "
        "slot 3\n"
        "hint: copy 'F' to shared memory and read it from there"
    )


def test_a_conflict_is_explained_as_data() -> None:
    with pytest.raises(LayoutError) as caught:
        plan(transposed())
    explanation = caught.value.explanation
    assert isinstance(explanation, LayoutExplanation)
    assert explanation.buffer == "F"
    assert [demand.operator for demand in explanation.demands] == ["T.Parallel", ""]
    assert explanation.demands[1].layout == Fragment((8, 8), lambda i, j: (i, j))
    assert explanation.demands[1].sample[1] == "(0, 1) in thread 0, slot 1"


MESSAGES = {
    "a symbolic nest indexes a fragment": (
        """
        F = T.alloc_fragment((64,), "float32")
        for i in T.Parallel(n):
            F[i] = 1.0
        """,
        "'T.Parallel' cannot be spread over threads: a nest with a symbolic extent cannot index "
        "'F', whose threads are fixed when the kernel is compiled",
    ),
    "a serial variable decides the thread": (
        """
        F = T.alloc_fragment((64, 4), "float32", layout=Fragment((64, 4), lambda i, j: (j, i)))
        for k in T.serial(4):
            for i in T.Parallel(64):
                F[i, k] = 1.0
        """,
        "'T.Parallel' cannot be spread over threads: 'k' is no variable of the nest, and the "
        "thread that holds an element of 'F' depends on it",
    ),
    "writes at an index from memory": (
        """
        F = T.alloc_fragment((64,), "float32")
        for i in T.Parallel(64):
            F[I[i]] = 1.0
        """,
        "'T.Parallel' cannot be spread over threads: no layout of 'F' lets every thread write the "
        "elements it holds",
    ),
    "writes from different threads": (
        """
        F = T.alloc_fragment((8, 16), "float32", layout=Fragment((8, 16), \
lambda i, j: (16*i + j, 0)))
        G = T.alloc_fragment((8,), "float32")
        for i, j in T.Parallel(8, 16):
            if j == 3:
                G[i] = F[i, j]
        """,
        "'T.Parallel' cannot be spread over threads: iterations of different threads would write "
        "one element of 'G'",
    ),
    "copies of an iteration would update again": (
        """
        F = T.alloc_fragment((64,), "int32", layout=Fragment((64,), \
lambda i, rep: (2*i + rep, 0), replicate=2))
        G = T.alloc_fragment((64,), "int32")
        T.fill(F, 1)
        for i in T.Parallel(64):
            before = T.atomic_add(I[i], F[i])
            G[i] = before
        """,
        "'T.Parallel' cannot be spread over threads: several threads would repeat an iteration "
        "that uses what an atomic update returned",
    ),
    "copies that nobody would write": (
        """
        F = T.alloc_fragment((64,), "float32", layout=Fragment((64,), lambda i: (i, 0)))
        G = T.alloc_fragment((64,), "float32", layout=Fragment((64,), \
lambda i, rep: (64*rep + i, 0), replicate=2))
        T.fill(F, 1.0)
        for i in T.Parallel(64):
            G[i] = F[i]
        """,
        "'T.Parallel' cannot be spread over threads: 'F' already has another layout",
    ),
    "a view tears elements apart": (
        """
        F = T.alloc_fragment((64, 2), "float16", layout=Fragment((64, 2), \
lambda i, j: (2*i + j, 0)))
        G = T.view(F, (64,), "float32")
        """,
        "an element of 'G', a view of 'F', would be torn apart between threads or registers",
    ),
    "a view of symbolic extent": (
        """
        F = T.alloc_fragment((64,), "float32")
        G = T.view(F, (n,), "float32")
        T.fill(F, 1.0)
        """,
        "'T.fill' cannot be spread over threads: 'G', a view of 'F', has a symbolic shape",
    ),
    "an annotation for more threads": (
        """
        F = T.alloc_fragment((256,), "float32", layout=Fragment((256,), lambda i: (i, 0)))
        T.fill(F, 1.0)
        """,
        "the layout of 'F' is for 256 threads, and a block has 128",
    ),
    "a loop that follows a table": (
        """
        F = T.alloc_fragment((64,), "float32", layout=Fragment((64,), lambda i: (i, 0)))
        for i in T.Parallel(8):
            F[i * i] = 1.0
        """,
        "'T.Parallel' cannot be spread over threads: which thread executes an iteration has no "
        "formula",
    ),
    "two annotations of one memory": (
        """
        F = T.alloc_shared((64, 2), "float16", layout=Layout((64, 2), lambda i, j: (64*j + i,)))
        G = T.view(F, (128,), "float16", layout=Layout((128,), lambda i: (i,)))
        """,
        "'G' already has another layout",
    ),
}


@pytest.mark.parametrize(("body", "message"), MESSAGES.values(), ids=list(MESSAGES))
def test_conflicts_say_what_is_wrong(body: str, message: str) -> None:
    params = ['A: T.Tensor((n,), "float32")', 'I: T.Tensor((64,), "int32")']
    with pytest.raises(LayoutError) as caught:
        plan(program(params, body, symbols=["n"]))
    assert caught.value.message == message


def test_swizzles_of_two_readers_become_the_finer_one() -> None:
    body = """
    S = T.alloc_shared((64, 64), "float16")
    C = T.alloc_fragment((64, 64), "float32")
    T.copy(A, S)
    T.gemm(S, S, C, clear_accum=True)
    T.gemm(S, S, C, transpose_A=True)
    """
    found = solved(program(['A: T.Tensor((64, 64), "float16")'], body))
    layouts = {buffer.name: place for buffer, place in found.known.items()}
    assert layouts["S"] == Layout.swizzled((64, 64), 16, 128)
