extern "C" __global__ void __launch_bounds__(128)
matmul(const f16* __restrict__ A, const f16* __restrict__ B, float* __restrict__ C)
{
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const int tx = threadIdx.x;
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int warp = tx >> 5;
  const int lane = tx & 31;
  float C_local[128];
  unsigned A_registers[32];
  unsigned B_registers[32];
  f16* const A_shared = (f16*)shared_memory;
  f16* const B_shared = (f16*)(shared_memory + 24576);
  #pragma unroll
  for (int i_3 = 0; i_3 < 128; ++i_3) {
    C_local[i_3] = 0.0f;
  }
  #pragma unroll
  for (int i_2 = 0; i_2 < 4; ++i_2) {
    cp_async_16(smem_address(A_shared) + (tx >> 2) * 64 + ((((tx >> 2) >> 1) & 3) ^ (tx & 3)) * 16 + i_2 * 2048, &A[by * 32768 + i_2 * 8192 + (tx >> 2) * 256 + (tx & 3) * 8]);
  }
  #pragma unroll
  for (int i_4 = 0; i_4 < 4; ++i_4) {
    cp_async_16(smem_address(B_shared) + (tx >> 4) * 128 + ((tx & 15) >> 3) * 4096 + ((tx >> 4) ^ ((tx & 15) & 7)) * 16 + i_4 * 1024, &B[i_4 * 2048 + (tx >> 4) * 256 + bx * 128 + (tx & 15) * 8]);
  }
  cp_async_commit();
  #pragma unroll
  for (int i_6 = 0; i_6 < 4; ++i_6) {
    cp_async_16(smem_address(A_shared) + (tx >> 2) * 64 + ((((tx >> 2) >> 1) & 3) ^ (tx & 3)) * 16 + i_6 * 2048 + 8192, &A[by * 32768 + i_6 * 8192 + (tx >> 2) * 256 + (tx & 3) * 8 + 32]);
  }
  #pragma unroll
  for (int i_14 = 0; i_14 < 4; ++i_14) {
    cp_async_16(smem_address(B_shared) + (tx >> 4) * 128 + ((tx & 15) >> 3) * 4096 + ((tx >> 4) ^ ((tx & 15) & 7)) * 16 + i_14 * 1024 + 8192, &B[i_14 * 2048 + (tx >> 4) * 256 + bx * 128 + (tx & 15) * 8 + 8192]);
  }
  cp_async_commit();
  int k_plus_2_mod_3 = 2;
  int k_mod_3 = 0;
  #pragma unroll 1
  for (int k = 0; k < 8; ++k, k_plus_2_mod_3 = k_plus_2_mod_3 == 2 ? 0 : k_plus_2_mod_3 + 1, k_mod_3 = k_mod_3 == 2 ? 0 : k_mod_3 + 1) {
    cp_async_wait_1();
    __syncthreads();
    if (k + 2 < 8) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        cp_async_16(smem_address(A_shared) + (tx >> 2) * 64 + ((((tx >> 2) >> 1) & 3) ^ (tx & 3)) * 16 + k_plus_2_mod_3 * 8192 + i * 2048, &A[by * 32768 + i * 8192 + (tx >> 2) * 256 + k * 32 + (tx & 3) * 8 + 64]);
      }
      #pragma unroll
      for (int i_1 = 0; i_1 < 4; ++i_1) {
        cp_async_16(smem_address(B_shared) + (tx >> 4) * 128 + ((tx & 15) >> 3) * 4096 + ((tx >> 4) ^ ((tx & 15) & 7)) * 16 + k_plus_2_mod_3 * 8192 + i_1 * 1024, &B[k * 8192 + i_1 * 2048 + (tx >> 4) * 256 + bx * 128 + (tx & 15) * 8 + 16384]);
      }
    }
    cp_async_commit();
    #pragma unroll
    for (int i_8 = 0; i_8 < 4; ++i_8) {
      ldmatrix_x4(&A_registers[(i_8 * 8) / 2], smem_address(A_shared) + (warp & 1) * 4096 + (lane & 15) * 64 + ((((lane & 15) >> 1) & 3) ^ (lane >> 4)) * 16 + k_mod_3 * 8192 + i_8 * 1024);
    }
    #pragma unroll
    for (int i_9 = 0; i_9 < 4; ++i_9) {
      ldmatrix_x4_trans(&B_registers[(i_9 * 8) / 2], smem_address(B_shared) + (lane & 15) * 128 + (warp >> 1) * 4096 + (((lane & 15) & 7) ^ ((lane >> 4) + i_9 * 2)) * 16 + k_mod_3 * 8192);
    }
    #pragma unroll
    for (int i_10 = 0; i_10 < 4; ++i_10) {
      ldmatrix_x4(&A_registers[(i_10 * 8 + 32) / 2], smem_address(A_shared) + (warp & 1) * 4096 + (lane & 15) * 64 + ((((lane & 15) >> 1) & 3) ^ ((lane >> 4) + 2)) * 16 + k_mod_3 * 8192 + i_10 * 1024);
    }
    #pragma unroll
    for (int i_11 = 0; i_11 < 4; ++i_11) {
      ldmatrix_x4_trans(&B_registers[(i_11 * 8 + 32) / 2], smem_address(B_shared) + (lane & 15) * 128 + (warp >> 1) * 4096 + (((lane & 15) & 7) ^ ((lane >> 4) + i_11 * 2)) * 16 + k_mod_3 * 8192 + 2048);
    }
    #pragma unroll
    for (int i_12 = 0; i_12 < 4; ++i_12) {
      #pragma unroll
      for (int j_5 = 0; j_5 < 8; ++j_5) {
        mma_m16n8k16_f16(&C_local[i_12 * 32 + j_5 * 4 + (i_12 & 1) * (7 - j_5 * 2) * 4], &A_registers[(i_12 * 8) / 2], &B_registers[(j_5 * 4 + (i_12 & 1) * (7 - j_5 * 2) * 4) / 2]);
      }
    }
    #pragma unroll
    for (int i_13 = 0; i_13 < 4; ++i_13) {
      #pragma unroll
      for (int j_6 = 0; j_6 < 8; ++j_6) {
        mma_m16n8k16_f16(&C_local[i_13 * 32 + j_6 * 4 + (i_13 & 1) * (7 - j_6 * 2) * 4], &A_registers[(i_13 * 8 + 32) / 2], &B_registers[(j_6 * 4 + (i_13 & 1) * (7 - j_6 * 2) * 4 + 32) / 2]);
      }
    }
  }
  #pragma unroll
  for (int i_15 = 0; i_15 < 4; ++i_15) {
    #pragma unroll
    for (int j_8 = 0; j_8 < 8; ++j_8) {
      #pragma unroll
      for (int i_16 = 0; i_16 < 2; ++i_16) {
        *(float2*)(&C[by * 32768 + i_15 * 4096 + i_16 * 2048 + ((tx >> 2) & 7) * 256 + ((tx >> 5) & 1) * 16384 + bx * 128 + j_8 * 8 + (tx & 3) * 2 + (tx >> 6) * 64]) = make_float2(C_local[i_15 * 32 + j_8 * 4 + i_16 * 2], C_local[i_15 * 32 + j_8 * 4 + i_16 * 2 + 1]);
      }
    }
  }
}
