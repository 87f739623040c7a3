// What the words of a GPU mean in plain C++. Blocks run one after another, and the threads of a
// block take turns: each runs on a stack of its own until it waits for others.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace block {

enum { STACK = 256 << 10, LANES = 32 };
enum Result { DONE, DEADLOCK, FAILED };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done;
};
struct Meeting {
  int arrived, round;
};

static std::vector<Fiber> fibers;
static std::map<unsigned long long, Meeting> meetings;
static std::function<void()> body;
static ucontext_t scheduler;
static long long slots[1024];  // what threads show each other
static int thread, index[3];
static bool moved, failed;

static inline void yield() { swapcontext(&fibers[thread].context, &scheduler); }

template <class Ready>
static inline void wait_until(Ready ready) {
  while (!ready()) yield();
  moved = true;
}

static inline void leave() {
  fibers[thread].done = moved = true;
  yield();
}

static inline void enter() {
  body();
  leave();
}

static inline void fail() {
  failed = true;
  leave();
}

// Every thread once more, until all are done or each waits for another.
static Result take_turns(int threads) {
  for (int left = threads; left;) {
    left = 0, moved = false;
    for (thread = 0; thread < threads; ++thread) {
      if (fibers[thread].done) continue;
      swapcontext(&scheduler, &fibers[thread].context);
      left += !fibers[thread].done;
    }
    if (failed) return FAILED;
    if (left && !moved) return DEADLOCK;
  }
  return DONE;
}

static Result run(int threads) {
  meetings.clear(), failed = false;
  for (Fiber& fiber : fibers) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, enter, 0);
    fiber.done = false;
  }
  return take_turns(threads);
}

static Result launch(int threads, const int* grid, std::function<void()> kernel) {
  body = std::move(kernel);
  fibers.resize(threads);
  for (Fiber& fiber : fibers) fiber.stack.reset(new char[STACK]);
  Result result = DONE;
  for (index[2] = 0; index[2] < grid[2]; ++index[2])
    for (index[1] = 0; index[1] < grid[1]; ++index[1])
      for (index[0] = 0; index[0] < grid[0] && !result; ++index[0]) result = run(threads);
  fibers.clear();
  return result;
}

// `count` threads meet; those that only arrive go on.
static inline void meet(unsigned long long key, int count, bool wait) {
  Meeting& meeting = meetings[key];
  int round = meeting.round;
  if (++meeting.arrived == count) meeting.arrived = 0, ++meeting.round, moved = true;
  if (wait) wait_until([&] { return meeting.round != round; });
}

static inline void barrier(int id, int count, bool wait) {
  meet(id, count ? count : (int)fibers.size(), wait);
}

static inline unsigned present(unsigned mask) {
  int first = thread / LANES * LANES, count = (int)fibers.size() - first;
  return count < LANES ? mask & ((1u << count) - 1) : mask;
}

static inline void warp_barrier(unsigned mask) {
  meet((unsigned long long)(thread / LANES + 1) << 32 | mask, __builtin_popcount(present(mask)),
       true);
}

// The values of others are in `slots` from `show` to `hide`.
template <class T>
static inline void show(unsigned mask, T value) {
  memcpy(&slots[thread], &value, sizeof value);
  warp_barrier(mask);
}

template <class T>
static inline T shuffle(unsigned mask, T value, int lane, bool inside) {
  T found = value;
  show(mask, value);
  if (inside) memcpy(&found, &slots[thread / LANES * LANES + lane], sizeof found);
  warp_barrier(mask);
  return found;
}

template <class T>
static inline T shfl(unsigned mask, T value, int lane, int width) {
  int own = thread % LANES;
  return shuffle(mask, value, own / width * width + lane % width, true);
}

template <class T>
static inline T shfl_xor(unsigned mask, T value, int bits, int width) {
  int own = thread % LANES, lane = own ^ bits;
  return shuffle(mask, value, lane, lane < own / width * width + width);
}

template <class T>
static inline T shfl_up(unsigned mask, T value, int distance, int width) {
  int own = thread % LANES;
  return shuffle(mask, value, own - distance, own % width >= distance);
}

template <class T>
static inline T shfl_down(unsigned mask, T value, int distance, int width) {
  int own = thread % LANES;
  return shuffle(mask, value, own + distance, own % width + distance < width);
}

template <class T, class Combine>
static inline T warp(T value, Combine combine) {
  for (int distance = LANES / 2; distance; distance /= 2)
    value = (T)combine(value, shfl_xor(~0u, value, distance, LANES));
  return value;
}

static inline double larger(double a, double b) { return fmax(a, b); }
static inline double smaller(double a, double b) { return fmin(a, b); }

static inline unsigned ballot(unsigned mask, bool condition) {
  unsigned found = 0;
  show(mask, (long long)condition);
  for (int lane = 0; lane < LANES; ++lane)
    if (present(mask) >> lane & 1) found |= (unsigned)slots[thread / LANES * LANES + lane] << lane;
  warp_barrier(mask);
  return found;
}

static inline int any_sync(unsigned mask, bool condition) { return ballot(mask, condition) != 0; }
static inline int all_sync(unsigned mask, bool condition) {
  return ballot(mask, condition) == present(mask);
}

// A barrier of the block that also counts.
static inline int count(bool condition) {
  int found = 0;
  slots[thread] = condition;
  barrier(0, 0, true);
  for (size_t other = 0; other < fibers.size(); ++other) found += (int)slots[other];
  barrier(0, 0, true);
  return found;
}

template <class T, int N>
struct Vector;
template <class T>
struct Vector<T, 2> {
  T x, y;
};
template <class T>
struct Vector<T, 4> {
  T x, y, z, w;
};

template <class T, class... Parts>
static inline Vector<T, sizeof...(Parts)> vector(Parts... parts) {
  return {T(parts)...};
}

static inline unsigned high_product(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}

template <class To, class From>
static inline To cast(From value) {
  To bits;
  static_assert(sizeof bits == sizeof value, "casts of bits keep their number");
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace block

static inline int min(int a, int b) { return b < a ? b : a; }
static inline int max(int a, int b) { return a < b ? b : a; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
