"""The generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
2011) on vectors of any number of lanes.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.llvm.text import EmittedFunction, FunctionWriter, VectorType

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)


def emit_philox(lanes: int) -> EmittedFunction:
    """A function of four counter words, two key words and the number of the wanted word."""
    word = VectorType("i32", lanes)
    names = [f"%x{index}" for index in range(7)]
    formal = ", ".join(f"{word} {name}" for name in names)
    writer = FunctionWriter(f"philox_x{lanes}", str(word), formal)
    counter, key, chosen = names[:4], names[4:6], names[6]
    for number in range(ROUNDS):
        if number:
            key = [
                writer.let(f"add {word} {part}, {word.constant(step)}")
                for part, step in zip(key, WEYL, strict=True)
            ]
        counter = _round(writer, counter, key, lanes)
    result = counter[0]
    for index in range(1, 4):
        hit = writer.let(f"icmp eq {word} {chosen}, {word.constant(index)}")
        kind = word.of("i1")
        result = writer.let(f"select {kind} {hit}, {word} {counter[index]}, {word} {result}")
    return writer.finish(f"{word} {result}")


def _round(writer: FunctionWriter, counter: list[str], key: list[str], lanes: int) -> list[str]:
    word, let = VectorType("i32", lanes), writer.let
    (high_0, low_0), (high_1, low_1) = (
        _multiply(writer, counter[at], factor, lanes)
        for at, factor in zip((0, 2), MULTIPLIERS, strict=True)
    )
    first = let(f"xor {word} {let(f'xor {word} {high_1}, {counter[1]}')}, {key[0]}")
    third = let(f"xor {word} {let(f'xor {word} {high_0}, {counter[3]}')}, {key[1]}")
    return [first, low_1, third, low_0]


def _multiply(writer: FunctionWriter, value: str, factor: int, lanes: int) -> tuple[str, str]:
    """The high and the low word of a product."""
    word, wide, let = VectorType("i32", lanes), VectorType("i64", lanes), writer.let
    extended = let(f"zext {word} {value} to {wide}")
    product = let(f"mul {wide} {extended}, {wide.constant(factor)}")
    shifted = let(f"lshr {wide} {product}, {wide.constant(32)}")
    return let(f"trunc {wide} {shifted} to {word}"), let(f"trunc {wide} {product} to {word}")
