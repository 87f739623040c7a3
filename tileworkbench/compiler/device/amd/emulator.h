// HIP text on a processor: what it names of AMD's GPUs, as functions of this machine.
//
// Threads of a block are contexts that run until they have to wait, one wave as far as it gets and
// then the next, so that what no barrier orders happens in an order that hardware may choose and
// nobody expects. Operations of a wave wait for all its threads that are neither done nor at a
// barrier. Memory of a block begins as bytes 0xFF (NaN), tensors end where unmapped pages begin.
//
// Lanes of MFMA are those of AMD's ISA guides, "Matrix Arithmetic Instructions"; nothing here is
// made from the tables of the compiler.
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define __global__
#define __device__ static
#define __constant__ static
#define __shared__ static __attribute__((section("lds")))
#define amdgpu_flat_work_group_size(least, most)
#define __HIP_MEMORY_SCOPE_AGENT 0
#define __HIP_MEMORY_SCOPE_WORKGROUP 0

// All memory of a block lies between these.
extern unsigned char __start_lds[] __attribute__((weak));
extern unsigned char __stop_lds[] __attribute__((weak));

namespace emu {

[[noreturn]] static void fail(const char* format, ...) {
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  exit(3);
}

// Threads --------------------------------------------------------------------------------------

enum State { READY, AT_BARRIER, IN_WAVE, DONE };
enum Kind { PERMUTE, BALLOT, MFMA, MEET, FIRST, TURN };

struct Thread {
  ucontext_t context;
  State state;
  int kind, site;          // of the operation of its wave that it waits for
  const void* given[3];    // operands of MFMA
  void* taken;
  uint64_t a, b, result;   // of other operations
  struct { unsigned char* to; unsigned char bytes[16]; } loads[64];  // to LDS, under way
  int first_load, number_of_loads;
};

const int MOST = 1024, STACK = 256 << 10, WAVE = 64;
static Thread threads[MOST];
static ucontext_t scheduler;
static unsigned char* stacks;
static int count, current;
static int block[3], grid[3];
static void (*body)();

static void wait(State state) {
  threads[current].state = state;
  swapcontext(&threads[current].context, &scheduler);
}

static void enter() {
  body();
  wait(DONE);
}

static uint64_t in_wave(int kind, int site, uint64_t a, uint64_t b) {
  Thread& own = threads[current];
  own.kind = kind, own.site = site, own.a = a, own.b = b;
  wait(IN_WAVE);
  return own.result;
}

static void complete(int first, int last);

// Runs the threads of one wave until each is at a barrier or done.
static void run_wave(int first, int last) {
  for (;;) {
    for (current = first; current < last; ++current)
      if (threads[current].state == READY) swapcontext(&scheduler, &threads[current].context);
    bool waits = false;
    for (int t = first; t < last; ++t) waits |= threads[t].state == IN_WAVE;
    if (!waits) return;
    complete(first, last);
  }
}

static void run_block() {
  memset(__start_lds, 0xFF, __stop_lds - __start_lds);
  for (int t = 0; t < count; ++t) {
    getcontext(&threads[t].context);
    threads[t].context.uc_stack.ss_sp = stacks + (size_t)t * STACK;
    threads[t].context.uc_stack.ss_size = STACK;
    threads[t].context.uc_link = nullptr;
    makecontext(&threads[t].context, enter, 0);
    threads[t].state = READY;
    threads[t].number_of_loads = 0;
  }
  for (;;) {
    for (int first = 0; first < count; first += WAVE)
      run_wave(first, first + WAVE < count ? first + WAVE : count);
    int waiting = 0;
    for (int t = 0; t < count; ++t) waiting += threads[t].state == AT_BARRIER;
    if (!waiting) {
      for (int t = 0; t < count; ++t)
        if (threads[t].number_of_loads) fail("thread %d ends while its loads are under way", t);
      return;
    }
    if (waiting < count)
      fail("a barrier of the block is reached by %d of its %d threads", waiting, count);
    for (int t = 0; t < count; ++t) threads[t].state = READY;
  }
}

// Operations of a wave -------------------------------------------------------------------------

typedef void (*Multiply)(Thread* lanes);

static void complete(int first, int last) {
  int lead = first;
  while (threads[lead].state != IN_WAVE) ++lead;
  Thread& one = threads[lead];
  int kind = one.kind, site = one.site, number = 0;
  bool taking[WAVE] = {};
  for (int t = first; t < last; ++t) {
    taking[t - first] =
        threads[t].state == IN_WAVE && threads[t].kind == kind && threads[t].site == site;
    number += taking[t - first];
  }
  uint64_t votes = 0, lowest = 0;
  for (int lane = last - first - 1; lane >= 0; --lane)
    if (taking[lane]) lowest = threads[first + lane].a;
  for (int lane = 0; lane < last - first; ++lane)
    if (taking[lane] && threads[first + lane].a) votes |= 1ull << lane;
  if (kind == MFMA) {
    if (number != WAVE) fail("MFMA is executed by %d of the 64 threads of a wave", number);
    ((Multiply)one.a)(threads + first);
  }
  if (kind == TURN && number != WAVE)
    fail("ds_read_tr is executed by %d of the 64 threads of a wave", number);
  for (int lane = 0; lane < last - first; ++lane) {
    if (!taking[lane]) continue;
    Thread& own = threads[first + lane];
    if (kind == PERMUTE) {
      // A lane that does not take part has nothing to give.
      unsigned from = own.b / 4 % WAVE;
      own.result = taking[from] ? threads[first + from].a : 0;
    } else if (kind == BALLOT) {
      own.result = votes;
    } else if (kind == FIRST) {
      own.result = lowest;
    } else if (kind == TURN) {
      // Of elements of 16 bits, lanes 4 r .. 4 r + 3 of 16 have row r; of 8 bits, lanes 2 r and
      // 2 r + 1. This lane's is a column.
      int column = lane % 16, bits = own.b, rows = 64 / bits, lanes = 16 / rows;
      own.result = 0;
      for (int row = 0; row < rows; ++row) {
        uint64_t piece = threads[first + lane - column + lanes * row + column / rows].a;
        own.result |= (piece >> bits * (column % rows) & ((1u << bits) - 1)) << bits * row;
      }
    }
  }
  for (int lane = 0; lane < last - first; ++lane)
    if (taking[lane]) threads[first + lane].state = READY;
}

static unsigned lane() { return current % WAVE; }

static unsigned swizzled(unsigned x, unsigned pattern, int site) {
  if (pattern >> 15) fail("a pattern of ds_swizzle that is not known here: %u", pattern);
  unsigned from = lane() & pattern & 31 | pattern >> 5 & 31;
  from = (from ^ pattern >> 10 & 31) | lane() & 32;
  return (unsigned)in_wave(PERMUTE, site, x, 4 * from);
}

// DPP within rows of 16 lanes: permutations of four, turned rows, mirrored rows and half rows.
static unsigned moved(unsigned x, unsigned control, int site) {
  unsigned at = lane(), row = at & 15, from;
  if (control < 0x100) from = (row & 12) | (control >> 2 * (row & 3) & 3);
  else if (control > 0x120 && control < 0x130) from = (row + 16 - (control & 15)) & 15;
  else if (control == 0x140) from = 15 - row;
  else if (control == 0x141) from = (row & 8) | (7 - (row & 7));
  else fail("a control of DPP that is not known here: %u", control), from = 0;
  return (unsigned)in_wave(PERMUTE, site, x, 4 * ((at & ~15u) | from));
}

// "V_RSQ_F32": subnormal numbers are zero.
static float rsq(float x) {
  return 1.0f / __builtin_sqrtf(__builtin_fabsf(x) < 1.17549435e-38f ? x * 0.0f : x);
}

// v_perm_b32: selectors 0 to 3 are bytes of the second operand, 4 to 7 of the first, 12 is zero.
static unsigned permuted(unsigned first, unsigned second, unsigned selectors) {
  unsigned long long both = (unsigned long long)first << 32 | second;
  unsigned made = 0;
  for (int at = 0; at < 4; ++at) {
    unsigned selector = selectors >> 8 * at & 255;
    if (selector > 7 && selector != 12) fail("a selector of v_perm that is not known: %u", selector);
    made |= (selector == 12 ? 0 : (unsigned)(both >> 8 * selector & 255)) << 8 * at;
  }
  return made;
}

// Loads of buffers ---------------------------------------------------------------------------------

// What bytes `more + at` of a tensor are, as a vector of the type that is asked for. The first four
// words are where the tensor begins, its bytes, and 32-bit elements without a stride.
struct Loaded {
  const unsigned char* from;
  template <class Vector> operator Vector() const {
    Vector made;
    memcpy(&made, from, sizeof made);
    return made;
  }
};

static Loaded buffer_load(const unsigned* words, int more, int at) {
  uint64_t base = words[0] | (uint64_t)words[1] << 32, place = (uint64_t)(unsigned)more + (unsigned)at;
  if (words[1] >> 16 || words[3] != 0x27000) fail("a tensor of the words %x, %x", words[1], words[3]);
  if (at < 0 || more < 0 || place >= words[2]) fail("a load of byte %u of a tensor", (unsigned)place);
  return {(const unsigned char*)base + place};
}

// Assembly: loads to LDS, which come as late as waits let them -------------------------------------

// The latest `pending` loads of a thread may be under way.
static void wait_loads(int pending) {
  Thread& own = threads[current];
  for (; own.number_of_loads > pending; --own.number_of_loads) {
    memcpy(own.loads[own.first_load].to, own.loads[own.first_load].bytes, 16);
    own.first_load = (own.first_load + 1) % 64;
  }
}

// Bytes of lane l go to M0 + 16 l; M0 is the same for the wave. Until then they are NaN there.
static void load_lds(unsigned m0, const unsigned char* from) {
  Thread& own = threads[current];
  unsigned at = m0 - (unsigned)(uint64_t)__start_lds + 16 * lane();
  if (at % 16 || at + 16 > (unsigned)(__stop_lds - __start_lds))
    fail("a load to byte %u of LDS", at);
  if (own.number_of_loads == 64) wait_loads(63);
  auto& load = own.loads[(own.first_load + own.number_of_loads++) % 64];
  load.to = __start_lds + at;
  memcpy(load.bytes, from, 16);
  memset(load.to, 0xFF, 16);
}

// What assembly takes: a number, a pointer, or the four words of a tensor.
struct Operand {
  uint64_t bits[2] = {};
  Operand() {}
  template <class T> Operand(const T& x) { memcpy(bits, &x, sizeof x); }
};

// The first operand of a load is M0. It takes a cycle until what is written there counts.
static void assembly(const char* text, Operand m0 = {}, Operand x = {}, Operand y = {}, Operand z = {}) {
  const char nop[] = "s_nop 3\n\t";
  const char* load = strncmp(text, nop, sizeof nop - 1) ? "" : text + sizeof nop - 1;
  const unsigned char* from = (const unsigned char*)x.bits[0];
  int pending;
  if (sscanf(text, "s_waitcnt vmcnt(%d)", &pending) == 1) return wait_loads(pending);
  if (!strcmp(load, "buffer_load_dwordx4 %1, %2, %3 offen lds"))
    from = buffer_load((const unsigned*)y.bits, (int)x.bits[0], (int)z.bits[0]).from;
  else if (!strcmp(load, "global_load_lds_dwordx4 %2, %1"))
    from += (unsigned)y.bits[0];
  else if (strcmp(load, "global_load_lds_dwordx4 %1, off"))
    fail("assembly that is not known here: %s", text);
  load_lds((unsigned)m0.bits[0], from);
}

struct Turned {
  uint64_t bits;
  template <class Vector> operator Vector() const {
    Vector made;
    static_assert(sizeof made == sizeof bits, "");
    memcpy(&made, &bits, sizeof made);
    return made;
  }
};

static Turned turned(const void* from, int bits, int site) {
  uint64_t at = (const unsigned char*)from - __start_lds, piece;
  if (at % 8 || at + 8 > (uint64_t)(__stop_lds - __start_lds))
    fail("ds_read_tr of byte %u of LDS", (unsigned)at);
  memcpy(&piece, from, 8);
  return {in_wave(TURN, site, piece, bits)};
}

// MFMA -----------------------------------------------------------------------------------------

// Elements of an operand, by what the instruction's name says of it.
struct F16 {
  static float at(const void* p, int i) { return (float)((const _Float16*)p)[i]; }
};
struct BF16 {
  static float at(const void* p, int i) {
    unsigned bits = (unsigned)((const unsigned short*)p)[i] << 16;
    return __builtin_bit_cast(float, bits);
  }
};
struct F32 {
  static float at(const void* p, int i) { return ((const float*)p)[i]; }
};
struct XF32 {
  static float at(const void* p, int i) {
    return __builtin_bit_cast(float, ((const unsigned*)p)[i] & 0xFFFFE000u);
  }
};
struct F64 {
  static double at(const void* p, int i) { return ((const double*)p)[i]; }
};
struct I8 {
  static int at(const void* p, int i) { return ((const signed char*)p)[i]; }
};

// A byte as a float with so many bits of mantissa: OCP's kinds on gfx950, those without a negative
// zero on gfx942.
static float small(unsigned char code, int mantissa) {
  int field = code >> mantissa & (0x7F >> mantissa), rest = code & ((1 << mantissa) - 1);
  int most = 0x7F >> mantissa;
#ifdef EMU_OCP
  int bias = most / 2;
  if (mantissa == 3 ? (code & 0x7F) == 0x7F : field == most)
    return mantissa == 2 && !rest ? (code & 0x80 ? -INFINITY : INFINITY) : NAN;
#else
  int bias = most / 2 + 1;
  if (code == 0x80) return NAN;
#endif
  float value = field ? ldexpf((float)((1 << mantissa) + rest), field - bias - mantissa)
                      : ldexpf((float)rest, 1 - bias - mantissa);
  return code & 0x80 ? -value : value;
}
struct FP8 {
  static float at(const void* p, int i) { return small(((const unsigned char*)p)[i], 3); }
};
struct BF8 {
  static float at(const void* p, int i) { return small(((const unsigned char*)p)[i], 2); }
};

template <int number> struct Format;
template <> struct Format<0> { typedef FP8 Type; };
template <> struct Format<1> { typedef BF8 Type; };

// D = A B + C of E x E x K: lane l has of A the row l % E, of B the column l % E, and of both the
// K / (64 / E) elements along K from (l / E) times as many on. Results of float64: assumed.
template <int E, int K, class A, class B, class T>
static void multiply(Thread* lanes) {
  const int per = E * K / WAVE, held = E * E / WAVE;
  for (int l = 0; l < WAVE; ++l) {
    T* d = (T*)lanes[l].taken;
    for (int v = 0; v < held; ++v) {
      int row, column = l % E;
      if (E == 32) row = 8 * (v / 4) + 4 * (l / 32) + v % 4;
      else if (sizeof(T) == 8) row = 4 * v + l / 16;
      else row = 4 * (l / 16) + v;
      T sum = ((const T*)lanes[l].given[2])[v];
      for (int k = 0; k < K; ++k)
        sum += (T)A::at(lanes[k / per * E + row].given[0], k % per)
             * (T)B::at(lanes[k / per * E + column].given[1], k % per);
      d[v] = sum;
    }
  }
}

template <int E, int K, class A, class B, class T, class VA, class VB, class VC>
static VC mfma(VA a, VB b, VC c, int site) {
  Thread& own = threads[current];
  VC d;
  own.given[0] = &a, own.given[1] = &b, own.given[2] = &c, own.taken = &d;
  in_wave(MFMA, site, (uint64_t)(Multiply)multiply<E, K, A, B, T>, 0);
  return d;
}

// Atomics: threads take turns ---------------------------------------------------------------------

template <class T, class V> static T fetch_add(T* p, V x) {
  T old = *p;
  *p = (T)(old + x);
  return old;
}
template <class T, class V> static T fetch_and(T* p, V x) {
  T old = *p;
  *p = (T)(old & x);
  return old;
}
template <class T, class V> static T fetch_or(T* p, V x) {
  T old = *p;
  *p = (T)(old | x);
  return old;
}
template <class T, class V> static T fetch_xor(T* p, V x) {
  T old = *p;
  *p = (T)(old ^ x);
  return old;
}
template <class T, class V> static T fetch_max(T* p, V x) {
  T old = *p;
  if ((T)x > old) *p = (T)x;
  return old;
}
template <class T, class V> static T fetch_min(T* p, V x) {
  T old = *p;
  if ((T)x < old) *p = (T)x;
  return old;
}
template <class T, class V> static bool compare_exchange(T* p, T* expected, V x) {
  if (*p == *expected) { *p = (T)x; return true; }
  *expected = *p;
  return false;
}

// A launch -------------------------------------------------------------------------------------

struct Argument { unsigned char* data; uint64_t bytes, mapped; unsigned char* map; };
static Argument arguments[256];
static int passed;

static void faulted(int, siginfo_t* info, void*) {
  uint64_t at = (uint64_t)info->si_addr;
  for (int i = 0; i < passed; ++i) {
    Argument& each = arguments[i];
    if (!each.map || at < (uint64_t)each.map || at >= (uint64_t)each.map + each.mapped) continue;
    long long from = (long long)(at - (uint64_t)each.data);
    char text[160];
    int size = snprintf(text, sizeof text,
        "argument %d has %llu bytes, and byte %lld is accessed by thread %d of block (%d, %d, %d)",
        i, (unsigned long long)each.bytes, from, current, block[0], block[1], block[2]);
    if (write(2, text, size)) {}
    _exit(3);
  }
  const char text[] = "memory that is no tensor's is accessed, or an address is not aligned";
  if (write(2, text, sizeof text - 1)) {}
  _exit(3);
}

static void read_all(void* into, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t got = read(0, (char*)into + at, bytes - at);
    if (got <= 0) fail("the arguments are cut short");
    at += got;
  }
}
static uint64_t number() { uint64_t x; read_all(&x, 8); return x; }

// A tensor ends where a page begins that is not mapped, and begins behind such a page.
static void place(Argument& each) {
  const uint64_t page = 4096, far = 1 << 20;
  uint64_t whole = (each.bytes + 15) / 16 * 16, pages = (whole + page - 1) / page * page;
  each.mapped = pages + 2 * far;
  each.map = (unsigned char*)mmap(0, each.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(each.map + far, pages, PROT_READ | PROT_WRITE);
  memset(each.map + far, 0xFF, pages);
  each.data = each.map + far + pages - whole;
}

template <int... I> struct Indices {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Indices<I...> Type; };
template <class P> struct Passed {
  static P get(int i) { return *(P*)arguments[i].data; }
};
template <class P> struct Passed<P*> {
  static P* get(int i) { return (P*)arguments[i].data; }
};
template <class P> struct Passed<P* __restrict__> : Passed<P*> {};

template <class... P, int... I> static void call(void (*kernel)(P...), Indices<I...>) {
  kernel(Passed<P>::get(I)...);
}
template <class... P> static void call(void (*kernel)(P...)) {
  call(kernel, typename Count<sizeof...(P)>::Type());
}

static int run(void (*const* kernels)()) {
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // lines that were printed outlive a fault
  struct sigaction action = {};
  stack_t other = {};
  other.ss_sp = malloc(1 << 16), other.ss_size = 1 << 16;
  sigaltstack(&other, nullptr);
  action.sa_sigaction = faulted, action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
  stacks = (unsigned char*)mmap(
      0, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  passed = (int)number();
  for (int i = 0; i < passed; ++i) {
    arguments[i].bytes = number();
    place(arguments[i]);
    read_all(arguments[i].data, arguments[i].bytes);
  }
  for (int launches = (int)number(), i = 0; i < launches; ++i) {
    for (int& extent : grid) extent = (int)number();
    count = (int)number();
    body = kernels[i];
    for (block[2] = 0; block[2] < grid[2]; ++block[2])
      for (block[1] = 0; block[1] < grid[1]; ++block[1])
        for (block[0] = 0; block[0] < grid[0]; ++block[0]) run_block();
  }
  fflush(stdout);  // what is printed stands in front of the results
  for (int i = 0; i < passed; ++i)
    for (uint64_t at = 0; at < arguments[i].bytes;) {
      ssize_t sent = write(1, arguments[i].data + at, arguments[i].bytes - at);
      if (sent <= 0) return 4;
      at += sent;
    }
  return 0;
}

}  // namespace emu

#define __builtin_amdgcn_workitem_id_x() emu::current
#define __builtin_amdgcn_workgroup_id_x() emu::block[0]
#define __builtin_amdgcn_workgroup_id_y() emu::block[1]
#define __builtin_amdgcn_workgroup_id_z() emu::block[2]
#define __builtin_amdgcn_mbcnt_lo(mask, x) (x)
#define __builtin_amdgcn_mbcnt_hi(mask, x) (emu::lane() + (x))
#define __builtin_amdgcn_fence(order, scope) ((void)0)
#define __builtin_amdgcn_s_barrier() emu::wait(emu::AT_BARRIER)
#define __builtin_amdgcn_wave_barrier() ((void)emu::in_wave(emu::MEET, __COUNTER__, 0, 0))
#define __builtin_amdgcn_ds_bpermute(at, x) \
  ((unsigned)emu::in_wave(emu::PERMUTE, __COUNTER__, x, at))
#define __builtin_amdgcn_mov_dpp(x, control, rows, banks, bound) \
  emu::moved(x, control, __COUNTER__)
#define __builtin_amdgcn_ds_swizzle(x, pattern) emu::swizzled(x, pattern, __COUNTER__)
#define __builtin_amdgcn_rsqf(x) emu::rsq(x)
#define __builtin_amdgcn_perm(first, second, selectors) emu::permuted(first, second, selectors)
#define __builtin_amdgcn_ds_read_tr16_b64_v4i16(from) \
  emu::turned((const void*)(from), 16, __COUNTER__)
#define __builtin_amdgcn_ds_read_tr8_b64_v2i32(from) \
  emu::turned((const void*)(from), 8, __COUNTER__)
#define __builtin_amdgcn_readfirstlane(x) \
  ((unsigned)emu::in_wave(emu::FIRST, __COUNTER__, (unsigned)(x), 0))
#define __builtin_amdgcn_ballot_w64(on) emu::in_wave(emu::BALLOT, __COUNTER__, on, 0)
#define __hip_atomic_fetch_add(p, x, order, scope) emu::fetch_add(p, x)
#define __hip_atomic_fetch_and(p, x, order, scope) emu::fetch_and(p, x)
#define __hip_atomic_fetch_or(p, x, order, scope) emu::fetch_or(p, x)
#define __hip_atomic_fetch_xor(p, x, order, scope) emu::fetch_xor(p, x)
#define __hip_atomic_fetch_max(p, x, order, scope) emu::fetch_max(p, x)
#define __hip_atomic_fetch_min(p, x, order, scope) emu::fetch_min(p, x)
#define __hip_atomic_compare_exchange_strong(p, old, x, order, other, scope) \
  emu::compare_exchange(p, old, x)

#define EMU(E, K, A, B, T, a, b, c, ...) (emu::mfma<E, K, emu::A, emu::B, T>(a, b, c, __COUNTER__))
// By the formats of both operands; scales are 1, whose codes are not used.
#define EMU_FORMATS(E, K, a, b, c, for_a, for_b, ...) \
  (emu::mfma<E, K, emu::Format<for_a>::Type, emu::Format<for_b>::Type, float>(a, b, c, __COUNTER__))
#define __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(...) EMU_FORMATS(32, 64, __VA_ARGS__)
#define __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(...) EMU_FORMATS(16, 128, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x8f16(...) EMU(32, 8, F16, F16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(...) EMU(16, 16, F16, F16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x16_f16(...) EMU(32, 16, F16, F16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x32_f16(...) EMU(16, 32, F16, F16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(...) EMU(32, 8, BF16, BF16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(...) EMU(16, 16, BF16, BF16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf16(...) EMU(32, 16, BF16, BF16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf16(...) EMU(16, 32, BF16, BF16, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x2f32(...) EMU(32, 2, F32, F32, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x4f32(...) EMU(16, 4, F32, F32, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x4_xf32(...) EMU(32, 4, XF32, XF32, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x8_xf32(...) EMU(16, 8, XF32, XF32, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f64_16x16x4f64(...) EMU(16, 4, F64, F64, double, __VA_ARGS__)
#define __builtin_amdgcn_mfma_i32_32x32x8i8(...) EMU(32, 8, I8, I8, int, __VA_ARGS__)
#define __builtin_amdgcn_mfma_i32_16x16x16i8(...) EMU(16, 16, I8, I8, int, __VA_ARGS__)
#define __builtin_amdgcn_mfma_i32_32x32x16_i8(...) EMU(32, 16, I8, I8, int, __VA_ARGS__)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(...) EMU(16, 32, I8, I8, int, __VA_ARGS__)
#define __builtin_amdgcn_mfma_i32_32x32x32_i8(...) EMU(32, 32, I8, I8, int, __VA_ARGS__)
#define __builtin_amdgcn_mfma_i32_16x16x64_i8(...) EMU(16, 64, I8, I8, int, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(...) EMU(32, 16, FP8, FP8, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x16_fp8_bf8(...) EMU(32, 16, FP8, BF8, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf8_fp8(...) EMU(32, 16, BF8, FP8, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8(...) EMU(32, 16, BF8, BF8, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(...) EMU(16, 32, FP8, FP8, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(...) EMU(16, 32, FP8, BF8, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8(...) EMU(16, 32, BF8, FP8, float, __VA_ARGS__)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(...) EMU(16, 32, BF8, BF8, float, __VA_ARGS__)
