/* Bandwidth and arithmetic of one thread, for comparison with tw.machine().

   Prints one line "name value" per figure: GB/s of read, copy and triad (the best of them) for
   working sets of the sizes given as arguments, and GFLOP/s of multiply-adds. */

#define _GNU_SOURCE
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX2__)
#define BYTES 32
#else
#define BYTES 16
#endif
#if defined(__AVX512F__)
#define STREAM(place, value) _mm512_stream_ps((float *)(place), (__m512)(value))
#elif defined(__AVX2__)
#define STREAM(place, value) _mm256_stream_ps((float *)(place), (__m256)(value))
#else
#define STREAM(place, value) _mm_stream_ps((float *)(place), (__m128)(value))
#endif
typedef float vf __attribute__((vector_size(BYTES)));
typedef double vd __attribute__((vector_size(BYTES)));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double best(double (*run)(long), double work) {
    long repeats = 1;
    double taken;
    while ((taken = run(repeats)) < 4e-3) repeats *= 2;
    for (int round = 0; round < 40; round++) {
        double again = run(repeats);
        if (again < taken) taken = again;
    }
    return work * repeats / taken / 1e9;
}

static vf *a, *b, *c;
static long vectors;

static inline double read_all(long repeats, int ahead) {
    vf total[8] = {0};
    double start = now();
    for (long r = 0; r < repeats; r++) {
        for (long i = 0; i < vectors; i += 8)
            for (int j = 0; j < 8; j++) {
                if (ahead) __builtin_prefetch((char *)&a[i + j] + 4096);
                total[j] += a[i + j];
            }
        __asm__ volatile("" : : "r"(a) : "memory");
    }
    double taken = now() - start;
    volatile float sink = 0;
    for (int j = 0; j < 8; j++) sink += total[j][0];
    return taken;
}

static double run_read(long repeats) { return read_all(repeats, 0); }
static double run_read_ahead(long repeats) { return read_all(repeats, 1); }

static double run_copy(long repeats) {
    double start = now();
    for (long r = 0; r < repeats; r++) {
        _Pragma("GCC unroll 8") for (long i = 0; i < vectors; i++) b[i] = a[i];
        __asm__ volatile("" : : "r"(a), "r"(b) : "memory");
    }
    return now() - start;
}

static double run_triad(long repeats) {
    double start = now();
    for (long r = 0; r < repeats; r++) {
        _Pragma("GCC unroll 8") for (long i = 0; i < vectors; i++) c[i] = a[i] + 3.0f * b[i];
        __asm__ volatile("" : : "r"(a), "r"(b), "r"(c) : "memory");
    }
    return now() - start;
}

static double run_stream(long repeats) {
    double start = now();
    for (long r = 0; r < repeats; r++) {
        for (long i = 0; i < vectors; i++) {
            vf value = a[i] + 3.0f * b[i];
            STREAM(&c[i], value);
        }
        _mm_sfence();
        __asm__ volatile("" : : "r"(a), "r"(b), "r"(c) : "memory");
    }
    return now() - start;
}

static double run_copy_stream(long repeats) {
    double start = now();
    for (long r = 0; r < repeats; r++) {
        for (long i = 0; i < vectors; i++) STREAM(&b[i], a[i]);
        _mm_sfence();
        __asm__ volatile("" : : "r"(a), "r"(b) : "memory");
    }
    return now() - start;
}

static void bandwidth(long bytes) {
    double (*runs[])(long) = {run_read, run_read_ahead, run_copy,
                              run_copy_stream, run_triad, run_stream};
    int arrays[] = {1, 1, 2, 2, 3, 3};
    double most = 0;
    for (int kind = 0; kind < 6; kind++) {
        vectors = bytes / BYTES / arrays[kind] / 8 * 8;
        double rate = best(runs[kind], (double)vectors * BYTES * arrays[kind]);
        if (rate > most) most = rate;
    }
    printf("%ld %.2f\n", bytes, most);
}

#define SUMS 24
#define FEW 12
#define LOOP(type, step)                                                  \
    type sum[SUMS];                                                       \
    memset(sum, 0, sizeof sum);                                           \
    double start = now();                                                 \
    for (long r = 0; r < repeats; r++) {                                  \
        _Pragma("GCC unroll 24") for (int i = 0; i < SUMS; i++) { step; } \
    }                                                                     \
    double taken = now() - start;                                         \
    for (int i = 0; i < SUMS; i++) __asm__ volatile("" : : "m"(sum[i]));  \
    return taken;

static double run_float(long repeats) {
    vf x = (vf){1} + 1.0f;
    __asm__ volatile("" : "+v"(x));
    LOOP(vf, sum[i] = x * x + sum[i])
}

static double run_double(long repeats) {
    vd x = (vd){1} + 1.0;
    __asm__ volatile("" : "+v"(x));
    LOOP(vd, sum[i] = x * x + sum[i])
}

#ifdef __AVX512BF16__
static double run_bfloat16(long repeats) {
    __m512 x = _mm512_set1_ps(1);
    __asm__ volatile("" : "+v"(x));
    LOOP(__m512, sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)x, (__m512bh)x))
}
#endif

#ifdef __AVX512VNNI__
static double run_int8(long repeats) {
    __m512i x = _mm512_set1_epi8(1);
    __asm__ volatile("" : "+v"(x));
    __m512i s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11;
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = s9 = s10 = s11 = _mm512_setzero_si512();
    double start = now();
    /* Given the intrinsic, GCC keeps half of the sums in memory. */
    for (long r = 0; r < repeats; r++)
        __asm__ volatile(
            "vpdpbusd %12, %12, %0\n\t"
            "vpdpbusd %12, %12, %1\n\t"
            "vpdpbusd %12, %12, %2\n\t"
            "vpdpbusd %12, %12, %3\n\t"
            "vpdpbusd %12, %12, %4\n\t"
            "vpdpbusd %12, %12, %5\n\t"
            "vpdpbusd %12, %12, %6\n\t"
            "vpdpbusd %12, %12, %7\n\t"
            "vpdpbusd %12, %12, %8\n\t"
            "vpdpbusd %12, %12, %9\n\t"
            "vpdpbusd %12, %12, %10\n\t"
            "vpdpbusd %12, %12, %11\n\t"
            : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5),
              "+v"(s6), "+v"(s7), "+v"(s8), "+v"(s9), "+v"(s10), "+v"(s11)
            : "v"(x));
    return now() - start;
}
#endif

int main(int count, char **sizes) {
    long most = 0;
    for (int i = 1; i < count; i++)
        if (atol(sizes[i]) > most) most = atol(sizes[i]);
    /* Apart by more than whole pages: a load must not look like an earlier store. */
    long gap = 1344, page = 1 << 21, room = (most / page + 2) * page;
    char *places[3];
    for (int i = 0; i < 3; i++) {
        places[i] = aligned_alloc(page, room);
        madvise(places[i], room, MADV_HUGEPAGE); /* as numpy does */
    }
    a = (vf *)places[0], b = (vf *)(places[1] + gap), c = (vf *)(places[2] + 2 * gap);
    memset(a, 0, most), memset(b, 0, most), memset(c, 0, most);
    for (int i = 1; i < count; i++) bandwidth(atol(sizes[i]));
    printf("float32 %.2f\n", best(run_float, 2.0 * SUMS * BYTES / 4));
    printf("float64 %.2f\n", best(run_double, 2.0 * SUMS * BYTES / 8));
#ifdef __AVX512BF16__
    printf("bfloat16 %.2f\n", best(run_bfloat16, 4.0 * SUMS * 16));
#endif
#ifdef __AVX512VNNI__
    printf("int8 %.2f\n", best(run_int8, 8.0 * FEW * 16));
#endif
    return 0;
}
