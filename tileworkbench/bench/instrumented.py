"""Generated code that tells of its accesses: LLVM IR, after its passes, with a call of ``touch``
(`cache_model`) in front of each load and store. So the order is that of the machine code, and what
stays in registers is no access. Of `located` text each access is told with its line. What a
register allocator spills, and what functions of others do (`T.call_extern`), is not among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tileworkbench.bench.cache_model import CURRENT, LOAD, MOST_SITES, STORE
from tileworkbench.bench.located import CALLER, NO_LINE, lines_of
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass

_SIZES = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}
_TYPE = r"(<\d+ x [a-z]\w*>|\[\d+ x [^\]]+\]|[a-z]\w*)"
_POINTER = r'((?:%|@)(?:[-\w.$]+|"[^"]*"))'
_MARKS = r"(?:[a-z]\w*(?:\([^)]*\))? )*(?:\d+ )?"  # attributes of an argument, and their numbers
_LOAD = re.compile(rf"= (?:tail )?load (?:atomic )?(?:volatile )?{_TYPE}, ptr {_POINTER}")
_STORE = re.compile(rf"^\s*store (?:atomic )?(?:volatile )?{_TYPE} .*, ptr {_POINTER}")
_ATOMIC = re.compile(rf"= atomicrmw (?:volatile )?\w+ ptr {_POINTER}, {_TYPE} ")
_EXCHANGE = re.compile(rf"= cmpxchg (?:weak )?(?:volatile )?ptr {_POINTER}, {_TYPE} ")
_MASKED = re.compile(
    rf"@llvm\.masked\.(load|store)\.[\w.]+\((?:(<\d+ x \w+>) \S.*?, )?ptr {_MARKS}{_POINTER}, "
    r"(?:i32 \d+, )?<(\d+) x i1> (%[-\w.$]+|splat \(i1 true\))"
)
_RESULT = re.compile(r"call (<\d+ x \w+>) @llvm\.masked\.")
_SPREAD = re.compile(
    rf"@llvm\.masked\.(gather|scatter)\.[\w.]+\((?:(<\d+ x \w+>) \S.*?, )?<(\d+) x ptr> "
    rf"{_MARKS}(%[-\w.$]+), (?:i32 \d+, )?<\d+ x i1> (%[-\w.$]+|splat \(i1 true\))"
)
_FILLED = re.compile(rf"@llvm\.memset\.[\w.]+\(ptr {_MARKS}{_POINTER}, i8 [^,]+, i64 ([^,]+),")
_COPIED = re.compile(
    rf"@llvm\.mem(?:cpy|move)\.[\w.]+\(ptr {_MARKS}{_POINTER}, ptr {_MARKS}{_POINTER}, i64 ([^,]+),"
)
_CALLED = re.compile(r"\bcall .*?@(llvm\.[\w.]+)\((.*)")
_HARMLESS = re.compile(r"llvm\.(lifetime|prefetch|assume|dbg|experimental\.noalias|invariant)")


_DROPPED = re.compile(r"\bmemory\([^)]*\)|,? !dbg !\d+")
_SITE = "%site)"  # in the place of the site of an access
_DEFINED = re.compile(r"\bcall .*?@((?!llvm\.)[-\w.$]+)\(")


@dataclass(frozen=True, slots=True)
class Told:
    """The `text` of a module that tells of its accesses, each with its site: the place in `lines`
    of its line of the user's text, the first of which is `NO_LINE`.
    """

    text: str
    lines: tuple[int, ...]


def instrument(text: str) -> Told:
    """The module `text` with its accesses told. Raises `UnsupportedError` for an instruction that
    accesses memory in a way that is not known here.
    """
    rows = text.splitlines()
    own = lines_of(text)
    lines = (NO_LINE, *sorted({line for line in own if line > NO_LINE}))
    if len(lines) > MOST_SITES:
        raise UnsupportedError(f"accesses of {len(lines)} lines cannot be told apart")
    sites = {CALLER: CURRENT, **{line: site for site, line in enumerate(lines)}}
    made: list[str] = []
    declared: set[int] = set()
    for number, (row, line) in enumerate(zip(rows, own, strict=True)):
        if not row.startswith(("declare", "define", "attributes", ";", "!")):
            site = sites[line]
            called = _DEFINED.search(row)
            if called and line > NO_LINE:
                made.append(f"  call void @at(i64 {site})")
            for added in _calls(row, f"%told.{number}", declared):
                made.append(f"  {added.replace(_SITE, f'i64 {site})')}")
        # What a function may touch has changed, and lines are in the calls now.
        made.append(_DROPPED.sub("", row))
    made += [
        f"declare i{lanes} @llvm.ctpop.i{lanes}(i{lanes})"
        for lanes in sorted(declared)
        if f"declare i{lanes} @llvm.ctpop.i{lanes}(" not in text
    ]
    made += ["declare void @touch(ptr, i64, i64, i64)", "declare void @at(i64)", ""]
    return Told("\n".join(made), lines)


def _calls(line: str, name: str, declared: set[int]) -> Iterator[str]:
    """What is put in front of an instruction; `name` begins the names of values."""
    for pattern, kind in ((_LOAD, LOAD), (_STORE, STORE)):
        if match := pattern.search(line):
            yield _touch(match[2], str(_bytes(match[1], line)), kind)
            return
    for pattern in (_ATOMIC, _EXCHANGE):
        if match := pattern.search(line):
            bytes_ = str(_bytes(match[2], line))
            yield from (_touch(match[1], bytes_, kind) for kind in (LOAD, STORE))
            return
    if match := _FILLED.search(line):
        yield _touch(match[1], match[2], STORE)
    elif match := _COPIED.search(line):
        yield _touch(match[2], match[3], LOAD)
        yield _touch(match[1], match[3], STORE)
    elif "@llvm.masked." in line:
        yield from _masked(line, name, declared)
    elif (match := _CALLED.search(line)) and "ptr " in match[2] and not _HARMLESS.match(match[1]):
        raise UnsupportedError(
            f"the accesses of '{match[1]}' cannot be counted",
            hint="compile for another level, such as target 'cpu:avx2'",
        )


def _masked(line: str, name: str, declared: set[int]) -> Iterator[str]:
    """Lanes that a mask holds back access nothing; others in front of them are next to each other
    in whole vectors.
    """
    result = _RESULT.search(line)
    if match := _MASKED.search(line):
        which, stored, pointer, lanes, mask = match.groups()
        kind, size = (LOAD, result and result[1]) if which == "load" else (STORE, stored)
        each, count = _bytes(str(size), line) // int(lanes), int(lanes)
        if mask.startswith("splat"):
            yield _touch(pointer, str(each * count), kind)
            return
        declared.add(count)
        yield f"{name}.bits = bitcast <{count} x i1> {mask} to i{count}"
        yield f"{name}.lanes = call i{count} @llvm.ctpop.i{count}(i{count} {name}.bits)"
        wide = "zext" if count < 64 else "bitcast"
        yield f"{name}.many = {wide} i{count} {name}.lanes to i64"
        yield f"{name}.bytes = mul i64 {name}.many, {each}"
        yield _touch(pointer, f"{name}.bytes", kind)
    elif match := _SPREAD.search(line):
        which, stored, lanes, pointers, mask = match.groups()
        kind, size = (LOAD, result and result[1]) if which == "gather" else (STORE, stored)
        count = int(lanes)
        each = _bytes(str(size), line) // count
        for lane in range(count):
            yield f"{name}.p{lane} = extractelement <{count} x ptr> {pointers}, i32 {lane}"
            bytes_ = str(each)
            if not mask.startswith("splat"):
                yield f"{name}.m{lane} = extractelement <{count} x i1> {mask}, i32 {lane}"
                yield f"{name}.b{lane} = select i1 {name}.m{lane}, i64 {each}, i64 0"
                bytes_ = f"{name}.b{lane}"
            yield _touch(f"{name}.p{lane}", bytes_, kind)
    else:
        raise UnsupportedError(f"the accesses of '{line.strip()[:60]}' cannot be counted")


def _touch(pointer: str, bytes_: str, kind: int) -> str:
    return f"call void @touch(ptr {pointer}, i64 {bytes_}, i64 {kind}, {_SITE}"


def _bytes(type_: str, line: str) -> int:
    """The bytes of a type. Raises `UnsupportedError` for one without a known size."""
    if match := re.fullmatch(r"[<\[](\d+) x (.*)[>\]]", type_):
        element = match[2]
        if re.fullmatch(r"i[1-7]", element):
            return -(-int(match[1]) * int(element[1:]) // 8)
        return int(match[1]) * _bytes(element, line)
    if match := re.fullmatch(r"i(\d+)", type_):
        return -(-int(match[1]) // 8)
    if type_ not in _SIZES:
        raise UnsupportedError(f"the size of what '{line.strip()[:60]}' accesses is not known")
    return _SIZES[type_]
