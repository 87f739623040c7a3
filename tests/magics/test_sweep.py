"""`--sweep` and `--slide` in a notebook."""

from __future__ import annotations

from tests.magics.notebook import Notebook

CELL = """
def add(A, N: int = 256, block: int = 64):
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] + 1.0
    return B
"""


def test_a_sweep_is_what_the_cell_shows(notebook: Notebook) -> None:
    done = notebook.run(f"%%tile -t sim:sm_80 -o found --sweep block=32,64 N=128{CELL}")
    text = "<sweep of add sim:sm_80 | block=32,64 N=128 | 2 points>"
    assert done.text == f"Out[2]: {text}"
    assert repr(notebook.shell.user_ns["found"]) == text
    assert notebook.run(f"%%tile -q -t sim:sm_80 --sweep block=32{CELL}").text == ""


def test_the_target_of_the_line_counts(notebook: Notebook) -> None:
    found = notebook.run(f"%%tile -t sim:sm_90 --sweep block=32\n@tw.jit{CELL}").value
    assert found.target == "sim:sm_90"


def test_with_bench_it_measures(notebook: Notebook) -> None:
    found = notebook.run(f"%%tile --bench 2 --sweep block=32,64{CELL}").value
    assert all(point.time_us > 0 and not point.error for point in found.points)


def test_wrong_sweeps(notebook: Notebook) -> None:
    for flags, message in (
        ("--sweep block", "UsageError: '--sweep block' should read '--sweep NAME=V,V'"),
        ("--sweep block=1 block=2", "UsageError: '--sweep block' is given twice"),
        ("--sweep block=x", "UsageError: '--sweep block=x': name 'x' is not defined"),
        (
            "--sweep blok=1",
            "ArgumentError: 'blok' is no compile-time argument of 'add'",
        ),
    ):
        assert notebook.run(f"%%tile {flags}{CELL}").text == message
    made = CELL.replace("\ndef add", "\n@tw.jit\ndef add") + "\nadd = add.compile()"
    assert notebook.run(f"%%tile add --sweep block=32{made}").text == (
        "UsageError: '--sweep': 'add' is compiled already; sweep a function"
    )


def test_a_slider_compiles_anew_and_keeps_the_last_good_card(notebook: Notebook) -> None:
    widget = notebook.run(f"%%tile -t sim:sm_80 --slide block=32,64,128 N=256,512{CELL}").value
    assert widget.sliders == [
        {"name": "block", "values": ["32", "64", "128"], "at": 1},
        {"name": "N", "values": ["256", "512"], "at": 0},
    ]
    sent: list[dict[str, object]] = []
    widget.send = lambda content, buffers=None: sent.append(content)
    grids = []
    for places in ([0, 0], [2, 1]):
        widget._receive(widget, {"type": "slide", "request": 1, "places": places}, [])
        grids.append(widget.card["facts"][0]["value"])
    assert grids == ["8", "4"]
    assert [reply["value"] for reply in sent] == [{}, {}]
    assert [slider["at"] for slider in widget.sliders] == [2, 1]


def test_a_value_that_does_not_compile_is_a_message(notebook: Notebook) -> None:
    tile = CELL.replace(
        "        for i",
        "        s = T.alloc_shared((block,), 'float32')\n        s[0] = 1.0\n        for i",
    )
    widget = notebook.run(f"%%tile -t sim:sm_80 --slide block=64,65536{tile}").value
    sent: list[dict[str, dict[str, str]]] = []
    widget.send = lambda content, buffers=None: sent.append(content)
    widget._receive(widget, {"type": "slide", "request": 1, "places": [1]}, [])
    assert sent[0]["value"]["error"].startswith("the block needs 262144 bytes of shared memory")
    assert widget.card["facts"][0]["value"] == "4"


def test_wrong_sliders(notebook: Notebook) -> None:
    assert notebook.run(f"%%tile --slide A=1,2{CELL}").text == (
        "UsageError: '--slide A': no compile-time argument of 'add'"
    )
    made = CELL.replace("\ndef add", "\n@tw.jit\ndef add") + "\nadd = add.compile()"
    assert notebook.run(f"%%tile add --slide block=32{made}").text == (
        "UsageError: '--slide': 'add' is compiled already; slide over a function"
    )


CONSTANTS = """
print("once")
width = 2
@T.macro
def fill(tile, value):
    for i in T.Parallel(block):
        tile[i] = value
def add(A: T.Tensor((N,), "float32")):
    B = T.empty((N,), "float32")
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        tile = T.alloc_shared((block,), "float32")
        fill(tile, 1.0)
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] + tile[i]
    return B
"""


def test_constants_of_the_cell_are_swept(notebook: Notebook) -> None:
    """Those of -D, those only given here, in macros and shapes too; nothing else runs again."""
    done = notebook.run(f"%%tile -t sim:sm_80 -D N=256 --sweep block=32,64 N=128,512{CONSTANTS}")
    assert done.out.count("once") == 1
    points = done.value.points
    assert [tuple(point.config.values()) for point in points] == [
        *((32, 128), (32, 512), (64, 128), (64, 512))
    ]
    assert [point.kernel.grid for point in points] == [(4,), (16,), (2,), (8,)]
    assert [point.shared_bytes for point in points] == [128, 128, 256, 256]
    assert notebook.value("width") == 2 and notebook.value("'block' in globals()") is False


def test_constants_of_the_cell_have_sliders(notebook: Notebook) -> None:
    widget = notebook.run(f"%%tile -t sim:sm_80 -D N=256 --slide block=32,64 N=128,256{CONSTANTS}")
    widget = widget.value
    assert [slider["at"] for slider in widget.sliders] == [0, 1]
    widget._receive(widget, {"type": "slide", "request": 1, "places": [1, 0]}, [])
    assert [slider["at"] for slider in widget.sliders] == [1, 0]
    assert notebook.value("add.kernel.grid") == (8,)  # what the cell compiled
    wrong = notebook.run(f"%%tile -t sim:sm_80 --slide block=64 width=1,2 -D N=128{CONSTANTS}")
    assert wrong.text.endswith("UsageError: '--slide width': no compile-time argument of 'add'")
