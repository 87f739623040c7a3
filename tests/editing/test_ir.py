"""IR edited between two passes."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

import tileworkbench as tw
from tests.kernels.test_gpu import CASES
from tileworkbench.compiler import lowering
from tileworkbench.compiler.diagnostics import CompileError, TileError, VerifyError
from tileworkbench.compiler.driver import record_of
from tileworkbench.compiler.ir.program import Program
from tileworkbench.editing.ir import edit_ir
from tileworkbench.kernels import matmul
from tileworkbench.viz.model.card import card_html, card_model
from tileworkbench.viz.model.passes import printed

PAGE = matmul(64, 64, 64, "float32", block_M=32, block_N=32, block_K=32)
A, B = (np.random.default_rng(seed).standard_normal((64, 64), np.float32) for seed in (0, 1))


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_text_that_nobody_edited_gives_the_same_code(target: str) -> None:
    kernel = tw.compile(PAGE, target=target)
    for number, snapshot in enumerate(kernel.passes, 1):
        again = kernel.edit_ir(snapshot.ir, number)
        assert again.source == kernel.source, snapshot.name
        assert again.passes[number].name == "edited" and not again.passes[number].changed
    assert kernel.edit_ir(str(kernel.program), 0).source == kernel.source


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_an_edit_is_compiled_from_there_on(target: str) -> None:
    kernel = tw.compile(PAGE, target=target)
    text = kernel.passes["check_accesses"].ir.replace(
        "T.fill(C_local, 0.0)", "T.fill(C_local, 1.0)"
    )
    edited = kernel.edit_ir(text, "check_accesses")
    np.testing.assert_allclose(edited(A, B), kernel(A, B) + 1.0, rtol=1e-5, atol=1e-4)
    assert edited.passes["edited"].changed
    view = edited.view()
    assert card_model(view)["edited"] == "IR edited after check_accesses"
    assert "IR edited after check_accesses" in card_html(view)
    assert card_model(kernel.view())["edited"] == ""
    assert "1.0" in edited.passes.diff("edited")
    assert kernel.passes[-1].ir == tw.compile(PAGE, target=target).passes[-1].ir  # as it was
    stored = pickle.loads(pickle.dumps(edited))
    np.testing.assert_array_equal(stored(A, B), edited(A, B))


def test_an_edited_kernel_is_edited_again() -> None:
    kernel = tw.compile(PAGE)
    one = kernel.edit_ir(
        kernel.passes["check_accesses"].ir.replace("0.0)", "1.0)"), "check_accesses"
    )
    two = one.edit_ir(one.passes["merge_k_steps"].ir.replace("1.0)", "2.0)"), "merge_k_steps")
    np.testing.assert_allclose(two(A, B), kernel(A, B) + 2.0, rtol=1e-5, atol=1e-4)


def test_symbols_stay_symbols() -> None:
    program, arguments, _, _ = CASES["softmax"]()
    kernel = tw.compile(program, target="sim:sm_80")
    again = kernel.edit_ir(kernel.passes["bind_threads"].ir, "bind_threads")
    np.testing.assert_array_equal(again(*arguments), kernel(*arguments))


def test_lines_that_stayed_know_the_kernel() -> None:
    kernel = tw.compile(PAGE)
    snapshot = kernel.passes["check_accesses"]
    text = snapshot.ir.replace("T.fill(C_local, 0.0)", "T.fill(C_local, 1.5)")
    edited = edit_ir(kernel, text, "check_accesses", "<cell>").passes["edited"].program
    file = kernel.record.source_file
    before, after = printed(snapshot.program, file), printed(edited, file)
    changed = [at for at, line in enumerate(after) if line.text != before[at].text]
    assert [after[at].source for at in changed] == [0]
    assert all(line == before[at] for at, line in enumerate(after) if at not in changed)


def test_an_error_of_a_later_pass_is_at_the_line_of_the_text() -> None:
    kernel = tw.compile(PAGE, target="sim:sm_80")
    fewer = kernel.passes["plan_pipelines"].ir.replace("threads=128", "threads=96")
    product = fewer.replace("B_shared, C_local)", "B_shared, C_local, transpose_B=True)")
    for text, file in ((fewer, kernel.record.source_file), (product, "<cell>")):
        with pytest.raises(CompileError) as caught:
            edit_ir(kernel, text, "plan_pipelines", "<cell>")
        assert caught.value.message.startswith("No valid warp partition")
        assert caught.value.span is not None and caught.value.span.file == file


def edited_error(text: str, after: str = "split_threads", target: str = "cpu") -> TileError:
    with pytest.raises(TileError) as caught:
        edit_ir(tw.compile(PAGE, target=target), text, after, "<cell>")
    return caught.value


def text_of(old: str, new: str) -> str:
    text: str = tw.compile(PAGE).passes["split_threads"].ir
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x +", "the IR text is not valid: invalid syntax\n  --> <cell>, line 1"),
        ("x = 1", "the IR text is not one function\n  --> <cell>, line 1"),
        (
            text_of("T.fill(C_local, 0.0)", "T.fill(C_local)"),
            "'T.fill(C_local)' is not well-formed IR\n  --> <cell>, line 11",
        ),
        (
            text_of("T.fill(C_local, 0.0)", "T.fill(D_local, 0.0)"),
            "'D_local' is not a known buffer\n  --> <cell>, line 11",
        ),
        (
            text_of("T.fill(C_local, 0.0)", "T.fill(C_local, 0)"),
            "malformed IR at stage 'tile': 'C_local' of 'float32' is filled with a 'int32' in "
            "'T.fill(C_local, 0)'\n  --> <cell>, line 11",
        ),
        (
            text_of('"float32")\n        T.fill', '"float33")\n        T.fill'),
            "'C_local = T.alloc_fragment((32, 32), 'float33')' is not well-formed IR\n"
            "  --> <cell>, line 10",
        ),
        (
            text_of("threads=128", "threads=1000000"),
            "malformed IR at stage 'tile': a block of 1000000 threads: it has at most 1024 in "
            "'with T.Kernel(2, 2, threads=1000000) as (bx, by):'\n  --> <cell>, line 7",
        ),
        (
            text_of("threads=128", "threads=128, swizle=(2, 'row')"),
            "'T.Kernel' has no keyword 'swizle'\n  --> <cell>, line 7\n"
            "hint: did you mean 'swizzle'?",
        ),
        (
            text_of("num_stages=", "stages=2, num_stages="),
            "'T.Pipelined' has no keyword 'stages'\n  --> <cell>, line 12\n"
            "hint: did you mean 'stage'?",
        ),
        (
            text_of(
                'alloc_fragment((32, 32), "float32"', 'alloc_fragment((32, 32), "float32", a=1'
            ),
            "'T.alloc_fragment' has no keyword 'a'\n  --> <cell>, line 10\n"
            "hint: it takes 'layout', 'offset'",
        ),
        (
            text_of('stage="tile"', 'stage="planned"'),
            "the stage of the IR here is 'tile', not 'planned'\n  --> <cell>, line 2",
        ),
        (
            text_of('A: T.Tensor((64, 64), "float32")', 'A: T.Tensor((64, 32), "float32")'),
            "the parameters, symbols, outputs and target of 'matmul' cannot be edited\n"
            "  --> <cell>, line 2\nhint: edit the kernel's own text instead",
        ),
    ],
)
def test_what_is_no_ir_is_an_error_at_its_line(text: str, expected: str) -> None:
    assert str(edited_error(text)) == expected


@pytest.mark.parametrize(
    ("call", "told", "marked"),
    [
        ('v = T.view(C_local, (1024,), "float32", laiout=1)', "did you mean 'layout'?", "laiout=1"),
        ("p = T.peer(C_local, 0, rank=1)", "it takes no keywords", "rank=1"),
        (
            'T.atomic_add(C[0, 0], 1.0, memory_order="x")',
            "it takes no keywords",
            'memory_order="x"',
        ),
        ('x = T.call_extern("int32", "f", args=1)', "it takes no keywords", "args=1"),
        ("y = T.abs(1.0, precise=True)", "it takes no keywords", "precise=True"),
        ("x = T.exp(1.0, 2.0)", None, "2.0"),
        ('v = T.view(C_local, (1024,), "float32", 0)', None, "0"),
    ],
)
def test_what_a_call_does_not_take_is_marked(call: str, told: str | None, marked: str) -> None:
    error = edited_error(text_of("T.fill(C_local, 0.0)", f"T.fill(C_local, 0.0)\n        {call}"))
    span = error.span
    assert span is not None and (span.line, error.hint) == (12, told)
    assert f"        {call}"[span.column : span.end_column] == marked
    counted = r"'T\.\w+' (has no keyword '\w+'|takes \d arguments?, not \d)"
    assert re.fullmatch(counted, error.message)


def test_after_which_pass() -> None:
    names = [found.name for found in tw.compile(PAGE, target="sim:sm_80").passes]
    first, second = (at for at, name in enumerate(names, 1) if name == "simplify_expressions")
    assert str(edited_error("", "simplify_expressions", "sim:sm_80")) == (
        f"'simplify_expressions' runs more than once: say which, {first} or {second}"
    )
    assert str(edited_error("", "infer_layouts", "sim:sm_80")) == (
        "there is no pass 'infer_layouts'\nhint: did you mean 'infer_thread_layouts'?"
    )
    assert str(edited_error("", "xyz", "sim:sm_80")) == (
        "there is no pass 'xyz'\nhint: 0 for the front end, or " + ", ".join(dict.fromkeys(names))
    )


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("T.gemm(A_shared, B_shared", "T.gemm(B_shared, A_shared", "K is 64 and 32 in A and B"),
        ("B_shared, C_local)", "B_shared, C_local, transpose_B=True)", "K is 16 and 64 in A and B"),
    ],
)
def test_operands_that_do_not_fit_name_line_and_rule(old: str, new: str, rule: str) -> None:
    page = matmul(64, 64, 64, "float16", block_M=32, block_N=64, block_K=16)
    kernel = tw.compile(page, target="sim:sm_80")
    text = kernel.passes["plan_pipelines"].ir.replace(old, new, 1)
    assert text != kernel.passes["plan_pipelines"].ir
    with pytest.raises(TileError) as caught:
        kernel.edit_ir(text, "plan_pipelines")
    assert rule in str(caught.value)
    assert caught.value.span is not None
    assert new in text.splitlines()[caught.value.span.line - 1]


def test_a_pass_that_fails_after_an_edit_leaves_its_record() -> None:
    kernel = tw.compile(PAGE, target="sim:sm_80")
    small = 'A_shared = T.alloc_shared((32, 32), "float32")'
    large = 'D_shared = T.alloc_shared((320, 320), "float32")\n        T.fill(D_shared, 0.0)'
    text = kernel.passes["plan_pipelines"].ir.replace(small, f"{small}\n        {large}")
    with pytest.raises(CompileError) as caught:
        kernel.edit_ir(text, "plan_pipelines")
    record = record_of(caught.value)
    assert record is not None
    assert "edited" in [found.name for found in record.snapshots]


@pytest.mark.parametrize(
    ("target", "after", "old", "new", "message"),
    [
        (
            *("sim:sm_90a", "lower_to_threads", "512, 64, 0)", "512, 63, 0)"),
            "the code generator cannot take the IR as it was edited: KeyError: 63\n"
            "hint: this is the first line that was edited; later steps count on more than is "
            "verified",
        ),
        (
            *("sim:sm_80", "infer_thread_layouts", "j//2%4, 16*", "j//2%5, 16*"),
            "the pass 'lower_to_threads' cannot take the IR as it was edited: LayoutConflict: "
            "which thread executes an iteration has no formula",
        ),
    ],
)
def test_what_no_rule_names_is_an_error_at_the_first_edited_line(
    target: str, after: str, old: str, new: str, message: str
) -> None:
    page = matmul(64, 64, 64, "float16", block_M=64, block_N=64, block_K=32)
    kernel = tw.compile(page, target=target)
    text = kernel.passes[after].ir
    assert old in text
    edited = text.replace(old, new, 1)
    with pytest.raises(CompileError) as caught:
        edit_ir(kernel, edited, after, "<cell>")
    told = f"{caught.value.message}\nhint: {caught.value.hint}"
    assert told.startswith(message)
    assert caught.value.span is not None and caught.value.span.file == "<cell>"
    assert new in edited.splitlines()[caught.value.span.line - 1]
    assert (record_of(caught.value) is None) == ("pass" not in message)


def test_a_step_that_breaks_edited_ir_says_that_the_edit_may_be_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As would a pass that counts on what the edit took away: its program does not verify."""
    kernel = tw.compile(PAGE)
    edited = kernel.passes["check_accesses"].ir.replace("C_local, 0.0)", "C_local, 1.0)")

    def broken(program: Program) -> None:
        raise VerifyError("'C_local' is not in scope")

    real = lowering._verify_after

    def verify_after(program: Program, name: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(lowering, "verify", broken)
            real(program, name)

    monkeypatch.setattr(lowering, "_verify_after", verify_after)
    with pytest.raises(CompileError) as caught:
        edit_ir(kernel, edited, "check_accesses", "<cell>")
    assert caught.value.message.endswith("broke the program: 'C_local' is not in scope")
    name = caught.value.message.split("'")[1]
    assert name in [each.name for each in kernel.passes]
    assert caught.value.span is not None and caught.value.span.line == 11
    assert caught.value.hint == (
        f"the IR that the pass '{name}' was given is an edited one: the edit is the likely cause, "
        "from its line 11 on; if the unedited kernel fails too, it is a bug in tileworkbench"
    )
