"""Stream-K: workers share out the steps of a first wave of tiles, then take whole tiles."""

import tilelang
import tilelang.language as T
import torch


@tilelang.jit
def streamk_matmul(
    M, N, K, sms, block_M, block_N, block_K, dtype=T.float16, accum_dtype=T.float32, num_stages=2
):
    tiles_n = (N + block_N - 1) // block_N
    total = ((M + block_M - 1) // block_M) * tiles_n
    streamk_tiles = total % sms if total >= sms else total
    steps = (K + block_K - 1) // block_K
    full, partial = divmod(streamk_tiles * steps, sms)
    waves = (total - streamk_tiles) // sms

    @T.macro
    def first_wave(pid, A, A_shared, B, B_shared, C, C_local):
        start = T.alloc_fragment((1,), "int32", "local")
        end = T.alloc_fragment((1,), "int32", "local")
        start[0] = pid * full + T.min(pid, partial)
        last = (pid + 1) * full + T.min(pid + 1, partial)
        while start[0] < last:
            end[0] = T.min(start[0] + (steps - start[0] % steps), last)
            tile = start[0] // steps
            done = start[0] % steps
            m, n = tile // tiles_n, tile % tiles_n
            T.clear(C_local)
            for k in T.Pipelined(end[0] - start[0], num_stages=num_stages):
                T.copy(A[m * block_M, (k + start[0] % steps) * block_K], A_shared)
                T.copy(B[n * block_N, (k + start[0] % steps) * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            if done == 0 and end[0] % steps == 0:
                T.copy(C_local, C[m * block_M, n * block_N])
            else:
                for i, j in T.Parallel(block_M, block_N):
                    T.atomic_add(C[m * block_M + i, n * block_N + j], C_local[i, j])
            start[0] = end[0]

    @T.macro
    def whole_tiles(pid, A, A_shared, B, B_shared, C, C_local):
        for p in T.serial(waves):
            tile = pid + streamk_tiles + p * sms
            m, n = tile // tiles_n, tile % tiles_n
            T.clear(C_local)
            for k in T.Pipelined(steps, num_stages=1):
                T.copy(A[m * block_M, k * block_K], A_shared)
                T.copy(B[n * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[m * block_M, n * block_N])

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), "float")):
        with T.Kernel(sms, threads=256) as pid:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            first_wave(pid, A, A_shared, B, B_shared, C, C_local)
            if waves > 0:
                whole_tiles(pid, A, A_shared, B, B_shared, C, C_local)

    return main


def main():
    for M, N, K, sms in ((96, 160, 128, 4), (64, 96, 160, 7), (70, 50, 40, 3)):
        kernel = streamk_matmul(M, N, K, sms, 32, 32, 32)
        a, b = torch.randn(M, K).half(), torch.randn(N, K).half()
        c = torch.zeros(M, N)
        kernel(a, b, c)
        torch.testing.assert_close(c, a.float() @ b.float().T, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    main()
