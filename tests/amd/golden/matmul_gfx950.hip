// matmul for gfx950
#ifndef __global__
#define __global__ __attribute__((global))
#endif
#ifndef __device__
#define __device__ __attribute__((device))
#endif
#ifndef __shared__
#define __shared__ __attribute__((shared))
#endif
typedef unsigned u32x4 __attribute__((ext_vector_type(4), aligned(16)));
typedef float f32x4 __attribute__((ext_vector_type(4), aligned(16)));
typedef _Float16 f16r8 __attribute__((ext_vector_type(8), aligned(4)));
typedef float f32r16 __attribute__((ext_vector_type(16), aligned(4)));

typedef unsigned short f16;

__device__ inline unsigned lds_address(const void* at) {
  return (unsigned)(unsigned long long)(const __attribute__((address_space(3))) void*)at;
}

__device__ inline u32x4 tensor_words(const void* at, unsigned bytes) {
  const unsigned long long place = (unsigned long long)at;
  return (u32x4){(unsigned)place, (unsigned)(place >> 32) & 0xffff, bytes, 0x27000};
}

__device__ inline void load_lds_16(unsigned to, u32x4 tensor, int more, int at) {
  asm volatile("s_nop 3\n\tbuffer_load_dwordx4 %1, %2, %3 offen lds" : : "{m0}"(to), "v"(more), "s"(tensor), "s"(at) : "memory");
}

__device__ inline void wait_loads_0() {
  asm volatile("s_waitcnt vmcnt(0)" : : : "memory");
}

__device__ inline void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__device__ inline void mfma_32x32x16_f16(float* c, const unsigned* a, const unsigned* b) {
  *(f32r16*)c = __builtin_amdgcn_mfma_f32_32x32x16_f16(*(const f16r8*)b, *(const f16r8*)a, *(f32r16*)c, 0, 0, 0);
}

extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(128, 128))) void
matmul(const f16* __restrict__ A, const f16* __restrict__ B, float* __restrict__ C)
{
  __shared__ __attribute__((aligned(1024))) unsigned char shared_memory[32768];
  const int wave_tx = __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() & -64);
  const int tx = __builtin_amdgcn_workitem_id_x();
  const int bx = __builtin_amdgcn_workgroup_id_x();
  const int by = __builtin_amdgcn_workgroup_id_y();
  const int lane = tx & 63;
  float C_local[128];
  unsigned A_registers[16];
  unsigned B_registers[32];
  f16* const A_shared = (f16*)shared_memory;
  f16* const B_shared = (f16*)(shared_memory + 16384);
  #pragma unroll
  for (int i_2 = 0; i_2 < 128; ++i_2) {
    C_local[i_2] = 0.0f;
  }
  #pragma unroll
  for (int i_3 = 0; i_3 < 4; ++i_3) {
    load_lds_16(lds_address(&A_shared[(i_3 * 32 + (wave_tx >> 2)) * 32 + ((((wave_tx >> 2) >> 2) & 3) ^ ((wave_tx & 3) ^ ((wave_tx >> 4) & 3))) * 8]), tensor_words(A, 131072u), (i_3 * 8192 + (tx >> 2) * 256 + ((tx & 3) ^ ((tx >> 4) & 3)) * 8) * 2, (by * 32768) * 2);
  }
  #pragma unroll
  for (int i_5 = 0; i_5 < 4; ++i_5) {
    load_lds_16(lds_address(&B_shared[(i_5 * 32 + (wave_tx >> 2)) * 32 + ((((wave_tx >> 2) >> 2) & 3) ^ ((wave_tx & 3) ^ ((wave_tx >> 4) & 3))) * 8]), tensor_words(B, 131072u), (i_5 * 8192 + (tx >> 2) * 256 + ((tx & 3) ^ ((tx >> 4) & 3)) * 8) * 2, (bx * 32768) * 2);
  }
  const u32x4 words_of_A = tensor_words(A, 131072u);
  const u32x4 words_of_B = tensor_words(B, 131072u);
  #pragma unroll 1
  for (int k = 0; k < 8; ++k) {
    wait_loads_0();
    sync_block();
    if (k + 1 < 8) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        load_lds_16(lds_address(&A_shared[((k + 1) & 1) * 4096 + (i * 32 + (wave_tx >> 2)) * 32 + ((((wave_tx >> 2) >> 2) & 3) ^ ((wave_tx & 3) ^ ((wave_tx >> 4) & 3))) * 8]), words_of_A, (i * 8192 + (tx >> 2) * 256 + ((tx & 3) ^ ((tx >> 4) & 3)) * 8) * 2, (by * 32768 + 32 + k * 32) * 2);
      }
      #pragma unroll
      for (int i_1 = 0; i_1 < 4; ++i_1) {
        load_lds_16(lds_address(&B_shared[((k + 1) & 1) * 4096 + (i_1 * 32 + (wave_tx >> 2)) * 32 + ((((wave_tx >> 2) >> 2) & 3) ^ ((wave_tx & 3) ^ ((wave_tx >> 4) & 3))) * 8]), words_of_B, (i_1 * 8192 + (tx >> 2) * 256 + ((tx & 3) ^ ((tx >> 4) & 3)) * 8) * 2, (bx * 32768 + 32 + k * 32) * 2);
      }
    }
    #pragma unroll
    for (int i_7 = 0; i_7 < 2; ++i_7) {
      {
        const u32x4 v1 = *(const u32x4*)(&A_shared[(k & 1) * 4096 + ((tx >> 6) * 64 + (lane & 31) + i_7 * 32) * 32 + ((((lane & 31) >> 2) & 3) ^ (lane >> 5)) * 8]);
        A_registers[(i_7 * 8) / 2] = v1.x;
        A_registers[(i_7 * 8 + 2) / 2] = v1.y;
        A_registers[(i_7 * 8 + 4) / 2] = v1.z;
        A_registers[(i_7 * 8 + 6) / 2] = v1.w;
      }
    }
    #pragma unroll
    for (int i_8 = 0; i_8 < 4; ++i_8) {
      {
        const u32x4 v2 = *(const u32x4*)(&B_shared[(k & 1) * 4096 + ((lane & 31) + i_8 * 32) * 32 + ((((lane & 31) >> 2) & 3) ^ (lane >> 5)) * 8]);
        B_registers[(i_8 * 8) / 2] = v2.x;
        B_registers[(i_8 * 8 + 2) / 2] = v2.y;
        B_registers[(i_8 * 8 + 4) / 2] = v2.z;
        B_registers[(i_8 * 8 + 6) / 2] = v2.w;
      }
    }
    #pragma unroll
    for (int i_9 = 0; i_9 < 2; ++i_9) {
      {
        const u32x4 v3 = *(const u32x4*)(&A_shared[(k & 1) * 4096 + ((tx >> 6) * 64 + (lane & 31) + i_9 * 32) * 32 + ((((lane & 31) >> 2) & 3) ^ ((lane >> 5) + 2)) * 8]);
        A_registers[(i_9 * 8 + 16) / 2] = v3.x;
        A_registers[(i_9 * 8 + 18) / 2] = v3.y;
        A_registers[(i_9 * 8 + 20) / 2] = v3.z;
        A_registers[(i_9 * 8 + 22) / 2] = v3.w;
      }
    }
    #pragma unroll
    for (int i_10 = 0; i_10 < 4; ++i_10) {
      {
        const u32x4 v4 = *(const u32x4*)(&B_shared[(k & 1) * 4096 + ((lane & 31) + i_10 * 32) * 32 + ((((lane & 31) >> 2) & 3) ^ ((lane >> 5) + 2)) * 8]);
        B_registers[(i_10 * 8 + 32) / 2] = v4.x;
        B_registers[(i_10 * 8 + 34) / 2] = v4.y;
        B_registers[(i_10 * 8 + 36) / 2] = v4.z;
        B_registers[(i_10 * 8 + 38) / 2] = v4.w;
      }
    }
    #pragma unroll
    for (int i_11 = 0; i_11 < 2; ++i_11) {
      #pragma unroll
      for (int j_5 = 0; j_5 < 4; ++j_5) {
        mfma_32x32x16_f16(&C_local[i_11 * 64 + j_5 * 16 + i_11 * (3 - j_5 * 2) * 16], &A_registers[(i_11 * 8) / 2], &B_registers[(j_5 * 8 + i_11 * (3 - j_5 * 2) * 8) / 2]);
      }
    }
    #pragma unroll
    for (int i_12 = 0; i_12 < 2; ++i_12) {
      #pragma unroll
      for (int j_6 = 0; j_6 < 4; ++j_6) {
        mfma_32x32x16_f16(&C_local[i_12 * 64 + j_6 * 16 + i_12 * (3 - j_6 * 2) * 16], &A_registers[(i_12 * 8 + 16) / 2], &B_registers[(j_6 * 8 + i_12 * (3 - j_6 * 2) * 8 + 32) / 2]);
      }
    }
  }
  #pragma unroll
  for (int i_14 = 0; i_14 < 2; ++i_14) {
    #pragma unroll
    for (int j_8 = 0; j_8 < 16; ++j_8) {
      *(f32x4*)(&C[by * 32768 + i_14 * 8192 + (tx & 31) * 256 + (tx >> 6) * 16384 + bx * 128 + j_8 * 8 + ((tx >> 5) & 1) * 4]) = (f32x4){C_local[i_14 * 64 + j_8 * 4], C_local[i_14 * 64 + j_8 * 4 + 1], C_local[i_14 * 64 + j_8 * 4 + 2], C_local[i_14 * 64 + j_8 * 4 + 3]};
    }
  }
}
