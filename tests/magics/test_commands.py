"""The commands of `%tile`."""

from __future__ import annotations

import re

import pytest

from tests.magics.notebook import SCALE, SCALE_TEXT, Notebook, without_counts
from tileworkbench.bench import ceilings
from tileworkbench.bench.points import Ceiling, Machine
from tileworkbench.bench.timing import BenchResult


def test_help_names_every_flag_and_command(notebook: Notebook) -> None:
    text = notebook.run("%tile").out
    assert text == notebook.run("%tile help").out == notebook.run("%tile --help").out
    assert "%%tile ir [--after PASS]" in text and "%%tile src [--args A,B]" in text
    assert "usage: %%tile [NAME] [flags]" in text
    squeezed = " ".join(text.split())
    for target in ("auto: ", "cpu, ", "sim:sm_80: ", "ptx:sm_80: ", "cuda:sm_80: "):
        assert target in squeezed
    assert "%tile clear-cache forget compiled kernels, in memory and on disk" in squeezed


def test_show(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q{SCALE}")
    assert notebook.run("%tile show scale").text == f"Out[3]: {SCALE_TEXT}"
    passes = notebook.run("%tile show scale passes:plan_scratch").value
    assert type(passes).__name__ == "PassesWidget"
    assert notebook.run("%tile show scale passes;").text == ""


def test_views_take_inputs(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q{SCALE}")
    notebook.run("import torch\ngiven = torch.ones(64, 32)")
    assert notebook.run("%tile show scale card given").error is None
    assert notebook.run("scale.kernel._inputs[0] is given").value is True
    assert notebook.run("%tile show scale card absent").text.startswith("UsageError: 'absent': ")
    notebook.run(f"%%tile -q -o other --args given*0{SCALE}")
    assert notebook.run("float(other._inputs[0].sum())").value == 0.0


def test_passes_and_what_one_did_are_printed(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q{SCALE}")
    lines = notebook.run("%tile show scale passes").out.splitlines()
    assert without_counts(lines[1]) == SCALE_TEXT
    assert re.fullmatch(r"\d+ of \d+ changed something", lines[2])
    changed = "changed  flatten_buffers       "
    assert any(line.startswith(changed + "Give every buffer one dimension") for line in lines)
    assert any(line.startswith("no-op    fuse_loops ") for line in lines)
    lines = notebook.run("%tile show scale diff:bind_blocks").out.splitlines()
    assert lines[2] == "bind_blocks: changed"
    assert "-    with T.Kernel(2, threads=32) as block:" in lines
    lines = notebook.run("%tile show scale diff").out.splitlines()
    assert lines[2] == "infer_layouts: changed" and lines[3].startswith("@@ ")


def test_the_pipeline_of_a_kernel_is_shown(notebook: Notebook) -> None:
    notebook.run("import tileworkbench as tw\nfrom tileworkbench.kernels import matmul")
    made = "tw.compile(matmul(256, 256, 256, 'float16', num_stages=3), target='sim:sm_80')"
    notebook.run(f"mm = {made}")
    shown = notebook.run("%tile show mm pipeline")
    assert shown.error is None and type(shown.value).__name__ == "PipelineViewWidget"
    data, _ = shown.value._repr_mimebundle_()
    assert "3 stages, 1069 cycles per iteration, predicted" in data["text/html"]


def test_show_compiles_what_has_its_shapes(notebook: Notebook) -> None:
    notebook.run("import tileworkbench as tw, tileworkbench.language as T")
    notebook.run(f"@tw.jit{SCALE}")
    assert notebook.run("%tile show scale").text == f"Out[4]: {SCALE_TEXT}"


def test_a_kernel_without_shapes_has_to_be_called_first(notebook: Notebook) -> None:
    notebook.run("""%%tile -q
def double(A):
    M = T.const("M")
    A: T.Tensor((M,), "float32")
    B = T.empty((M,), "float32")
    with T.Kernel(M, threads=32) as i:
        B[i] = A[i] * 2.0
    return B
""")
    assert notebook.run("%tile show double").text == (
        "UsageError: 'double' is compiled when it is called; call it first"
    )
    notebook.run("import torch; double(torch.ones(3))")
    assert "double[M=3]" in notebook.run("%tile show double").text


def test_bench_takes_arguments_or_makes_them_up(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q\nimport torch{SCALE}")
    for line in ("%tile bench scale", "%tile bench scale torch.ones(64, 32)"):
        done = notebook.run(line)
        assert isinstance(done.value, BenchResult) and done.value.name == "scale"
        assert done.text.startswith(f"Out[{notebook.shell.execution_count - 1}]: scale: ")
    assert notebook.run("x = %tile bench scale").text == ""
    assert notebook.value("x.n") > 0


def test_bisect(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q\nimport torch{SCALE}")
    for line in ("%tile bisect scale", "%tile bisect scale torch.ones(64, 32)"):
        words = notebook.run(line).text.split()
        assert (words[0], words[2:]) == ("all", ["stages", "agree"])


def test_list(notebook: Notebook) -> None:
    assert notebook.run("%tile list").text == "no kernels yet"
    notebook.run(f"%%tile -o kept{SCALE}")
    assert notebook.run("%tile list").text == (
        f"scale  <tw.jit scale: eager, 1 compiled>\nkept  {SCALE_TEXT}"
    )


def test_targets(notebook: Notebook) -> None:
    lines = notebook.run("%tile targets").text.splitlines()
    assert lines[0] == "cpu             usable"
    assert "hip:gfx942      this machine has no HIP runtime (libamdhip64 of ROCm)" in lines
    assert "sim:gfx950      usable" in lines
    assert "cpu:generic     usable" in lines
    heads = [line.split()[0].partition(":")[0] for line in lines]
    counts = {"cuda": 8, "ptx": 8, "hip": 3, "emu": 3, "sim": 11}  # each architecture
    assert all(heads.count(head) == count for head, count in counts.items())


def test_peaks(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def machine(measure: bool = False) -> Machine:
        asked.append(measure)
        return Machine("a processor", (Ceiling("float32", 256.04, "GFLOP/s", 2),))

    monkeypatch.setattr(ceilings, "machine", machine)
    assert (
        notebook.run("%tile peaks").text == "a processor\n  float32       2 T       256.0 GFLOP/s"
    )
    notebook.run("%tile peaks --measure")
    assert asked == [False, True]


def test_peaks_of_a_busy_machine_say_so(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    peak = Ceiling("float32", 256.04, "GFLOP/s", 2, 0.081)
    found = Machine("a processor", (peak,), "by hand", "busy or shared machine: it was")
    monkeypatch.setattr(ceilings, "machine", lambda measure=False: found)
    assert notebook.run("%tile peaks").text == (
        "a processor\n  float32       2 T       256.0 GFLOP/s  ±8.1 %\n"
        "busy or shared machine: it was"
    )


def test_peaks_of_a_guest_have_what_was_seen(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And operations on integers are no FLOP."""
    memory = Ceiling("DRAM", 90.3, "GB/s", 2, 0.01, low=52.1, shared=True)
    found = Machine("a guest", (memory, Ceiling("int8", 470.2, "GFLOP/s", 1)))
    monkeypatch.setattr(ceilings, "machine", lambda measure=False: found)
    assert notebook.run("%tile peaks").text == (
        "a guest\n"
        "  DRAM          2 T        90.3 GB/s  seen 52.1 to 90.3 GB/s\n"
        "  int8          1 T       470.2 GOP/s\n"
        "best seen of DRAM, on which other guests of the host may draw too"
    )


def test_clear_cache(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q{SCALE}")
    assert notebook.run(f"%%tile{SCALE}").value.record.cached == "memory"
    assert notebook.run("%tile clear-cache").text == ""
    assert notebook.run(f"%%tile{SCALE}").value.record.cached == ""


def test_the_kernels_text_is_stable(notebook: Notebook) -> None:
    """No time, path, address or cache state in it."""
    first = notebook.run(f"%%tile --bench 1{SCALE}").value
    second = notebook.run(f"%%tile --bench 1{SCALE}").value
    assert repr(first) == repr(second)
    assert without_counts(repr(first)) == SCALE_TEXT


def test_assert_prints_what_holds_and_raises_what_does_not(notebook: Notebook) -> None:
    notebook.run(f"%%tile -q{SCALE}")
    assert notebook.run("%tile assert scale threads==32 'warnings == 0'").out == (
        "ok  threads==32  (is 32)\nok  warnings == 0  (is 0)\n"
    )
    assert notebook.run("%tile assert scale threads<32").text == (
        "CheckError: 'scale' is not what was expected\n  FAILED  threads<32  (is 32)"
    )


def test_apply_puts_the_kernel_with_a_layout_into_a_new_cell(notebook: Notebook) -> None:
    notebook.run("""%%tile -t sim:sm_80 -D ROWS=64 turn
@tw.jit
def turn(A: T.Tensor((ROWS, 64), "float32")):
    B = T.empty((64, ROWS), "float32")
    with T.Kernel(1, threads=128) as _:
        tile = T.alloc_shared((ROWS, 64), "float32")
        T.copy(A, tile)
        for i, j in T.Parallel(64, ROWS):
            B[i, j] = tile[j, i]
    return B
""")
    assert notebook.run("%tile apply turn tile swizzle128").text == ""
    payload = notebook.shell.payload_manager.read_payload()
    text = payload[-1]["text"] if payload else notebook.shell.rl_next_input
    head, *lines = text.splitlines()
    assert head == "%%tile -t sim:sm_80 -D ROWS=64 turn"  # as it was compiled
    assert lines[5].startswith("        T.annotate_layout({tile: lambda i, j: (")
    before = notebook.value("turn.kernel.what_if('tile')[0].wavefronts")
    notebook.run(text)
    chosen = "[a.wavefronts for a in turn.kernel.what_if('tile') if a.chosen]"
    assert notebook.value(chosen) == [before]
    for line, message in (
        (
            "turn tile",
            "%tile apply takes a kernel, a tile and a layout: none, padding, swizzle32, swizzle64, "
            "swizzle128",
        ),
        ("turn tile best", "'best' is not a layout"),
        ("turn tiles none", "'turn' accesses no tile 'tiles' in shared memory"),
    ):
        assert message in notebook.run(f"%tile apply {line}").text


SIMULATED = (
    "'scale' is simulated on 'sim:sm_80': a time would be that of the simulator, not of a device\n"
    "hint: measure it with target 'cuda:sm_80' or 'cpu'; 'k.accesses' and "
    "'k.simulate(...).report' count what it does"
)


def test_the_time_of_a_simulator_is_never_shown(notebook: Notebook) -> None:
    card = SCALE_TEXT.replace(" cpu ", " sim:sm_80 ")
    for flag in ("--bench", "--roofline"):
        done = notebook.run(f"%%tile -t sim:sm_80 {flag} -o k{SCALE}")
        assert (done.error, done.out.startswith(SIMULATED)) == (None, True)
        assert done.text.endswith(card)
        assert notebook.value("k.view().bench") is None
    sweep = notebook.run(f"%%tile -t sim:sm_80 --sweep block=1,2 --bench{SWEPT}")
    assert sweep.out.startswith(SIMULATED.replace("scale", "swept"))
    assert all(point.time_us != point.time_us for point in sweep.value.points)
    assert notebook.run("tw.roofline(scale)").text == "Out[5]: <Roofline scale>"
    for line in ("%tile bench scale", "scale.compile().bench(None)"):
        assert notebook.run(line).text == f"UnsupportedError: {SIMULATED}"
    assert all(point.predicted for point in notebook.value("scale.kernel.view(True).points"))


SWEPT = """
def swept(A: T.Tensor((64, 32), "float32"), block: int = 1):
    B = T.empty((64, 32), "float32")
    with T.Kernel(64 // block, threads=32) as at:
        for i, j in T.Parallel(block, 32):
            B[at * block + i, j] = A[at * block + i, j]
    return B
"""


def test_no_output_of_a_notebook_has_a_time(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nbval compares is the same every time; only the live view has the numbers."""
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(notebook.shell, "kernel", object(), raising=False)
    notebook.run(f"%%tile -q{SCALE}")
    for cell in (
        f"%%tile --bench 1{SCALE}",
        f"%%tile --bench 1 --show none{SCALE}",
        "%tile bench scale",
        "scale.kernel.bench(*made)",
    ):
        notebook.run("import torch; made = [torch.ones(64, 32)]")
        texts = [re.sub(r"Out\[\d+\]", "Out", notebook.run(cell).text) for _ in range(2)]
        assert texts[0] == texts[1]
        assert "scale" in texts[0] and re.search(r"\d (µ|n|m)?s\b", texts[0]) is None


def test_layout_is_a_playground(notebook: Notebook) -> None:
    notebook.run("import tileworkbench.language as T")
    notebook.run("mine = T.Layout((4, 8), lambda i, j: 8 * i + j)")
    made = notebook.run("%tile layout mine --compose T.Layout((8, 4), lambda i, j: (j, i));").value
    assert made is None
    done = notebook.run("%tile layout mine --compose T.Layout((8, 4), lambda i, j: (j, i))")
    assert repr(done.value) == (
        "<Layout A 4x8 | 8 contiguous, bijective> compose(A, B) = "
        "<Layout 8x4 | 1 contiguous, bijective>"
    )
    assert "compose(A, B)" in done.text and done.text.endswith("(8*j + i,))")
    assert notebook.run("%tile layout Sw<3, 3, 3> o (8, 64)").value.result.size == 512
    assert notebook.run("%tile layout").value.layout.shape == (4, 4)
    assert notebook.run("%tile layout --help").out.startswith("Layouts as grids, without a kernel")
    assert notebook.run("%tile layout (4,").text.splitlines()[-4:] == [
        "LayoutError: This parenthesis is not closed.",
        "  --> <layout>, line 1",
        "1 | (4,",
        "  | ^",
    ]
