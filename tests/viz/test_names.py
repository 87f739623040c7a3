"""What a name of the IR is."""

from __future__ import annotations

from tests.viz.sample import compile_record
from tileworkbench.compiler.ir.types import DType
from tileworkbench.viz.model.passes import PassBrowser


def test_a_buffer() -> None:
    found = PassBrowser(compile_record()).describe(0, "A_shared")
    assert found == {
        "name": "A_shared",
        "facts": [
            ["kind", "buffer"],
            ["dtype", "float32"],
            ["scope", "shared"],
            ["shape", "64 × 32"],
            ["layout", "row-major"],
            ["definition", 'A_shared = T.alloc_shared((64, 32), "float32")'],
        ],
        "defined": 8,
        "used": [13, 15],
        "uses": 2,
    }


def test_a_parameter_and_a_variable() -> None:
    browser = PassBrowser(compile_record())
    assert browser.describe(0, "C")["facts"][:3] == [
        ["kind", "buffer, a parameter"],
        ["dtype", DType("float32")],
        ["scope", "global"],
    ]
    assert browser.describe(0, "k")["facts"] == [
        ["kind", "variable"],
        ["dtype", "int32"],
        ["definition", "for k in T.Pipelined(8, num_stages=2):"],
    ]
    assert browser.describe(0, "threads") == browser.describe(0, "T") == {}


def test_names_belong_to_a_program() -> None:
    browser = PassBrowser(compile_record())
    assert browser.describe(1, "i") == {}
    assert browser.describe(2, "i")["uses"] == 1
    assert browser.describe(5, "i")["uses"] > 1


def test_a_layout_is_told() -> None:
    import tileworkbench as tw
    from tileworkbench.kernels import matmul

    page = matmul(64, 64, 64, "float16", block_M=64, block_N=64, block_K=32)
    kernel = tw.compile(page, target="sim:sm_80")
    browser = PassBrowser(kernel.record)
    facts = dict(browser.describe(browser.find("infer_thread_layouts"), "A_shared")["facts"])
    assert facts["layout"] == kernel.layouts["A_shared"].to_text()
