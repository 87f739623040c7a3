"""The k largest of each row by a radix search: histograms of digits in shared memory, kept by the
threads of a block.
"""

import tilelang
import tilelang.language as T
import torch

RADIX = 256


def convert_to_uint32(x):
    bits = T.reinterpret("uint32", x)
    flipped = T.if_then_else(x < 0, ~bits & T.Cast("uint32", 0xFFFFFFFF), bits | T.uint32(1 << 31))
    return flipped


@tilelang.jit(pass_configs={tilelang.PassConfigKey.TL_DISABLE_THREAD_STORAGE_SYNC: True})
def tl_topk(topk, in_dtype="float32", out_dtype="int32"):
    batch = T.dynamic("batch")
    seq_len = T.dynamic("seq_len")
    BLOCK_SIZE = 256

    @T.prim_func
    def tl_topk_kernel(
        input: T.Tensor[(batch, seq_len), in_dtype],
        index: T.Tensor[(batch, topk), out_dtype],
    ):
        with T.Kernel(batch, threads=BLOCK_SIZE) as (bx):
            tx = T.get_thread_binding()
            s_histogram = T.alloc_shared([RADIX + 1], "int32")
            s_threshold = T.alloc_shared([1], "uint32")
            s_prefix = T.alloc_shared([1], "uint32")
            s_left = T.alloc_shared([1], "int32")
            s_count = T.alloc_shared([1], "int32")
            T.fill(s_prefix, 0)
            T.fill(s_left, topk)
            T.fill(s_count, 0)
            T.sync_threads()
            for step in T.serial(4):
                shift = T.Cast("uint32", 24 - 8 * step)
                T.fill(s_histogram, 0)
                T.sync_threads()
                for s in T.serial(T.ceildiv(seq_len, BLOCK_SIZE)):
                    at = s * BLOCK_SIZE + tx
                    if at < seq_len:
                        key = convert_to_uint32(input[bx, at])
                        above = T.if_then_else(
                            step == 0, T.uint32(0), key >> ((shift + T.uint32(8)) & T.uint32(31))
                        )
                        if above == s_prefix[0]:
                            digit = T.Cast("int32", (key >> shift) & T.uint32(255))
                            T.atomic_add(s_histogram[digit], 1)
                T.sync_threads()
                if tx == 0:
                    seen = T.alloc_var("int32")
                    found = T.alloc_var("int32")
                    seen = 0
                    found = 0
                    for d in T.serial(RADIX):
                        if found == 0:
                            if seen + s_histogram[RADIX - 1 - d] >= s_left[0]:
                                s_threshold[0] = T.Cast("uint32", RADIX - 1 - d)
                                found = 1
                            else:
                                seen += s_histogram[RADIX - 1 - d]
                    s_left[0] = s_left[0] - seen
                    s_prefix[0] = s_prefix[0] * T.uint32(256) + s_threshold[0]
                T.sync_threads()
            for s in T.serial(T.ceildiv(seq_len, BLOCK_SIZE)):
                at = s * BLOCK_SIZE + tx
                if at < seq_len and convert_to_uint32(input[bx, at]) > s_prefix[0]:
                    place = T.atomic_add(s_count[0], 1, return_prev=True)
                    index[bx, place] = at
            T.sync_threads()
            for s in T.serial(T.ceildiv(seq_len, BLOCK_SIZE)):
                at = s * BLOCK_SIZE + tx
                if at < seq_len and convert_to_uint32(input[bx, at]) == s_prefix[0]:
                    place = T.atomic_add(s_count[0], 1, return_prev=True)
                    if place < topk:
                        index[bx, place] = at

    return tl_topk_kernel


def main(batch=2, seq_len=1000, topk=64):
    values = torch.randn(batch, seq_len)
    indexes = torch.zeros(batch, topk, dtype=torch.int32)
    kernel = tl_topk(topk)
    kernel(values, indexes)
    for row in range(batch):
        want = set(values[row].topk(topk).indices.tolist())
        assert set(indexes[row].tolist()) == want, row


if __name__ == "__main__":
    main()
