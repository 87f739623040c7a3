"""What a `%%tile` cell does when nothing is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.magics.notebook import MATMUL, MATMUL_SHAPES, SCALE, SCALE_TEXT, Notebook
from tileworkbench.api import Jit
from tileworkbench.bench import ceilings
from tileworkbench.bench import roofline as bench_roofline
from tileworkbench.bench.points import Ceiling, Machine
from tileworkbench.compiler.device.host.processor import machine_name
from tileworkbench.workbench.kernel import Kernel

# The cell and its value


def test_a_cell_shows_its_kernel_and_binds_its_function(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile{SCALE}")
    assert done.error is None
    assert done.text == f"Out[2]: {SCALE_TEXT}"
    assert isinstance(done.value, Kernel)
    assert isinstance(notebook.value("scale"), Jit)
    assert notebook.value("_ is Out[2]") and notebook.value("Out[2] is scale.kernel")
    assert notebook.value("scale")(torch.ones(64, 32)).eq(2).all()


def test_only_the_names_of_the_cell_appear(notebook: Notebook) -> None:
    before = notebook.names()
    notebook.run(f"%%tile -D M=3\nx = M\nimport math{SCALE}")
    assert notebook.names() - before == {"x", "math", "scale"}
    assert notebook.value("tw.__name__") == "tileworkbench"


def test_names_of_the_users_own_are_left_alone(notebook: Notebook) -> None:
    notebook.run("tw = 'mine'")
    notebook.run(f"%%tile{SCALE}")
    assert notebook.value("tw") == "mine"


def test_a_semicolon_silences_the_card(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile{SCALE};")
    assert done.text == "" and done.value is None and done.error is None


def test_quiet_prints_nothing_and_still_binds(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -q -v --check 'lambda A: A * 2' -o k{SCALE}")
    assert done.text == "" and done.value is None and done.error is None
    assert repr(notebook.value("k")).endswith("| check ok>")


def test_verbose_says_what_is_done(notebook: Notebook) -> None:
    notebook.run("%tile clear-cache")
    done = notebook.run(f"%%tile -v --check 'lambda A: A * 2'{SCALE}")
    lines = done.out.splitlines()
    assert [line.split(" in ")[0] for line in lines[:2]] == [
        "ran the cell",
        "scale: compiled for cpu",
    ]
    assert lines[2].startswith("scale: agrees with lambda A: A * 2, largest error 0 of ")
    assert len(lines) == 4


def test_an_unchanged_cell_is_served_from_memory(notebook: Notebook) -> None:
    first = notebook.run(f"%%tile {MATMUL_SHAPES}{MATMUL}")
    again = notebook.run(f"%%tile {MATMUL_SHAPES}{MATMUL}")
    flags = notebook.run(f"%%tile matmul -v {MATMUL_SHAPES}{MATMUL}")
    changed = notebook.run(
        f"%%tile {MATMUL_SHAPES}{MATMUL.replace('num_stages=2', 'num_stages=3')}"
    )
    assert first.value.record.cached != "memory"
    assert again.value.record.cached == "memory"
    assert "matmul: cached (memory) for cpu in " in flags.out
    assert changed.value.record.cached != "memory"
    assert first.text.split(": ", 1)[1] == again.text.split(": ", 1)[1]


def test_unicode_in_the_body(notebook: Notebook) -> None:
    cell = SCALE.replace("block", "αβγ").replace("\n    return", "  # 行列 🚀\n    return")
    done = notebook.run(f"%%tile\ngröße = 'ß'{cell}")
    assert done.error is None and done.value.name == "scale"
    assert notebook.value("größe") == "ß"


def test_ipython_syntax_works_in_the_body(notebook: Notebook) -> None:
    notebook.run("%%tile\nfolder = !echo here" + SCALE)
    assert list(notebook.value("folder")) == ["here"]


def test_future_imports_of_the_notebook_hold_and_ours_do_not(notebook: Notebook) -> None:
    notebook.run(f"%%tile{SCALE}\ndef plain(x: int): pass")
    assert notebook.value("plain.__annotations__") == {"x": int}
    notebook.run("from __future__ import annotations")
    done = notebook.run(
        f"%%tile -D R=64{SCALE.replace('64, 32', 'R, 32')}\ndef plain(x: int): pass"
    )
    assert notebook.value("plain.__annotations__") == {"x": "int"}
    assert done.error is None and done.value.program.params[0].value.name == "A"


def test_a_trailing_kernel_of_several_is_shown_unless_another_is_named(notebook: Notebook) -> None:
    two = SCALE + SCALE.replace("scale", "again")
    assert notebook.run(f"%%tile{two}").value.name == "again"
    done = notebook.run(f"%%tile scale{two}")
    assert done.value.name == "scale"
    assert notebook.value("again(torch.ones(64, 32)) if 0 else again.fn.__name__") == "again"


def test_a_second_cell_of_the_same_name_replaces_the_first(notebook: Notebook) -> None:
    notebook.run(f"%%tile{SCALE}")
    kept = notebook.value("scale")
    notebook.run(f"%%tile{SCALE.replace('* 2.0', '* 3.0')}")
    assert notebook.value("scale")(torch.ones(64, 32)).eq(3).all()
    assert kept(torch.ones(64, 32)).eq(2).all()


def test_the_cell_may_call_its_kernel(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile\nimport torch{SCALE}\nresult = scale(torch.ones(64, 32))")
    assert done.error is None
    assert notebook.value("result").eq(2).all()


# Kinds of kernels


def test_a_decorated_function(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile\n@tw.jit{SCALE}")
    assert done.value.name == "scale"


def test_a_prim_func_is_compiled_and_stays_what_it_is(notebook: Notebook) -> None:
    done = notebook.run("""%%tile
@T.prim_func
def copy(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            B[i] = A[i]
""")
    assert done.value.name == "copy"
    assert notebook.value("type(copy).__name__") == "PrimFunc"


LAZY = """
def make(rows, block=8):
    @T.prim_func
    def twice(A: T.Tensor((rows, 8), "float32"), B: T.Tensor((rows, 8), "float32")):
        with T.Kernel(rows // block, threads=32) as bx:
            for i, j in T.Parallel(block, 8):
                B[bx * block + i, j] = A[bx * block + i, j] * 2.0
    return twice
"""


def test_a_lazy_function_takes_its_arguments_from_D(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -D rows=32{LAZY}")
    assert repr(done.value).startswith("<TileKernel twice[rows=32,block=8] cpu grid=4 ")
    with_default = notebook.run(f"%%tile -D rows=32 -D block=16\n@tw.jit(out_idx=-1){LAZY}")
    assert repr(with_default.value).startswith("<TileKernel twice[rows=32,block=16] cpu grid=2 ")
    assert with_default.value(torch.ones(32, 8)).eq(2).all()


def test_a_lazy_function_without_its_arguments_waits_for_a_call(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile{LAZY}")
    assert done.text == "make: compiled when it is called, for the shapes it gets"
    assert notebook.value("make(16)").grid == (2,)


DYNAMIC = """
def double(A):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    B = T.empty((M, N), "float32")
    with T.Kernel(M, threads=32) as row:
        for j in T.Parallel(N):
            B[row, j] = A[row, j] * 2.0
    return B
"""


def test_constants_read_from_shapes_wait_for_a_call_or_come_from_D(notebook: Notebook) -> None:
    waits = notebook.run(f"%%tile -o later{DYNAMIC}")
    assert waits.text == "double: compiled when it is called, for the shapes it gets"
    assert notebook.value("later is double")
    half = notebook.run(f"%%tile -D M=3{DYNAMIC}")
    assert half.text == f"{waits.text} (now with -D N=...)"
    runs = notebook.run(f"%%tile --run 'import torch; r = double(torch.ones(3, 5))'{DYNAMIC}")
    assert "double[M=3,N=5]" in runs.text
    given = notebook.run(f"%%tile -D M=4 -D N=6{DYNAMIC}")
    assert "double[M=4,N=6]" in given.text


def test_a_kernel_made_by_the_cell(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile made\n@tw.jit{LAZY}\nmade = make(24)")
    assert done.value is notebook.value("made") and done.value.grid == (3,)


# -D


def test_constants_are_seen_by_the_cell_alone(notebook: Notebook) -> None:
    notebook.run("M = 'mine'; seen = None")
    done = notebook.run(f"%%tile {MATMUL_SHAPES}\nseen = M, [K for _ in range(2)]{MATMUL}")
    assert done.text.startswith("Out[3]: <TileKernel matmul[BLOCK=16,K=32,M=64,N=48] cpu grid=3x4 ")
    assert notebook.value("M") == "mine" and notebook.value("seen") == (64, [32, 32])
    assert not {"N", "K", "BLOCK", "_tile_jit"} & set(notebook.shell.user_ns)


def test_constants_live_on_in_the_functions(notebook: Notebook) -> None:
    """A kernel is traced when it is called, after the cell."""
    notebook.run(
        f"%%tile -D FACTOR=5.0{DYNAMIC.replace('2.0', 'FACTOR')}\ndef helper(): return FACTOR"
    )
    assert notebook.value("double")(torch.ones(2, 3)).eq(5).all()
    assert notebook.value("helper()") == 5.0


def test_two_cells_with_other_constants_are_two_kernels(notebook: Notebook) -> None:
    body = SCALE.replace("2.0", "FACTOR")
    notebook.run(f"%%tile -D FACTOR=2.0{body}")
    two = notebook.value("scale")
    done = notebook.run(f"%%tile -D FACTOR=3.0{body}")
    assert done.value.record.cached != "memory"
    assert two(torch.ones(64, 32)).eq(2).all()
    assert notebook.value("scale")(torch.ones(64, 32)).eq(3).all()


def test_values_are_python_of_the_users_namespace(notebook: Notebook) -> None:
    notebook.run("rows, kinds = 32, {'a': 'float32'}")
    cell = SCALE.replace("64, 32", "R, 32").replace('"float32"', "KIND").replace("2.0", "F[1]")
    done = notebook.run(f"%%tile -D 'R=rows * 2' -D KIND=kinds['a'] -D F=(1, 2.0){cell}")
    assert done.error is None and repr(done.value).startswith(
        "<TileKernel scale[KIND='float32',R=64]"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "x: int = M",
        "from math import *\nx = M",
        "class x:\n    y = M",
        "if M:\n    x: int = M",
    ],
)
def test_every_statement_works_beside_constants(notebook: Notebook, statement: str) -> None:
    done = notebook.run(f"%%tile -D M=64\n{statement}{SCALE.replace('64', 'M')}")
    assert done.error is None
    assert notebook.value("getattr(x, 'y', x)") == 64
    assert "M" not in notebook.shell.user_ns


def test_a_cell_may_change_its_constants(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -D M=64\nM = 7\nx = M{SCALE.replace('64', 'M')}")
    assert "scale[M=7]" in done.text and notebook.value("x") == 7
    assert "M" not in notebook.shell.user_ns


def test_functions_and_classes_keep_their_names_beside_constants(notebook: Notebook) -> None:
    """They can be pickled, and tracebacks name them as usual."""
    notebook.run(f"%%tile -D M=1\nclass Box:\n    y = M\ndef helper(): return helper{SCALE}")
    assert notebook.value("Box.__qualname__") == "Box"
    assert notebook.value("helper.__qualname__") == "helper"
    assert notebook.value("helper() is helper")


# Flags


def test_target(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -t cpu:generic{SCALE}")
    assert done.value.target == "cpu:generic" and "scale cpu:generic" in done.text
    decorated = notebook.run(f"%%tile --target=cpu:generic\n@tw.jit(target='cpu'){SCALE}")
    assert decorated.value.target == "cpu:generic"
    assert notebook.value("scale").target == "cpu:generic"
    assert notebook.run(f"%%tile -t auto{SCALE}").value.target == "cpu"


def test_check_with_a_function_of_the_cell(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile --check ref\ndef ref(A): return A * 2{SCALE}")
    assert done.text.endswith("| check ok>")


WRITES = """
def twice(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(16):
            B[i] = A[i] * 2.0
"""


def test_check_of_a_kernel_that_writes_to_a_parameter(notebook: Notebook) -> None:
    assert notebook.run(f"%%tile --check 'lambda A: A * 2'{WRITES}").text.endswith("| check ok>")
    in_place = WRITES.replace("B[i] = A[i] * 2.0", "B[i] = B[i] + A[i]")
    done = notebook.run(f"%%tile --check 'lambda A, B: A + B'{in_place}")
    assert done.text.endswith("| check ok>")


def test_bench(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile --bench 2 -o k{SCALE}")
    measured, card = done.text.splitlines()
    assert re.match(r"scale: [\d.]+ [µm]s \(quartiles [\d.]+ [µm]s and .* [MG]B/s", measured)
    assert card.endswith(SCALE_TEXT)
    assert notebook.value("k.view().bench") is not None
    assert notebook.run(f"%%tile --bench -q{SCALE}").text == ""


def test_bench_with_cold_caches(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile --cold --bench 2 -o k{SCALE}")
    assert ", cold caches)" in done.text
    assert notebook.value("k.view().bench.cold") is True
    refused = notebook.run(f"%%tile --cold --sweep n=1,2{SCALE}")
    assert "'--cold' is of one kernel; '--sweep' measures with warm caches" in refused.text


def test_bench_beside_the_reference_of_the_check(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile --check 'lambda A: A * 2' --bench 2 -o k{SCALE}")
    assert done.error is None
    assert "times as fast as lambda A: A * 2 (" in done.text
    assert "times as fast" in notebook.value("k.view().bench.comparison")


def test_roofline(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = [Ceiling("L1", 100.0, "GB/s", 1), Ceiling("float32", 1e6, "GFLOP/s", 1)]
    machine = Machine("a processor", tuple(peaks))
    monkeypatch.setattr(ceilings, "machine", lambda measure=False: machine)
    monkeypatch.setattr(bench_roofline, "machine", lambda measure=False: machine)
    for flags in ("--roofline", "--show roofline,card"):
        done = notebook.run(f"%%tile {flags} -o k{SCALE}")
        assert done.error is None and done.text.endswith(SCALE_TEXT)
        points = notebook.value("k.view(roofline=True).points")
        assert [point.name for point in points] == ["scale"]
    assert "<Roofline scale>" in done.text


def test_a_trail_has_what_ran_before_the_ceilings_were_known(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of other machines, whose times are no trail of this one's."""
    peaks = [Ceiling("L1", 100.0, "GB/s", 1), Ceiling("float32", 1e6, "GFLOP/s", 1)]
    known = Machine(machine_name(), tuple(peaks))
    monkeypatch.setattr(ceilings, "known_machine", lambda: None)
    for factor in (2.0, 3.0):
        notebook.run(f"%%tile -q --bench 2{SCALE.replace('2.0', str(factor))}")
    notebook.run(f"%%tile -q -t sim:sm_80{SCALE}")
    for module in (ceilings, bench_roofline):
        monkeypatch.setattr(module, "machine", lambda measure=False: known)
    monkeypatch.setattr(ceilings, "known_machine", lambda: known)
    notebook.run(f"%%tile -q --bench 2 -o k{SCALE.replace('2.0', '4.0')}")
    [point] = notebook.value("k.view(roofline=True).points")
    assert point.trail.number == 4
    assert [step.number for step in point.trail.before] == [1, 2]
    assert all(step.time_us > 0 and not step.predicted for step in point.trail.before)


def test_show_several_views_and_none(notebook: Notebook) -> None:
    both = notebook.run(f"%%tile --show passes,card{SCALE}")
    assert both.text.startswith(f"{SCALE_TEXT}\n") and " flatten_buffers " in both.text
    assert both.text.endswith(f"\nOut[2]: {SCALE_TEXT}")
    one = notebook.run(f"%%tile --show passes:plan_scratch{SCALE}")
    assert one.text.startswith(f"{SCALE_TEXT}\n") and one.value is None
    none = notebook.run(f"%%tile --show none{SCALE}")
    assert none.text == "" and none.value is None


def test_save(notebook: Notebook, tmp_path: Path) -> None:
    done = notebook.run(f"%%tile --save '{tmp_path}/a card.html'{SCALE}")
    assert done.error is None
    assert "scale" in (tmp_path / "a card.html").read_text()


def test_run_is_run_in_the_users_namespace(notebook: Notebook) -> None:
    notebook.run("import torch")
    done = notebook.run(f"%%tile --run 'C = scale(torch.ones(64, 32)).sum().item()'{SCALE}")
    assert done.text.endswith(SCALE_TEXT) and notebook.value("C") == 4096.0


def test_help(notebook: Notebook) -> None:
    by_flag = notebook.run("%%tile --help\n#")
    assert by_flag.out.startswith("usage: %%tile [NAME] [flags]\n")
    for flag in (
        "-D",
        "-t",
        "--show",
        "--run",
        "--check",
        "--bench",
        "--roofline",
        "-o",
        "-q",
        "-v",
    ):
        assert f"\n  {flag}" in by_flag.out
    inspected = notebook.run("%%tile?")
    assert by_flag.out.strip() in inspected.out
    line = notebook.run("%tile?")
    words = " ".join(line.out.split())
    assert "%tile bench KERNEL [ARGS...] [--cold] measure it on these arguments" in words


# The extension


def test_loading_again_is_silent_and_changes_nothing(notebook: Notebook) -> None:
    import tileworkbench

    before = list(notebook.shell.Completer.custom_matchers)
    tileworkbench.load_ipython_extension(notebook.shell)
    assert notebook.shell.Completer.custom_matchers == before
    reloaded = notebook.run("%reload_ext tileworkbench")
    assert reloaded.text == "" and len(notebook.shell.Completer.custom_matchers) == len(before)
    assert notebook.run(f"%%tile{SCALE}").error is None


def test_unloading_leaves_nothing(notebook: Notebook) -> None:
    notebook.run("%unload_ext tileworkbench")
    shell = notebook.shell
    assert "tile" not in shell.magics_manager.magics["cell"]
    assert "tile" not in shell.magics_manager.magics["line"]
    assert shell.Completer.custom_matchers == [] and shell.custom_exceptions == ()
    assert notebook.run("%unload_ext tileworkbench").error is None


def test_loading_is_light() -> None:
    """What compiles is loaded by the first cell; `%load_ext` loads the language alone."""
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "import sys\n"
        "shell = InteractiveShell.instance()\n"
        "before = set(sys.modules)\n"
        "shell.run_line_magic('load_ext', 'tileworkbench')\n"
        "print(*sorted({n.split('.')[0] for n in set(sys.modules) - before}\n"
        "              - set(sys.stdlib_module_names)))\n"
    )
    environment = {**os.environ, "IPYTHONDIR": os.environ["TILEWORKBENCH_CACHE_DIR"]}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    loaded = {name for name in done.stdout.split() if not name.startswith("_sysconfigdata")}
    assert loaded <= {"IPython", "tileworkbench"}


TUNED = """
@tw.autotune(configs=[{"block": 16}, {"block": 32}])
@tw.jit
def tuned(A: T.Tensor((64,), "float32"), block: int = 8):
    B = T.empty((64,), "float32")
    with T.Kernel(64 // block, threads=32) as b:
        for i in T.Parallel(block):
            B[b * block + i] = A[b * block + i] * 2.0
    return B
"""


def test_a_tuned_kernel_waits_for_its_call(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile{TUNED}")
    assert done.error is None
    assert done.text == "tuned: compiled when it is called, for the shapes it gets"
    notebook.run("import torch")
    assert notebook.value("tuned(torch.ones(64))").eq(2).all()
    assert notebook.run("%tile show tuned").error is None
    refused = notebook.run(f"%%tile --check torch.abs{TUNED}")
    assert str(refused.error) == "'tuned' is tuned when it is called: call it with --run"
