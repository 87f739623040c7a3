"""The chapters of the course, in one table: for contents, links from views and `%tile course`."""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Chapter:
    """One notebook.

    Attributes:
        name: of its file in ``notebooks/``, without the suffix; begins with its number.
        title: as the course's contents have it.
        about: what a reader learns there, in one line.
        views: those that it explains; each view is explained by one chapter.
    """

    name: str
    title: str
    about: str
    views: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        return int(self.name[:2])

    @property
    def file(self) -> str:
        return f"{self.name}.ipynb"


INDEX = "00_index.ipynb"

CHAPTERS = (
    Chapter(
        "01_quickstart",
        "A first kernel",
        "One kernel from its first line to its place below the machine's roof.",
        ("passes",),
    ),
    Chapter(
        "02_layouts",
        "Layouts",
        "How tiles are placed in memory and fragments in the registers of threads.",
        ("layouts",),
    ),
    Chapter(
        "03_roofline",
        "What bounds a kernel?",
        "Intensity, peak and bandwidth, measured on this machine.",
        ("roofline",),
    ),
    Chapter(
        "04_gpu_without_a_gpu",
        "A GPU kernel without a GPU",
        "The threads of a matrix product, simulated; a race caught at its line.",
        ("code",),
    ),
    Chapter(
        "05_elementwise_and_masks",
        "Element by element, and masks",
        "A grid of tiles over a tensor, and what happens at its edge.",
        ("footprint",),
    ),
    Chapter(
        "06_copies_and_coalescing",
        "Copies and coalescing",
        "Why neighbouring threads should read neighbouring bytes.",
        ("global",),
    ),
    Chapter(
        "07_shared_memory_and_banks",
        "Shared memory, swizzles and banks",
        "Why a column of a tile can cost 32 times a row, and two cures.",
        ("banks",),
    ),
    Chapter(
        "08_fragments_and_tensor_cores",
        "Fragments and tensor cores",
        "Which thread holds which element, and what one mma instruction does.",
    ),
    Chapter(
        "09_pipelining",
        "Pipelining",
        "Copies that run while the product computes, and what they cost in memory.",
        ("pipeline", "smem"),
    ),
    Chapter(
        "10_softmax_and_normalisation",
        "Reductions: softmax and normalisation",
        "Rows that become numbers, and numbers that overflow.",
        ("numerics",),
    ),
    Chapter(
        "11_flash_attention",
        "Flash attention, step by step",
        "A softmax that never sees its whole row, and the kernel built on it.",
    ),
    Chapter(
        "12_decoding_and_split_k",
        "Decoding and split-K",
        "When there is too little work for the grid: cut the sum, and join the parts.",
    ),
    Chapter(
        "13_dequantised_matmul",
        "Weights of four bits",
        "Fewer bytes per weight, unpacked in registers just before the product.",
    ),
    Chapter(
        "14_linear_attention",
        "Linear attention",
        "Attention as a running state, computed chunk by chunk.",
    ),
    Chapter(
        "15_block_sparse",
        "Tiles that need no work",
        "Leaving out tiles of zeros: masks, lists of tiles, windows.",
    ),
    Chapter(
        "16_dynamic_shapes",
        "Dynamic shapes",
        "One compiled kernel for every size.",
    ),
    Chapter(
        "17_debugging_a_wrong_kernel",
        "Debugging a wrong kernel",
        "From a wrong number to the line that made it.",
        ("errors", "prints", "replay"),
    ),
    Chapter(
        "18_roofline_and_tuning",
        "Reading a roofline and tuning",
        "What to change next, and how to see that it helped.",
        ("source",),
    ),
    Chapter(
        "19_threads_shuffles_barriers",
        "Threads, shuffles, barriers",
        "Below the tiles: what a single thread does, and how threads meet.",
    ),
    Chapter(
        "20_hopper_without_a_hopper",
        "Hopper without a Hopper",
        "What sm_90 adds, on simulated threads.",
    ),
    Chapter(
        "21_writing_for_a_cpu",
        "Writing for a CPU",
        "The same kernels on vectors and caches.",
    ),
    Chapter(
        "22_from_triton",
        "For those who know Triton",
        "What is called what, and what is different.",
    ),
    Chapter(
        "23_puzzles",
        "Puzzles",
        "Eighteen kernels to complete, from adding two vectors to flash attention.",
    ),
    Chapter(
        "24_from_torch_to_threads",
        "From torch code to threads",
        "One function on three levels: plain torch, tiles, single threads.",
    ),
    Chapter(
        "25_four_machines",
        "One kernel on four machines",
        "A processor, two GPUs of NVIDIA, one of AMD: what each makes of the same tiles.",
    ),
    Chapter(
        "26_tuning_with_a_model",
        "Tuning with a model",
        "Tile sizes ranked by predicted time, for machines that are here and others.",
    ),
)


def chapter_of(view: str) -> Chapter | None:
    """The chapter that explains the view of that name."""
    return next((each for each in CHAPTERS if view in each.views), None)


def pointer(view: str) -> str:
    """Where one learns to read the view `view`: a sentence that ends its explanation, or empty."""
    chapter = chapter_of(view)
    if chapter is None:
        return ""
    number = chapter.number
    return f"Chapter {number} of the course explains this, '{chapter.title}': %tile course {number}"
