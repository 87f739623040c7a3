"""C that asks an x86-64 processor for the features that machine code was made for."""

from __future__ import annotations

from collections.abc import Iterable

# Feature -> leaf, subleaf, register and bit of CPUID: Intel, "Architecture instruction set
# extensions programming reference", chapter 1; AMD, "AMD64 architecture programmer's manual",
# volume 3, appendix E.
_EBX, _ECX, _EDX, _EAX = 1, 2, 3, 0
_BITS: dict[str, tuple[int, int, int, int]] = {
    "sse3": (1, 0, _ECX, 0),
    "pclmul": (1, 0, _ECX, 1),
    "ssse3": (1, 0, _ECX, 9),
    "fma": (1, 0, _ECX, 12),
    "cx16": (1, 0, _ECX, 13),
    "sse4.1": (1, 0, _ECX, 19),
    "sse4.2": (1, 0, _ECX, 20),
    "movbe": (1, 0, _ECX, 22),
    "popcnt": (1, 0, _ECX, 23),
    "avx": (1, 0, _ECX, 28),
    "f16c": (1, 0, _ECX, 29),
    "bmi": (7, 0, _EBX, 3),
    "avx2": (7, 0, _EBX, 5),
    "bmi2": (7, 0, _EBX, 8),
    "avx512f": (7, 0, _EBX, 16),
    "avx512dq": (7, 0, _EBX, 17),
    "adx": (7, 0, _EBX, 19),
    "avx512ifma": (7, 0, _EBX, 21),
    "avx512cd": (7, 0, _EBX, 28),
    "avx512bw": (7, 0, _EBX, 30),
    "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1),
    "avx512vbmi2": (7, 0, _ECX, 6),
    "gfni": (7, 0, _ECX, 8),
    "vaes": (7, 0, _ECX, 9),
    "vpclmulqdq": (7, 0, _ECX, 10),
    "avx512vnni": (7, 0, _ECX, 11),
    "avx512bitalg": (7, 0, _ECX, 12),
    "avx512vpopcntdq": (7, 0, _ECX, 14),
    "avx512vp2intersect": (7, 0, _EDX, 8),
    "amx-bf16": (7, 0, _EDX, 22),
    "avx512fp16": (7, 0, _EDX, 23),
    "amx-tile": (7, 0, _EDX, 24),
    "amx-int8": (7, 0, _EDX, 25),
    "avxvnni": (7, 1, _EAX, 4),
    "avx512bf16": (7, 1, _EAX, 5),
    "amx-fp16": (7, 1, _EAX, 21),
    "lzcnt": (0x80000001, 0, _ECX, 5),
    "sse4a": (0x80000001, 0, _ECX, 6),
}
# Registers that the system must save too: bits of XCR0 (Intel, volume 1, section 13.3).
_YMM, _ZMM, _TILES = 0x6, 0xE6, 0x60000

_NONE = "static const char *lacking(void) { return NULL; }\n"
_TEXT = """\
/* What the machine code uses: a feature's name, and where CPUID says whether it is there. */
static const struct { const char *name; unsigned leaf, subleaf, word, bit; } needed[] = {
@ROWS@
};

static int has(unsigned leaf, unsigned subleaf, unsigned word, unsigned bit) {
    unsigned most = __get_cpuid_max(leaf & 0x80000000u, NULL), words[4] = {0};
    if (most < leaf) return 0;
    __cpuid_count(leaf, subleaf, words[0], words[1], words[2], words[3]);
    return words[word] >> bit & 1;
}

static const char *find_lacking(void) {
    for (unsigned i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!has(needed[i].leaf, needed[i].subleaf, needed[i].word, needed[i].bit))
            return needed[i].name;
    unsigned saved = 0, high = 0;
    if (has(1, 0, 2, 27)) __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & @SAVED@) != @SAVED@) return "vector registers that the system saves";
@TILES@    return NULL;
}

static const char *lacking(void) {
    static _Atomic(const char *) answer;
    static atomic_int known;
    if (!atomic_load(&known)) atomic_store(&answer, find_lacking()), atomic_store(&known, 1);
    return atomic_load(&answer);
}
"""
# Linux gives a process the tiles of AMX when it asks for them: arch_prctl(ARCH_REQ_XCOMP_PERM,
# XFEATURE_XTILEDATA).
_ASK = """\
#ifdef __linux__
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return "amx-tile, which the system refuses";
#endif
"""


def features_text(features: Iterable[str]) -> str:
    """The C function `lacking`: the first of the features, in LLVM's names, that a processor lacks,
    or NULL. Those of other processors than x86-64 are not asked for.
    """
    needed = [name for name in _BITS if name in frozenset(features)]
    if not needed:
        return _NONE
    rows = "\n".join(
        f'    {{"{name}", {leaf:#x}u, {subleaf}, {word}, {bit}}},'
        for name, (leaf, subleaf, word, bit) in ((name, _BITS[name]) for name in needed)
    )
    saved = _ZMM if "avx512f" in needed else _YMM if "avx" in needed else 0
    tiles = "amx-tile" in needed
    text = "#include <cpuid.h>\n" + _TEXT.replace("@ROWS@", rows)
    text = text.replace("@SAVED@", f"{saved | (_TILES if tiles else 0):#x}u")
    return text.replace("@TILES@", _ASK if tiles else "")
