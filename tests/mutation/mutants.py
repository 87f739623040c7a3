"""Every single mistake of these kinds, at every place, in a lowered kernel or in its PTX."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import TRUE, add, binary, const_int, int_const, unary
from tileworkbench.compiler.ir.expr import Address, Expr, Load, Ramp
from tileworkbench.compiler.ir.printer import print_stmt
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, walk


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one mistake: its kind, and the statement or line it was made in."""

    kind: str
    place: str
    program: Program | str


def ir_mutants(program: Program) -> Iterator[Mutant]:
    """The mutants of a program in the SIMT stage whose buffers have their layouts still."""
    for number, stmt in enumerate(statements(program.body)):
        for kind, changed in _changes(stmt):
            body = _replaced(program.body, number, changed)
            text = print_stmt(stmt).splitlines()[0].strip()
            yield Mutant(kind, f"{number}: {text[:110]}", replace(program, body=body))


def _replaced(root: st.Stmt, number: int, changed: st.Stmt) -> st.Stmt:
    """`root` with its statement `number`, counted as `statements` does, put in its place."""
    target = list(statements(root))[number]

    def change(stmt: st.Stmt) -> st.Stmt:
        if stmt is target:
            return changed
        return stmt.map_children(
            lambda child: change(child) if isinstance(child, st.Stmt) else child
        )

    made = change(root)
    return Rewriter(rewrite_stmt=lambda found: found)(made)  # sequences in sequences are joined


_NOTHING = st.Seq(())


def _changes(stmt: st.Stmt) -> Iterator[tuple[str, st.Stmt]]:
    yield from _hopper(stmt)
    match stmt:
        case simt.Barrier():
            yield "barrier dropped", _NOTHING
        case simt.WaitGroup(pending):
            yield "wait count + 1", replace(stmt, pending=pending + 1)
            yield "wait dropped", _NOTHING
        case simt.CommitGroup():
            yield "commit dropped", _NOTHING
        case simt.AsyncCopy():
            yield "copy dropped", _NOTHING
            yield from _addresses(stmt, ("dst", "src"))
            if stmt.predicate is not None:
                yield "predicate dropped", replace(stmt, predicate=None)
        case simt.LoadMatrix(transpose=transpose):
            yield "transposition flipped", replace(stmt, transpose=not transpose)
            yield from _addresses(stmt, ("src",))
            yield from _registers(stmt, "dst")
        case simt.Mma():
            yield "product dropped", _NOTHING
            yield from _registers(stmt, "c")
        case simt.Exchange(kind="shfl_xor", args=(value, distance)):
            yield "wrong lane", replace(stmt, args=(value, binary("xor", distance, int_const(8))))
        case st.Let(var, value) if var.dtype == "int32" and not _has_load(value):
            yield "name off by one", replace(stmt, value=add(value, int_const(1)))
        case st.Store(predicate=Expr()) | st.Atomic(predicate=Expr()):
            yield "predicate dropped", replace(stmt, predicate=None)
        case st.If(cond) if cond is not TRUE:
            yield "guard dropped", replace(stmt, cond=TRUE)
    match stmt:
        case st.Store(buffer, indices) if buffer.scope in ("shared", "global"):
            yield "store moved", replace(stmt, indices=_moved(indices))
        case st.Atomic(buffer=buffer, indices=indices):
            yield "update dropped", _NOTHING
            yield "update moved", replace(stmt, indices=_moved(indices))
        case st.For(stop=stop) if (const_int(stop) or 0) > 1:
            yield "one iteration less", replace(stmt, stop=int_const(const_int(stop) - 1))
        case st.Alloc(buffer, offset=offset) if buffer.scope == "shared" and offset:
            yield "buffers overlap", replace(stmt, offset=offset - 128)


def _hopper(stmt: st.Stmt) -> Iterator[tuple[str, st.Stmt]]:
    """Mistakes with memory barriers, the copy engine and products of warpgroups."""
    match stmt:
        case simt.BarrierWait(parity=parity):
            yield "parity flipped", replace(stmt, parity=binary("xor", parity, int_const(1)))
            yield "wait dropped", _NOTHING
        case simt.BarrierArrive():
            yield "release dropped", _NOTHING
        case simt.BarrierSignal(arrivals=arrivals, bytes_=bytes_):
            yield "16 bytes more", replace(stmt, bytes_=bytes_ + 16)
            yield "16 bytes less", replace(stmt, bytes_=bytes_ - 16)
            yield "arrival dropped", replace(stmt, arrivals=arrivals - 1)
        case simt.BarrierInit(count=count):
            yield "count + 1", replace(stmt, count=add(count, int_const(1)))
        case simt.Role(start, extent):
            yield "role boundary", replace(stmt, extent=extent - 32)
            yield "role boundary", replace(stmt, start=start + 32, extent=extent - 32)
        case simt.SetRegisters(count):
            yield "8 registers more", replace(stmt, count=count + 8)
            yield "registers kept", _NOTHING
        case st.Seq(stmts):
            for at, (wait, release) in enumerate(pairwise(stmts)):
                if isinstance(wait, simt.WaitGroup) and _releases(release):
                    swapped = (*stmts[:at], release, wait, *stmts[at + 2 :])
                    yield "release early", st.Seq(swapped)
        case simt.Start():
            yield "start dropped", _NOTHING
        case simt.Fence("async" | "wgmma"):
            yield "fence dropped", _NOTHING
        case simt.TensorMap(swizzle=swizzle):
            yield "swizzle on one side", replace(stmt, swizzle=0 if swizzle else 128)
        case simt.TensorLoad(dst, src) | simt.TensorStore(dst, src):
            yield from _addresses(stmt, ("dst", "src"))
        case simt.Wgmma(a_form=a_form, b_form=b_form):
            yield from _descriptors(stmt, "b")
            if a_form:
                yield from _descriptors(stmt, "a")
            swizzled = (*b_form[:2], 64 if b_form[2] == 128 else 128, b_form[3])
            yield "swizzle of a descriptor", replace(stmt, b_form=swizzled)
            yield "sum kept", replace(stmt, clear=unary("not", stmt.clear))


def _releases(stmt: st.Stmt) -> bool:
    return isinstance(stmt, st.If) and any(
        isinstance(inner, simt.BarrierArrive) for inner in statements(stmt)
    )


def _descriptors(stmt: simt.Wgmma, name: str) -> Iterator[tuple[str, st.Stmt]]:
    """The tile eight rows further on, and the distance between its pieces."""
    address, form = getattr(stmt, name), getattr(stmt, f"{name}_form")
    *front, row, column = address.indices
    further = Address(address.buffer, (*front, binary("xor", row, int_const(8)), column))
    yield f"descriptor of {name} moved", replace(stmt, **{name: further})
    wider = (form[0], form[1] + 1024, *form[2:])
    yield f"stride of {name}", replace(stmt, **{f"{name}_form": wider})


def _has_load(value: Expr) -> bool:
    return any(isinstance(found, Load) for found in walk(value))


def _addresses(stmt: st.Stmt, names: tuple[str, ...]) -> Iterator[tuple[str, st.Stmt]]:
    """Another version, another row, another column on one side."""
    for name in names:
        address = getattr(stmt, name)
        if len(address.indices) > 2 and address.buffer.scope == "shared":
            count = const_int(address.buffer.shape[0]) or 1
            first = binary("floormod", add(address.indices[0], int_const(1)), int_const(count))
            changed = Address(address.buffer, (first, *address.indices[1:]))
            yield "wrong version", replace(stmt, **{name: changed})
        yield (
            f"{name} moved",
            replace(stmt, **{name: Address(address.buffer, _moved(address.indices))}),
        )


def _moved(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Two rows exchanged with their neighbours, as a swizzle on one side would."""
    if len(indices) < 2:
        return (_flipped(indices[0]),)
    return (*indices[:-2], _flipped(indices[-2]), indices[-1])


def _flipped(index: Expr) -> Expr:
    if isinstance(index, Ramp):
        return Ramp(binary("xor", index.base, int_const(8)), index.stride, index.lanes)
    return binary("xor", index, int_const(1))


def _registers(stmt: st.Stmt, name: str) -> Iterator[tuple[str, st.Stmt]]:
    """The registers of a neighbouring tile."""
    address = getattr(stmt, name)
    size = const_int(address.buffer.shape[0]) or 0
    step = 8 if isinstance(stmt, simt.LoadMatrix) else 4
    if size >= 2 * step:
        index = binary("floormod", add(address.indices[0], int_const(step)), int_const(size))
        yield "wrong registers", replace(stmt, **{name: Address(address.buffer, (index,))})


# PTX

# With memory barriers, the copy engine and products of warpgroups. What is computed in front of an
# instruction has a scope of its own.
_BEFORE = r"{ .reg .b32 %%other; %s \1%%other; }"
_HOPPER_KINDS: tuple[tuple[str, str, str], ...] = (
    ("fence dropped", r"^\s*(fence\.proxy\.async|wgmma\.fence)\S*;", ""),
    ("wait dropped", r"^\s*wgmma\.wait_group\S* \d+;", ""),
    ("commit dropped", r"^\s*wgmma\.commit_group\S*;", ""),
    ("copy dropped", r"^\s*(@%p\d+ )?cp\.async\.bulk\.tensor.*;", ""),
    ("box moved", r"(cp\.async\.bulk\.tensor\S* \[%r\d+)\]", r"\1+1024]"),
    ("product dropped", r"^.*wgmma\.mma_async.*$", ""),
    ("sum kept", r"(\{ \.reg \.pred p; setp\.)ne(.*wgmma\.mma_async.*)", r"\1eq\2"),
    ("descriptors exchanged", r"(wgmma\.mma_async.*\}, )(%rd\d+), (%rd\d+)", r"\1\3, \2"),
    (
        "parity flipped",
        r"(mbarrier\.try_wait\S* p, \[\S+\], )(%r\d+);",
        _BEFORE % r"xor.b32 %other, \2, 1;",
    ),
    ("phase not waited for", r"^.*mbarrier\.try_wait.*selp\.u32 (%r\d+),.*$", r"mov.u32 \1, 1;"),
    (
        "16 bytes more",
        r"(mbarrier\.arrive\.expect_tx\S* _, \[\S+\], )(%r\d+);",
        _BEFORE % r"add.s32 %other, \2, 16;",
    ),
    (
        "16 bytes less",
        r"(mbarrier\.arrive\.expect_tx\S* _, \[\S+\], )(%r\d+);",
        _BEFORE % r"sub.s32 %other, \2, 16;",
    ),
    ("bytes not told", r"^\s*mbarrier\.arrive\.expect_tx.*;", ""),
    ("release dropped", r"^.*mbarrier\.arrive\.shared.*$", ""),
    ("next barrier", r"(mbarrier\.(arrive|try_wait)\S* \w+, \[%r\d+)\]", r"\1+8]"),
    (
        "count + 1",
        r"(mbarrier\.init\S* \[\S+\], )(%r\d+);",
        _BEFORE % r"add.s32 %other, \2, 1;",
    ),
    ("no barrier", r"^\s*mbarrier\.init.*;", ""),
    ("registers kept", r"^\s*setmaxnreg.*;", ""),
)
_PTX_KINDS: tuple[tuple[str, str, str], ...] = (
    ("barrier dropped", r"^\s*(bar|barrier)\.sync\S*\s.*;", ""),
    ("wait dropped", r"^\s*cp\.async\.wait_group (\d+);", ""),
    ("commit dropped", r"^\s*cp\.async\.commit_group;", ""),
    ("copy dropped", r"^\s*cp\.async\.c[ag]\.shared\.global\S* .*;", ""),
    ("store dropped", r"^\s*(@%p\d+ )?st\.(shared|global)\S* .*;", ""),
    ("update dropped", r"^\s*(@%p\d+ )?(red|atom)\S* .*;", ""),
    ("words exchanged", r"^(\s*red\S* \[\S+\], \{)(%\w+), (%\w+)(.*)", r"\1\3, \2\4"),
    ("predicate dropped", r"^(\s*)@!?%p\d+ (st|ld|cp)(.*)$", r"\1\2\3"),
    ("transposition dropped", r"(ldmatrix\S*)\.trans(\S*)", r"\1\2"),
    *_HOPPER_KINDS,
    ("wrong lane", r"(shfl\.sync\.\w+\.b32 .*, )(\d+)(, \d+, -1;)", r"\g<1>3\3"),
)


def ptx_mutants(text: str) -> Iterator[Mutant]:
    """The mutants of PTX text, line by line."""
    lines = text.splitlines()
    descriptors = set(re.findall(r"or\.b64\s+(%rd\d+), %rd\d+, -?\d{19};", text))
    warps = {each: 1 for each in re.findall(r"shfl\.sync\.idx\.b32\s+(%r\d+)", text)}
    groups = re.findall(r"and\.b32\s+(%r\d+), (%r\d+), -4;", text)
    warps |= {group: 4 for group, warp in groups if warp in warps}
    for number, line in enumerate(lines):
        for kind, pattern, into in _PTX_KINDS:
            changed, count = re.subn(pattern, into, line)
            if count and changed != line:
                yield _of_line(kind, lines, number, changed)
        for kind, changed in (*_numbers(line, descriptors), *_roles(line, warps)):
            yield _of_line(kind, lines, number, changed)
        if early := _released_early(lines, number):
            yield _of_line("release early", early, number, early[number])
        waits = re.search(r"(?:cp\.async|wgmma)\.wait_group\S* (\d+);", line)
        if waits:
            later = line.replace(waits[1] + ";", f"{int(waits[1]) + 1};")
            yield _of_line("wait count + 1", lines, number, later)
        if re.match(r"\s*(ldmatrix|ld\.shared|st\.shared|cp\.async\.c|red)", line):
            moved = re.sub(r"\[(%r\w*\d+)(\+(-?\d+))?\]", _further, line, count=1)
            if moved != line:
                yield _of_line("address moved", lines, number, moved)


def _released_early(lines: list[str], number: int) -> list[str] | None:
    """The lines with the wait in front of a release behind it, where the branch ends."""
    if "mbarrier.arrive.shared" not in lines[number]:
        return None
    before = range(number - 1, max(number - 40, 0), -1)
    wait = next((at for at in before if "wgmma.wait_group" in lines[at]), None)
    label = next((at for at in range(number, len(lines)) if lines[at].endswith(":")), None)
    if wait is None or label is None:
        return None
    return [*lines[:wait], "", *lines[wait + 1 : label + 1], lines[wait], *lines[label + 1 :]]


def _roles(line: str, warps: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Roles of a warp, or of so many, more: where the numbers `warps` are compared."""
    test = re.match(r"(\s*setp\.\w+\.[su]32\s+%p\d+, )(%r\d+), (\d+);", line)
    if test and test[2] in warps:
        yield "role boundary", f"{test[1]}{test[2]}, {int(test[3]) + warps[test[2]]};"


def _numbers(line: str, descriptors: Collection[str]) -> Iterator[tuple[str, str]]:
    """Other constants: where roles begin, registers, what the registers `descriptors` say."""
    if role := re.match(r"(\s*setp\.\w+\.[su]32\s+%p\d+, %r\d+, )(127|128|255|256);", line):
        yield "role boundary", f"{role[1]}{int(role[2]) + 32};"
    if registers := re.match(r"(\s*setmaxnreg\S* )(\d+);", line):
        yield "8 registers more", f"{registers[1]}{int(registers[2]) + 8};"
    if form := re.match(r"(\s*or\.b64\s+%rd\d+, %rd\d+, )(-?\d{19});", line):
        bits = int(form[2]) % (1 << 64)
        for kind, changed in (
            ("swizzle of a descriptor", bits ^ (3 << 62)),
            ("stride of a descriptor", bits + (64 << 32)),
        ):
            yield kind, f"{form[1]}{changed - (1 << 64) if changed >> 63 else changed};"
    offset = re.match(r"(\s*add\.s64\s+%rd\d+, %rd\d+, )(\d+);", line)
    if offset and any(f", {each}," in line for each in descriptors):
        yield "descriptor moved", f"{offset[1]}{int(offset[2]) + 1};"


def _further(match: re.Match[str]) -> str:
    return f"[{match[1]}+{int(match[3] or 0) + 16}]"


def _of_line(kind: str, lines: list[str], number: int, changed: str) -> Mutant:
    """Its place names no numbers of registers, which are another NVRTC's others."""
    text = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
    place = " ".join(re.sub(r"(%[a-z]+)\d+", r"\1", lines[number]).split())
    return Mutant(kind, f"{number + 1}: {place[:110].strip()}", text)
