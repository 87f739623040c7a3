"""Hand-written kernels that follow the contract of `tileworkbench.compiler.device.host.llvm`."""

from __future__ import annotations

from dataclasses import dataclass

from tileworkbench.compiler.device.host.launch import Launcher
from tileworkbench.compiler.device.host.llvm import (
    NativeFunction,
    NativeTarget,
    compile_object,
    load_object,
)

_SIGNATURE = "(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch)"


@dataclass(frozen=True)
class Code:
    """What code generation would hand over for one grid."""

    ir_text: str
    entry: str = "kernel"
    scratch_bytes: int = 0


EMPTY = Code(f"define i32 @kernel{_SIGNATURE} {{ ret i32 0 }}")

# Blocks of 4 elements: y[i] = a * x[i] + y[i]. Arguments: x, y, a (float32 bits).
SAXPY = Code(f"""
define i32 @kernel{_SIGNATURE} {{
entry:
  %y_at = getelementptr i64, ptr %args, i64 1
  %a_at = getelementptr i64, ptr %args, i64 2
  %x = load ptr, ptr %args
  %y = load ptr, ptr %y_at
  %bits = load i32, ptr %a_at
  %a = bitcast i32 %bits to float
  %one = insertelement <4 x float> poison, float %a, i64 0
  %factor = shufflevector <4 x float> %one, <4 x float> poison, <4 x i32> zeroinitializer
  br label %block
block:
  %id = phi i64 [ %begin, %entry ], [ %next, %body ]
  %stop = load atomic i32, ptr %flag monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %interrupted, label %body
body:
  %offset = mul i64 %id, 4
  %x_here = getelementptr float, ptr %x, i64 %offset
  %y_here = getelementptr float, ptr %y, i64 %offset
  %x_value = load <4 x float>, ptr %x_here, align 4
  %y_value = load <4 x float>, ptr %y_here, align 4
  %product = fmul <4 x float> %factor, %x_value
  %sum = fadd <4 x float> %product, %y_value
  store <4 x float> %sum, ptr %y_here, align 4
  %next = add i64 %id, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %block, label %done
interrupted:
  ret i32 1
done:
  ret i32 0
}}
""")

# Adds 1 to the i64 behind argument 0 for every block, atomically.
COUNT = Code(f"""
define i32 @kernel{_SIGNATURE} {{
  %counter = load ptr, ptr %args
  %blocks = sub i64 %end, %begin
  %old = atomicrmw add ptr %counter, i64 %blocks monotonic
  ret i32 0
}}
""")

# Sets the i64 behind argument 0 to 1 and runs until it is interrupted.
ENDLESS = Code(f"""
define i32 @kernel{_SIGNATURE} {{
  %started = load ptr, ptr %args
  store atomic i64 1, ptr %started seq_cst, align 8
  br label %poll
poll:
  %stop = load atomic i32, ptr %flag monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %interrupted, label %poll
interrupted:
  ret i32 1
}}
""")

# Block 5 fails device assertion number 1, block 6 number 7.
ASSERTING = Code(f"""
define i32 @kernel{_SIGNATURE} {{
  %five = icmp eq i64 %begin, 5
  %six = icmp eq i64 %begin, 6
  %late = select i1 %six, i32 9, i32 0
  %code = select i1 %five, i32 3, i32 %late
  ret i32 %code
}}
""")

# Writes the block's id all over its scratch memory, reads it back many times, and fails assertion 0
# if another worker wrote there, or if the memory is not aligned to 64 bytes.
SCRATCH_BYTES = 512
SCRATCHING = Code(
    f"""
define i32 @kernel{_SIGNATURE} {{
entry:
  %address = ptrtoint ptr %scratch to i64
  %low = and i64 %address, 63
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %block, label %bad
block:
  %id = phi i64 [ %begin, %entry ], [ %next, %end_block ]
  br label %step
step:
  %round = phi i64 [ 0, %block ], [ %round_next, %good ]
  %slot = and i64 %round, 63
  %at = getelementptr i64, ptr %scratch, i64 %slot
  store volatile i64 %id, ptr %at
  %back = load volatile i64, ptr %at
  %mine = icmp eq i64 %back, %id
  br i1 %mine, label %good, label %bad
good:
  %round_next = add i64 %round, 1
  %again = icmp slt i64 %round_next, 20000
  br i1 %again, label %step, label %end_block
end_block:
  %next = add i64 %id, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %block, label %done
done:
  ret i32 0
bad:
  ret i32 2
}}
""",
    scratch_bytes=SCRATCH_BYTES,
)


# Counts its calls in the first word behind argument 0, waits there until there are as many as
# argument 1 says, and writes behind it, for each of its blocks, who ran it: the number of the call,
# the thread and the scratch memory.
WITNESS = Code(
    f"""
declare i64 @pthread_self()
define i32 @kernel{_SIGNATURE} {{
entry:
  %wanted_at = getelementptr i64, ptr %args, i64 1
  %count_at = load ptr, ptr %args
  %wanted = load i64, ptr %wanted_at
  %thread = call i64 @pthread_self()
  %memory = ptrtoint ptr %scratch to i64
  %call = atomicrmw add ptr %count_at, i64 1 seq_cst
  br label %wait
wait:
  %count = load atomic i64, ptr %count_at seq_cst, align 8
  %all = icmp uge i64 %count, %wanted
  br i1 %all, label %block, label %wait
block:
  %id = phi i64 [ %begin, %wait ], [ %next, %block ]
  %row = mul i64 %id, 3
  %first = add i64 %row, 1
  %second = add i64 %row, 2
  %third = add i64 %row, 3
  %call_at = getelementptr i64, ptr %count_at, i64 %first
  %thread_at = getelementptr i64, ptr %count_at, i64 %second
  %memory_at = getelementptr i64, ptr %count_at, i64 %third
  store i64 %call, ptr %call_at
  store i64 %thread, ptr %thread_at
  store i64 %memory, ptr %memory_at
  %next = add i64 %id, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %block, label %done
done:
  ret i32 0
}}
""",
    scratch_bytes=64,
)


def launcher(
    code: Code, slot_count: int = 1, chunk: int = 0, assertions: tuple[str, ...] = ()
) -> Launcher:
    """A launcher of `code`, compiled afresh, for a kernel called 'test'."""
    native = load(code.ir_text, code.entry)
    return Launcher(native, "test", slot_count, code.scratch_bytes, chunk, assertions)


def load(ir_text: str, entry: str = "kernel", target: NativeTarget | None = None) -> NativeFunction:
    """The function `entry` of freshly compiled text."""
    return load_object(compile_object(ir_text, target), [entry])[entry]
