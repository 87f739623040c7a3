"""Conversions between floating types that LLVM calls by name where the processor has no instruction
for them.

The names and meanings are those of LLVM's compiler-rt and of libgcc, which are not visible to code
linked into this process. All round to nearest, ties to even, and keep denormals, infinities and
NaN.
"""

from __future__ import annotations

SUPPORT_IR = """
; A double rounded to float "to odd": the last bit records that something was lost, so that a second
; rounding to a narrower type gives what one rounding would (Boldo and Melquiond, "When double
; rounding is odd", 2005).
define private float @round_to_odd(double %wide) {
  %near = fptrunc double %wide to float
  %back = fpext float %near to double
  %exact = fcmp ueq double %back, %wide
  %near_bits = bitcast float %near to i32
  %wide_bits = bitcast double %wide to i64
  %back_bits = bitcast double %back to i64
  %wide_magnitude = and i64 %wide_bits, 9223372036854775807
  %back_magnitude = and i64 %back_bits, 9223372036854775807
  %away = icmp ugt i64 %back_magnitude, %wide_magnitude
  %step = zext i1 %away to i32
  %toward_zero = sub i32 %near_bits, %step
  %odd = or i32 %toward_zero, 1
  %bits = select i1 %exact, i32 %near_bits, i32 %odd
  %result = bitcast i32 %bits to float
  ret float %result
}

define half @__truncsfhf2(float %value) {
  %bits = bitcast float %value to i32
  %sign = and i32 %bits, -2147483648
  %magnitude = xor i32 %bits, %sign
  ; NaN, or an exponent of 16 and more: infinity
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %special = select i1 %is_nan, i32 32256, i32 31744
  ; below 2^-14: the addition of 0.5 makes the hardware shift and round the denormal
  %magnitude_float = bitcast i32 %magnitude to float
  %shifted = fadd float %magnitude_float, 0.5
  %shifted_bits = bitcast float %shifted to i32
  %denormal = sub i32 %shifted_bits, 1056964608
  ; otherwise: rebias the exponent by 15 - 127, round half to even on bit 13
  %upper = lshr i32 %magnitude, 13
  %odd = and i32 %upper, 1
  %rebiased = add i32 %magnitude, -939520001
  %rounded = add i32 %rebiased, %odd
  %normal = lshr i32 %rounded, 13
  %is_large = icmp uge i32 %magnitude, 1199570944
  %is_small = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_small, i32 %denormal, i32 %normal
  %unsigned = select i1 %is_large, i32 %special, i32 %finite
  %half_sign = lshr i32 %sign, 16
  %joined = or i32 %unsigned, %half_sign
  %narrow = trunc i32 %joined to i16
  %result = bitcast i16 %narrow to half
  ret half %result
}

define half @__truncdfhf2(double %value) {
  %odd = call float @round_to_odd(double %value)
  %result = call half @__truncsfhf2(float %odd)
  ret half %result
}

define float @__extendhfsf2(half %value) {
  %narrow = bitcast half %value to i16
  %bits = zext i16 %narrow to i32
  %magnitude = and i32 %bits, 32767
  %shifted = shl i32 %magnitude, 13
  %exponent = and i32 %shifted, 260046848
  %normal = add i32 %shifted, 939524096
  ; infinity and NaN: the exponent becomes 255
  %special = add i32 %shifted, 1879048192
  ; denormal: build 2^-14 + the fraction, take 2^-14 away
  %raised = add i32 %shifted, 947912704
  %raised_float = bitcast i32 %raised to float
  %denormal_float = fsub float %raised_float, 0x3F10000000000000
  %denormal = bitcast float %denormal_float to i32
  %is_special = icmp eq i32 %exponent, 260046848
  %is_denormal = icmp eq i32 %exponent, 0
  %finite = select i1 %is_denormal, i32 %denormal, i32 %normal
  %unsigned = select i1 %is_special, i32 %special, i32 %finite
  %sign = and i32 %bits, 32768
  %float_sign = shl i32 %sign, 16
  %joined = or i32 %unsigned, %float_sign
  %result = bitcast i32 %joined to float
  ret float %result
}

define bfloat @__truncsfbf2(float %value) {
  %bits = bitcast float %value to i32
  %upper = lshr i32 %bits, 16
  %odd = and i32 %upper, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %bits, %bias
  %rounded = lshr i32 %sum, 16
  %quiet = or i32 %upper, 64
  %is_nan = fcmp uno float %value, 0.0
  %chosen = select i1 %is_nan, i32 %quiet, i32 %rounded
  %narrow = trunc i32 %chosen to i16
  %result = bitcast i16 %narrow to bfloat
  ret bfloat %result
}

define bfloat @__truncdfbf2(double %value) {
  %odd = call float @round_to_odd(double %value)
  %result = call bfloat @__truncsfbf2(float %odd)
  ret bfloat %result
}
"""
