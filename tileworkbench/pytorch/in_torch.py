"""Operations that torch runs itself, by the reason. With the tables of `aten.py` these are all of
core ATen, which a test holds them to, and some others. Of some, a part or some cases are kernels by
other names (`written_out.py`)."""

from __future__ import annotations


def _names(text: str) -> tuple[str, ...]:
    return tuple(f"aten.{each}" for each in text.split())


OTHER_ORDER = "a copy into another order is torch's own"  # of some that are no kernels

BY_REASON: dict[str, tuple[str, ...]] = {
    "the gradient of a convolution's filters is torch's own, and all with strides": _names(
        "convolution_backward.default"
    ),
    "sorting and searching is torch's own": _names(
        """sort.default sort.stable topk.default argmax.default argmin.default max.dim min.dim
        nonzero.default"""
    ),
    "a random number is torch's own": _names(
        """rand.default rand_like.default randn.default randn_like.default randint.default
        randint.low randint_like.default randint_like.low_dtype randperm.default bernoulli.default
        bernoulli.p multinomial.default normal_functional.default uniform.default
        exponential.default native_dropout.default"""
    ),
    "a window over an image is torch's own": _names(
        """_adaptive_avg_pool2d.default _adaptive_avg_pool2d_backward.default
        _adaptive_avg_pool3d.default adaptive_avg_pool1d.default avg_pool1d.default
        avg_pool2d_backward.default avg_pool3d.default
        max_pool2d_with_indices.default max_pool2d_with_indices_backward.default
        max_pool3d_with_indices.default grid_sampler_2d.default upsample_bilinear2d.vec
        upsample_nearest2d.vec col2im.default"""
    ),
    "padding is torch's own": _names(
        """constant_pad_nd.default reflection_pad1d.default reflection_pad2d.default
        reflection_pad3d.default replication_pad2d.default replication_pad3d.default"""
    ),
    OTHER_ORDER: _names(
        """cat.default copy.default flip.default repeat.default as_strided.default
        copy_.default diagonal.default select_scatter.default slice_scatter.default"""
    ),
    "an index for each element is torch's own": _names(
        """index_put.default masked_scatter.default scatter.src scatter.value
        scatter_add.default scatter_reduce.two embedding_dense_backward.default
        _embedding_bag.default"""
    ),
    "a loss of classes is torch's own": _names(
        "nll_loss_forward.default nll_loss_backward.default"
    ),
    "a distance of all pairs is torch's own": _names(
        "_cdist_forward.default _pdist_forward.default"
    ),
    "a normalisation over the first dimensions is torch's own": _names(
        """_native_batch_norm_legit.default _native_batch_norm_legit_no_training.default
        native_batch_norm_backward.default
        native_group_norm_backward.default native_layer_norm_backward.default"""
    ),
    "weights in a packed form of torch are torch's own": _names(
        "_weight_int4pack_mm.default _weight_int4pack_mm_for_cpu.default"
    ),
    "a product with weights of int8 is as fast in torch": _names("_weight_int8pack_mm.default"),
    "a Fourier transform is torch's own": _names("_fft_c2r.default _fft_r2c.default"),
    "memory and sizes are torch's own": _names(
        """_local_scalar_dense.default arange.start_step empty.memory_format empty_strided.default
        fill.Scalar fill.Tensor lift_fresh_copy.default resize_.default sym_is_contiguous.default
        sym_numel.default sym_size.int sym_storage_offset.default sym_stride.int"""
    ),
    "the gradient of attention is torch's own": _names(
        "_scaled_dot_product_flash_attention_for_cpu_backward.default"
    ),
    "graphs have it by another name": _names("atan2.out var.dim"),
}

REASONS: dict[str, str] = {name: reason for reason, names in BY_REASON.items() for name in names}
