"""PTX text to a `Module`: the part of the language that compilers write (PTX ISA, "Syntax")."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tileworkbench.compiler.sim.ptx.errors import PtxSyntaxError
from tileworkbench.compiler.sim.ptx.lexer import Token, tokenize
from tileworkbench.compiler.sim.ptx.module import (
    TYPE_BITS,
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

_SPECIAL = re.compile(
    r"%(?:(?:n?tid|n?ctaid|cluster_\w+|n?clusterid)\.[xyzw]|laneid|warpid|nwarpid|lanemask_\w+"
    r"|clock(?:_hi|64)?|globaltimer(?:_lo|_hi)?|smid|nsmid|gridid|dynamic_smem_size"
    r"|total_smem_size|is_explicit_cluster|cluster_ct\w+)$"
)
_LINKAGE = frozenset({".visible", ".extern", ".weak", ".common"})
_SPACES = frozenset({".global", ".const", ".shared", ".local", ".param"})


def parse(text: str) -> Module:
    """Parse PTX. Raises `PtxSyntaxError` with the line."""
    target, tokens = tokenize(text)
    return _Parser(tokens, target).module()


@dataclass(slots=True, eq=False)
class _Scope:
    """Names of one pair of braces; a label may be used before it is set."""

    function: str
    number: int
    registers: dict[str, Register] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


class _Parser:
    def __init__(self, tokens: list[Token], target: str) -> None:
        self.tokens = tokens
        self.at = 0
        self.target = target
        self.code: list[Instruction] = []
        self.functions: dict[str, Function] = {}
        self.variables: dict[str, Variable] = {}
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.register_bits: list[int] = []
        self.scopes: list[_Scope] = []
        self.scope_count = 0

    # -- tokens

    def peek(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        if self.at >= len(self.tokens):
            raise PtxSyntaxError("the PTX text ends in the middle of a statement")
        token = self.tokens[self.at]
        if expected is not None and token.text != expected:
            raise self.error(f"expected '{expected}' and found '{token.text}'")
        self.at += 1
        return token.text

    def accept(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def error(self, message: str) -> PtxSyntaxError:
        line = self.tokens[min(self.at, len(self.tokens) - 1)].line
        return PtxSyntaxError(f"PTX line {line}: {message}")

    # -- declarations

    def module(self) -> Module:
        while self.at < len(self.tokens):
            self.top_level()
        return Module(
            self.target,
            tuple(self.code),
            self.functions,
            self.variables,
            self.labels,
            self.tables,
            tuple(self.register_bits),
        )

    def top_level(self) -> None:
        is_external = False
        while self.peek() in _LINKAGE:
            is_external |= self.take() == ".extern"
        word = self.peek()
        if word in (".entry", ".func"):
            self.function(is_external)
        elif word in _SPACES:
            for variable in self.variable(is_external):
                self.variables[variable.name] = variable
        elif word in (".pragma", ".alias"):
            self.skip_statement()
        else:
            raise self.error(f"a module holds no '{word}'")

    def skip_statement(self) -> None:
        while not self.accept(";"):
            self.take()

    def function(self, is_external: bool) -> None:
        is_entry = self.take() == ".entry"
        results = self.parameters() if self.peek() == "(" else ()
        name = self.take()
        function = Function(name, is_entry, self.parameters(), results)
        while self.peek() not in ("{", ";"):
            word = self.take()
            if word in (".maxntid", ".reqntid"):
                function.max_threads = self.numbers()
            elif word == ".pragma":
                self.skip_statement()
        if self.accept(";"):
            return  # a declaration: whoever defines it wins
        self.functions[name] = function
        function.start = len(self.code)
        self.body(function)
        function.end = len(self.code)

    def numbers(self) -> tuple[int, ...]:
        numbers = [self.integer()]
        while self.accept(","):
            numbers.append(self.integer())
        return tuple(numbers)

    def parameters(self) -> tuple[Variable, ...]:
        variables: list[Variable] = []
        if self.accept("("):
            while not self.accept(")"):
                variables.append(self.declaration(False)[0])
                self.accept(",")
        return tuple(variables)

    def variable(self, is_external: bool) -> list[Variable]:
        variables = self.declaration(is_external)
        self.take(";")
        return variables

    def declaration(self, is_external: bool) -> list[Variable]:
        """``.space [.align n] .type name[size] [= value]``, names separated by commas."""
        space = self.take()[1:]
        align, bits, lanes = 0, 0, 1
        while self.peek().startswith("."):
            word = self.take()[1:]
            if word == "align":
                align = self.integer()
            elif word in ("v2", "v4"):
                lanes = int(word[1])
            elif word in TYPE_BITS:
                bits = max(TYPE_BITS[word], 8)
            elif word == "ptr":
                any(map(self.accept, (".const", ".global", ".local", ".shared")))
                if self.accept(".align"):  # of the memory that it points to
                    self.integer()
        variables = []
        while True:
            name = self.take()
            count = 1
            while self.accept("["):
                count *= 0 if self.peek() == "]" else self.integer()
                self.take("]")
            size = bits // 8 * lanes * count
            initial = self.initial(bits // 8) if self.accept("=") else b""
            alignment = align or bits // 8 * lanes
            variables.append(Variable(name, space, alignment, size, initial, is_external))
            if space == "param" or not self.accept(","):
                return variables

    def initial(self, width: int) -> bytes:
        data = b""
        braced = self.accept("{")
        while True:
            if self.accept("{"):
                continue
            value = self.immediate()
            if value is None:
                raise self.error("an initial value that is the address of a variable")
            data += (value.value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            while braced and self.accept("}"):
                if self.peek() in (";", ","):
                    return data
            if not braced or not self.accept(","):
                return data

    # -- bodies

    def body(self, function: Function) -> None:
        """The instructions of a function; names in inner braces hide those outside."""
        first = len(self.code)
        pending: list[tuple[int, list[_Scope]]] = []
        while True:
            word = self.peek()
            if self.accept("{"):
                self.scope_count += 1
                self.scopes.append(_Scope(function.name, self.scope_count))
                if len(self.scopes) == 1:
                    parameters = (*function.parameters, *function.results)
                    self.scopes[0].variables = {item.name: item for item in parameters}
            elif self.accept("}"):
                self.resolve_labels(pending, self.scopes.pop())
                if not self.scopes:
                    break
            elif word == ".reg":
                self.registers()
            elif word in _SPACES:
                self.local_variables(function)
            elif word == ".pragma":
                self.skip_statement()
            elif self.peek(1) == ":":
                self.label()
            else:
                self.code.append(self.instruction())
                pending.append((len(self.code) - 1, list(self.scopes)))
        if len(self.code) == first or self.code[-1].opcode not in ("ret", "exit", "bra", "trap"):
            line = self.tokens[self.at - 1].line
            self.code.append(Instruction("ret", (), (), None, False, line, 0, "ret"))

    def resolve_labels(self, pending: list[tuple[int, list[_Scope]]], scope: _Scope) -> None:
        """Replace the names of labels that `scope` declares in the instructions inside it."""
        if not scope.labels:
            return
        for index, scopes in pending:
            if scope not in scopes:
                continue
            old = self.code[index]
            operands = tuple(
                Symbol(scope.labels[operand.name])
                if isinstance(operand, Symbol) and operand.name in scope.labels
                else operand
                for operand in old.operands
            )
            if operands != old.operands:
                self.code[index] = Instruction(
                    *(old.opcode, old.modifiers, operands, old.guard, old.guard_negated),
                    *(old.line, old.source_line, old.text),
                )
        for name, targets in list(self.tables.items()):
            self.tables[name] = tuple(scope.labels.get(target, target) for target in targets)

    def label(self) -> None:
        name = self.take()
        self.take(":")
        scope = self.scopes[-1]
        unique = f"{scope.function}/{scope.number}/{name}"
        scope.labels[name] = unique
        if self.accept(".branchtargets"):
            targets = [self.take()]
            while self.accept(","):
                targets.append(self.take())
            self.take(";")
            self.tables[unique] = tuple(targets)
        else:
            self.labels[unique] = len(self.code)

    def registers(self) -> None:
        self.take(".reg")
        lanes = 1
        kind = self.take()[1:]
        if kind in ("v2", "v4"):
            lanes, kind = int(kind[1]), self.take()[1:]
        bits = TYPE_BITS[kind] * lanes
        while True:
            name = self.take()
            if self.accept("<"):
                names = [f"{name}{index}" for index in range(self.integer())]
                self.take(">")
            else:
                names = [name]
            for each in names:
                slot = len(self.register_bits)
                self.register_bits.append(bits)
                self.scopes[-1].registers[each] = Register(each, slot, bits)
            if not self.accept(","):
                break
        self.take(";")

    def local_variables(self, function: Function) -> None:
        scope = self.scopes[-1]
        for declared in self.variable(False):
            unique = f"{scope.function}/{scope.number}/{declared.name}"
            variable = Variable(
                unique,
                declared.space,
                declared.align,
                declared.size,
                declared.initial,
                declared.is_external,
            )
            scope.variables[declared.name] = variable
            function.variables.append(variable)
            self.variables[unique] = variable

    # -- instructions

    def instruction(self) -> Instruction:
        start = self.at
        first = self.tokens[start]
        guard, negated = None, False
        if self.accept("@"):
            negated = self.accept("!")
            name = self.take()
            register = self.name(name)
            if not isinstance(register, Register):
                raise self.error(f"'{name}' guards an instruction and is no register")
            guard = register
        opcode, *modifiers = self.take().split(".")
        operands = self.call_operands() if opcode == "call" else self.operands(";")
        words = [token.text for token in self.tokens[start : self.at - 1]]
        return Instruction(
            *(opcode, tuple(modifiers), operands, guard, negated),
            *(first.line, first.source_line, _join(words)),
        )

    def operands(self, end: str) -> tuple[Operand, ...]:
        operands: list[Operand] = []
        while not self.accept(end):
            operand = self.operand()
            if self.accept("|"):
                operand = Pair(operand, self.operand())
            operands.append(operand)
            if self.peek() != end:
                self.take(",")
        return tuple(operands)

    def call_operands(self) -> tuple[Operand, ...]:
        """``(results), function, (parameters)`` as vector, symbol, vector."""
        results: tuple[Operand, ...] = ()
        if self.accept("("):
            results = self.operands(")")
            self.take(",")
        function = self.operand()
        parameters: tuple[Operand, ...] = ()
        if self.accept(",") and self.accept("("):
            parameters = self.operands(")")
        while not self.accept(";"):
            self.at += 1  # the prototype of an indirect call
        return (Vector(results), function, Vector(parameters))

    def operand(self) -> Operand:
        if self.accept("{"):
            return Vector(self.operands("}"))
        if self.accept("["):
            return self.address()
        if self.accept("!"):
            return Negated(self.operand())
        constant = self.immediate()
        if constant is not None:
            return constant
        name = self.take()
        if name == "_":
            return Sink()
        symbol = self.name(name)
        if isinstance(symbol, Symbol) and self.peek() in ("+", "-"):
            return Address(symbol, self.offset())  # the address of a variable, displaced
        return symbol

    def name(self, name: str) -> Register | Special | Symbol | Immediate:
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return scope.registers[name]
            if name in scope.variables:
                return Symbol(scope.variables[name].name)
        if name == "WARP_SZ":
            return Immediate(32)
        if name.startswith("%"):
            if _SPECIAL.match(name):
                return Special(name)
            raise self.error(f"'{name}' is not declared")
        return Symbol(name)

    def address(self) -> Address:
        constant = self.immediate()
        base = constant if constant is not None else self.name(self.take())
        if isinstance(base, Special):
            raise self.error(f"'{base.name}' cannot be an address")
        offset = self.offset()
        coordinates: tuple[Operand, ...] = ()
        if self.accept(","):
            vector = self.operand()
            coordinates = vector.items if isinstance(vector, Vector) else (vector,)
        self.take("]")
        return Address(base, offset, coordinates)

    def offset(self) -> int:
        total = 0
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            if self.accept("-"):
                sign = -sign
            total += sign * self.integer()
        return total

    def peek_kind(self, ahead: int) -> str:
        """The kind of a token further on, "" behind the last one."""
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def immediate(self) -> Immediate | None:
        """A constant at this place, or None."""
        sign = 1
        if self.peek() == "-" and self.peek_kind(1) in ("number", "float"):
            self.at += 1
            sign = -1
        if self.at == len(self.tokens):
            return None
        token = self.tokens[self.at]
        if token.kind == "number":
            self.at += 1
            return Immediate(sign * int(token.text.rstrip("U"), 0))
        if token.kind == "float":
            self.at += 1
            return Immediate(int(token.text[2:], 16), 32 if token.text[1] in "fF" else 64)
        return None

    def integer(self) -> int:
        value = self.immediate()
        if value is None:
            raise self.error(f"expected a number and found '{self.peek()}'")
        return value.value


def _join(words: list[str]) -> str:
    """The text of an instruction from its tokens, spaced as people write it."""
    text = " ".join(words)
    for mark in (",", "]", ")", "}"):
        text = text.replace(f" {mark}", mark)
    for mark in ("[", "(", "{", "@", "!"):
        text = text.replace(f"{mark} ", mark)
    return text.replace(" + ", "+").replace(" | ", "|").replace("- ", "-")
