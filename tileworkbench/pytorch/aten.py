"""The table of torch's operations: what each is in a generated kernel. What has no row runs in
torch.

`MAPS` are element by element, `ROWS` go over whole rows (the last dimensions), `VIEWS` keep the
order of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tileworkbench.pytorch import divisions, formulas
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.terms import Term, bitwise, of_float, select

RIGHT_SHIFTS = (
    *("aten.__rshift__.Scalar", "aten.bitwise_right_shift.Tensor_Scalar"),
    *("aten.__rshift__.Tensor", "aten.bitwise_right_shift.Tensor"),
)
LEFT_SHIFTS = ("aten.__lshift__.Scalar", "aten.bitwise_left_shift.Tensor_Scalar")

BATCH_NORM = "aten.batch_norm.default"  # by known statistics, which have a number for each channel

# Those of `MAPS` whose formulas give parts of them names: they take `Keep` first.
STEPS: dict[str, Callable[..., Term]] = {
    **dict.fromkeys(("aten.div.Tensor_mode", "aten.div.Scalar_mode"), divisions.divided),
    "aten.floor_divide.default": divisions.floor_divided,
    "aten.remainder.Scalar": divisions.floor_remainder,
    "aten.remainder.Tensor": divisions.floor_remainder,
    "aten.remainder.Scalar_Tensor": divisions.floor_remainder,
}
MAPS: dict[str, Callable[..., Term]] = {
    "aten.add.Tensor": lambda x, y, alpha=1: x + formulas.scaled(y, alpha),
    "aten.add.Scalar": lambda x, y, alpha=1: x + formulas.scaled(y, alpha),
    "aten.sub.Tensor": lambda x, y, alpha=1: x - formulas.scaled(y, alpha),
    "aten.sub.Scalar": lambda x, y, alpha=1: x - formulas.scaled(y, alpha),
    "aten.rsub.Scalar": lambda x, y, alpha=1: y - formulas.scaled(x, alpha),
    "aten.mul.Tensor": lambda x, y: x * y,
    "aten.mul.Scalar": lambda x, y: x * y,
    "aten.div.Tensor": lambda x, y: x / y,
    "aten.div.Scalar": lambda x, y: x / y,
    **STEPS,
    "aten.fmod.Scalar": divisions.truncated_remainder,
    "aten.fmod.Tensor": divisions.truncated_remainder,
    "aten.addcmul.default": formulas.add_product,
    "aten.addcdiv.default": formulas.add_quotient,
    "aten.lerp.Scalar": formulas.lerp,
    "aten.lerp.Tensor": formulas.lerp,
    "aten.frac.default": formulas.fraction,
    "aten.logaddexp.default": formulas.log_add_exp,
    "aten.xlogy.Tensor": formulas.x_log_y,
    "aten.logit.default": formulas.logit,
    "aten.reciprocal.default": lambda x: 1.0 / x,
    "aten.neg.default": lambda x: -x,
    "aten.abs.default": formulas.absolute,
    "aten.square.default": lambda x: x * x,
    "aten.pow.Tensor_Scalar": divisions.power,
    "aten.pow.Tensor_Tensor": divisions.power,
    "aten.pow.Scalar": divisions.power_of_number,
    "aten.exp.default": formulas.exp,
    "aten.log.default": formulas.log,
    "aten.log2.default": of_float("log2"),
    "aten.log10.default": of_float("log10"),
    "aten.log1p.default": of_float("log1p"),
    "aten.sign.default": formulas.sign,
    "aten.sgn.default": formulas.sign,
    "aten.expm1.default": formulas.expm1,
    "aten.tan.default": formulas.tan,
    "aten.sinh.default": formulas.sinh,
    "aten.cosh.default": formulas.cosh,
    "aten.atan.default": formulas.atan,
    "aten.atan2.default": formulas.atan2,
    "aten.asin.default": formulas.asin,
    "aten.acos.default": formulas.acos,
    "aten.asinh.default": formulas.asinh,
    "aten.acosh.default": formulas.acosh,
    "aten.atanh.default": formulas.atanh,
    "aten.floor.default": formulas.rounding("floor"),
    "aten.ceil.default": formulas.rounding("ceil"),
    "aten.trunc.default": formulas.rounding("trunc"),
    "aten.round.default": formulas.rounding("round"),
    "aten.isnan.default": formulas.test("isnan"),
    "aten.isinf.default": formulas.test("isinf"),
    "aten.sqrt.default": formulas.sqrt,
    "aten.rsqrt.default": formulas.rsqrt,
    "aten.erf.default": formulas.erf,
    "aten.sin.default": formulas.sin,
    "aten.cos.default": formulas.cos,
    "aten.tanh.default": formulas.tanh,
    "aten.sigmoid.default": formulas.sigmoid,
    "aten.relu.default": lambda x: select(x < 0, 0, x),
    BATCH_NORM: formulas.normalised,
    "aten.gelu.default": formulas.gelu,
    "aten.silu.default": lambda x: x * formulas.sigmoid(x),
    "aten.hardsigmoid.default": formulas.hard_sigmoid,
    "aten.hardswish.default": lambda x: x * formulas.hard_sigmoid(x),
    "aten.softplus.default": formulas.softplus,
    "aten.elu.default": formulas.elu,
    "aten.celu.default": lambda x, alpha=1.0: formulas.elu(x, alpha, 1, 1 / alpha),
    "aten.mish.default": lambda x: x * formulas.tanh(formulas.softplus(x)),
    "aten.leaky_relu.default": lambda x, slope=0.01: select(x < 0, x * slope, x),
    "aten.threshold.default": lambda x, limit, value: select(x <= limit, value, x),
    "aten.hardtanh.default": lambda x, low=-1.0, high=1.0: formulas.clamp(x, low, high),
    "aten.clamp.default": formulas.clamp,
    "aten.clamp_min.default": lambda x, low: formulas.clamp(x, low),
    "aten.clamp.Tensor": formulas.clamp_between,
    "aten.clamp_max.default": lambda x, high: formulas.clamp(x, None, high),
    "aten.maximum.default": formulas.larger,
    "aten.minimum.default": formulas.smaller,
    "aten.where.self": select,
    "aten.where.ScalarOther": select,
    "aten.where.ScalarSelf": select,
    "aten.masked_fill.Scalar": lambda x, mask, value: select(mask, value, x),
    "aten.lt.Tensor": lambda x, y: x < y,
    "aten.lt.Scalar": lambda x, y: x < y,
    "aten.le.Tensor": lambda x, y: x <= y,
    "aten.le.Scalar": lambda x, y: x <= y,
    "aten.gt.Tensor": lambda x, y: x > y,
    "aten.gt.Scalar": lambda x, y: x > y,
    "aten.ge.Tensor": lambda x, y: x >= y,
    "aten.ge.Scalar": lambda x, y: x >= y,
    "aten.eq.Tensor": lambda x, y: x.equals(y),
    "aten.eq.Scalar": lambda x, y: x.equals(y),
    "aten.ne.Tensor": lambda x, y: x.differs(y),
    "aten.ne.Scalar": lambda x, y: x.differs(y),
    "aten.logical_not.default": formulas.logical("Not"),
    "aten.bitwise_not.default": formulas.inverted,
    "aten.logical_and.default": formulas.logical("And"),
    "aten.logical_xor.default": formulas.exclusive,
    "aten.bitwise_and.Tensor": formulas.bits("And", "&"),
    "aten.bitwise_and.Scalar": formulas.bits("And", "&"),
    "aten.logical_or.default": formulas.logical("Or"),
    "aten.bitwise_or.Tensor": formulas.bits("Or", "|"),
    "aten.bitwise_or.Scalar": formulas.bits("Or", "|"),
    "aten.bitwise_xor.Tensor": lambda x, y: bitwise("^", x, y),
    "aten.bitwise_xor.Scalar": lambda x, y: bitwise("^", x, y),
    **dict.fromkeys(RIGHT_SHIFTS, formulas.shift(">>")),
    **dict.fromkeys(LEFT_SHIFTS, formulas.shift("<<")),
    "aten.threshold_backward.default": lambda grad, x, limit: select(x <= limit, 0.0, grad),
    "aten.gelu_backward.default": formulas.gelu_backward,
    "aten.silu_backward.default": formulas.silu_backward,
    "aten.tanh_backward.default": lambda grad, y: grad * (1.0 - y * y),
    "aten.leaky_relu_backward.default": formulas.leaky_relu_backward,
    "aten.elu_backward.default": formulas.elu_backward,
    "aten.hardswish_backward.default": formulas.hard_swish_backward,
    "aten.hardsigmoid_backward.default": formulas.hard_sigmoid_backward,
    "aten.mish_backward.default": formulas.mish_backward,
    "aten.hardtanh_backward.default": formulas.hardtanh_backward,
    "aten.softplus_backward.default": formulas.softplus_backward,
    "aten.native_dropout_backward.default": lambda grad, kept, scale: grad * kept * scale,
    "aten.sigmoid_backward.default": lambda grad, y: grad * y * (1.0 - y),
}
POWERS = ("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
REMAINDERS = (*STEPS, "aten.fmod.Scalar", "aten.fmod.Tensor")

# The same elements in the same order.
VIEWS = (
    *("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"),
    *("aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.alias.default"),
    *("aten.detach.default",),
)
# Batch normalisations by statistics of the batch, which are results, too.
BATCH_NORMS = (
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit.no_stats",
)
# Products, or batches of them, each with the places of its two operands and of what is added.
PRODUCTS: dict[str, tuple[int, int, int | None]] = {
    "aten.mm.default": (0, 1, None),
    "aten.addmm.default": (1, 2, 0),
    "aten.bmm.default": (0, 1, None),
    "aten.baddbmm.default": (1, 2, 0),
}
LAYERS = ("aten.mm.default", "aten.addmm.default")  # those of one matrix with another
CONVOLUTION = "aten.convolution.default"  # a product of its weight with windows of its data
PRODUCTS[CONVOLUTION] = (1, 0, 2)
# Products of groups of rows with a matrix each; offsets say where the rows of a group end.
GROUPED = ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
# Rows of a table by an index for each: the places of the table and of the indices.
GATHERS: dict[str, tuple[int, int]] = {
    "aten.embedding.default": (0, 1),
    "aten.index_select.default": (0, 2),
    "aten.index.Tensor": (0, 1),
}
EQUAL = "aten.eq.Tensor"
PICK = "aten.gather.default"  # an element of each row, where it has one index for each
COUNT = "aten.arange.start_step"  # an element is its index, or follows from that
TRANSPOSITIONS = ("aten.t.default", "aten.permute.default", "aten.transpose.int")
# Parts of tensors, which torch makes without a copy.
SLICES = (
    *("aten.select.int", "aten.slice.Tensor", "aten.split.Tensor", "aten.unbind.int"),
    "aten.split_with_sizes.default",
)
POOLS = ("aten.max_pool2d.default", "aten.avg_pool2d.default")
CONVERSION = "aten._to_copy.default"
EXPANSION = "aten.expand.default"
CLONE = "aten.clone.default"  # in another order, where a graph has it
COPY = "aten.copy_.default"  # writes to its first operand
ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu.default"
# Tensors of one number, which are written as that number: by the place of it among the arguments,
# or as such.
FILLED = {
    "aten.scalar_tensor.default": 0,
    "aten.full.default": 1,
    "aten.full_like.default": 1,
    "aten.new_full.default": 2,
}
ZEROS = tuple(f"aten.{name}.default" for name in ("zeros", "zeros_like", "new_zeros"))
ONES = tuple(f"aten.{name}.default" for name in ("ones", "ones_like", "new_ones"))
CONSTANTS = (*FILLED, *ZEROS, *ONES)


_GROUPS: dict[str, Collection[str]] = {
    "element-wise": (*MAPS, CONVERSION),
    "row": (*ROWS, BATCH_NORMS[0]),
    "product": (*PRODUCTS, *GROUPED),
    "gather": GATHERS,
    "window": POOLS,
    "attention": (ATTENTION,),
    "copy": (CLONE,),
    "view": (*VIEWS, *TRANSPOSITIONS, *SLICES, EXPANSION),
    "constant": CONSTANTS,
}
NAMES = tuple(name for names in _GROUPS.values() for name in names)


def group_of(name: str) -> str:
    """The group that an operation is part of in a kernel, "view" and "constant" for what a kernel
    reads through, "torch" for what torch runs itself.
    """
    return next((group for group, names in _GROUPS.items() if name in names), "torch")
