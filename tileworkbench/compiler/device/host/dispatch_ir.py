"""The native half of a launch: block dispatch, the worker pool and the interrupt handler, as LLVM
IR.

It is compiled once per process. Everything here runs without Python's lock.

A *launch record* is an array of 8-byte words; the first two cache lines are written by the
workers::

    0        queues that have blocks left
    8        first nonzero return code (i32)
    9        workers of an OpenMP region that are done
    10       the address of `omp_get_thread_num`
    16 entry, 17 arguments, 18 flag, 19 queues, 20 scratch, 21 bytes of scratch per worker, 22
    blocks, 23 blocks taken at once, 24 workers, 25 ...   the argument slots (word 17 points here)

Each worker has a number, a part of the scratch memory and a *queue*: a cache line of the next and
the last of a row of blocks. It takes those in order, then what others have left, in order too, so
that the first block that has not begun never waits for a worker that is not there. The same worker
gets the same blocks in each launch, whose data are in its core's caches then.

A *pool* has a mutex, two condition variables, the current record ("job") and counters. Nobody waits
for a worker that has not arrived: the submitting thread works too, then withdraws the job and waits
only for those inside it.

A *sequence* is an array of words: the number of its steps, where their records are, the number
of its moves, where those are (triples of a word to write, the
number of a base and an offset), and where the bases are.
"""

from __future__ import annotations

CODE_WORD = 8
ENTRY_WORD, ARGUMENTS_WORD, FLAG_WORD, QUEUES_WORD, SCRATCH_WORD = 16, 17, 18, 19, 20
SLOTS_WORD = 25
QUEUE_BYTES = 64
SEQUENCE_WORDS = 5
POOL_BYTES = 512

_LAUNCH = """
%Record = type {
  i64, [7 x i64], i32, i64, ptr, [5 x i64], ptr, ptr, ptr, ptr, ptr, i64, i64, i64, i64
}
%Queue = type { i64, i64, [6 x i64] }

@tw_interrupt_flag = global i32 0, align 64
@tw_never_flag = global i32 0, align 64

; Fills the queues: of n workers the one with number i gets the i-th of n rows of blocks.
define void @tw_reset(ptr %record) {
entry:
  %code_at = getelementptr %Record, ptr %record, i64 0, i32 2
  %queues_at = getelementptr %Record, ptr %record, i64 0, i32 9
  %blocks_at = getelementptr %Record, ptr %record, i64 0, i32 12
  %workers_at = getelementptr %Record, ptr %record, i64 0, i32 14
  %queues = load ptr, ptr %queues_at
  %blocks = load i64, ptr %blocks_at
  %workers = load i64, ptr %workers_at
  store i32 0, ptr %code_at
  br label %fill
fill:
  %worker = phi i64 [ 0, %entry ], [ %worker_next, %fill ]
  %begin = phi i64 [ 0, %entry ], [ %end, %fill ]
  %open = phi i64 [ 0, %entry ], [ %open_next, %fill ]
  %worker_next = add i64 %worker, 1
  %product = mul i64 %blocks, %worker_next
  %end = udiv i64 %product, %workers
  %begin_at = getelementptr %Queue, ptr %queues, i64 %worker, i32 0
  %end_at = getelementptr %Queue, ptr %queues, i64 %worker, i32 1
  store i64 %begin, ptr %begin_at
  store i64 %end, ptr %end_at
  %has_blocks = icmp ult i64 %begin, %end
  %one = zext i1 %has_blocks to i64
  %open_next = add i64 %open, %one
  %more = icmp ult i64 %worker_next, %workers
  br i1 %more, label %fill, label %done
done:
  store i64 %open_next, ptr %record
  ret void
}

define void @tw_work(ptr %record, i64 %number) {
entry:
  %code_at = getelementptr %Record, ptr %record, i64 0, i32 2
  %entry_at = getelementptr %Record, ptr %record, i64 0, i32 6
  %arguments_at = getelementptr %Record, ptr %record, i64 0, i32 7
  %flag_at = getelementptr %Record, ptr %record, i64 0, i32 8
  %queues_at = getelementptr %Record, ptr %record, i64 0, i32 9
  %scratch_at = getelementptr %Record, ptr %record, i64 0, i32 10
  %stride_at = getelementptr %Record, ptr %record, i64 0, i32 11
  %chunk_at = getelementptr %Record, ptr %record, i64 0, i32 13
  %workers_at = getelementptr %Record, ptr %record, i64 0, i32 14
  %entry_point = load ptr, ptr %entry_at
  %arguments = load ptr, ptr %arguments_at
  %flag = load ptr, ptr %flag_at
  %queues = load ptr, ptr %queues_at
  %base = load ptr, ptr %scratch_at
  %stride = load i64, ptr %stride_at
  %chunk = load i64, ptr %chunk_at
  %workers = load i64, ptr %workers_at
  %offset = mul i64 %number, %stride
  %scratch = getelementptr i8, ptr %base, i64 %offset
  %is_worker = icmp ult i64 %number, %workers
  br i1 %is_worker, label %queue, label %done
queue:
  %owner = phi i64 [ %number, %entry ], [ %owner_next, %next ]
  %next_at = getelementptr %Queue, ptr %queues, i64 %owner, i32 0
  %end_at = getelementptr %Queue, ptr %queues, i64 %owner, i32 1
  %end = load i64, ptr %end_at
  br label %look
look:
  %failed = load atomic i32, ptr %code_at monotonic, align 4
  %is_failed = icmp ne i32 %failed, 0
  br i1 %is_failed, label %done, label %take
take:
  %first = atomicrmw add ptr %next_at, i64 %chunk monotonic
  %is_empty = icmp sge i64 %first, %end
  br i1 %is_empty, label %next, label %check
check:
  %sum = add i64 %first, %chunk
  %is_last = icmp sge i64 %sum, %end
  br i1 %is_last, label %close, label %run
close:
  %before = atomicrmw sub ptr %record, i64 1 monotonic
  br label %run
run:
  %limit = phi i64 [ %sum, %check ], [ %end, %close ]
  %code = call i32 %entry_point(
    ptr %arguments, i64 %first, i64 %limit, ptr %flag, ptr %scratch)
  %is_good = icmp eq i32 %code, 0
  br i1 %is_good, label %ran, label %stop
ran:
  br i1 %is_last, label %next, label %look
next:
  %owner_more = add i64 %owner, 1
  %is_beyond = icmp uge i64 %owner_more, %workers
  %owner_next = select i1 %is_beyond, i64 0, i64 %owner_more
  %open = load atomic i64, ptr %record monotonic, align 8
  %none = icmp eq i64 %open, 0
  %is_own = icmp eq i64 %owner_next, %number
  %over = or i1 %none, %is_own
  br i1 %over, label %done, label %queue
stop:
  ; the first report wins, and whoever sees it takes no further block
  %won = cmpxchg ptr %code_at, i32 0, i32 %code seq_cst seq_cst
  br label %done
done:
  ret void
}

define i32 @tw_run_serial(ptr %record) {
  %entry_at = getelementptr %Record, ptr %record, i64 0, i32 6
  %arguments_at = getelementptr %Record, ptr %record, i64 0, i32 7
  %flag_at = getelementptr %Record, ptr %record, i64 0, i32 8
  %scratch_at = getelementptr %Record, ptr %record, i64 0, i32 10
  %blocks_at = getelementptr %Record, ptr %record, i64 0, i32 12
  %entry = load ptr, ptr %entry_at
  %arguments = load ptr, ptr %arguments_at
  %flag = load ptr, ptr %flag_at
  %scratch = load ptr, ptr %scratch_at
  %blocks = load i64, ptr %blocks_at
  %code = call i32 %entry(ptr %arguments, i64 0, i64 %blocks, ptr %flag, ptr %scratch)
  ret i32 %code
}
"""

_POSIX = """
%Pool = type { [128 x i8], [128 x i8], [128 x i8], i64, ptr, i64, i64, i64, i64, i64 }

@old_action = private global [256 x i8] zeroinitializer, align 16
@new_action = private global [256 x i8] zeroinitializer, align 16
@old_handler = private global ptr null
@installed = private global i32 0

declare i32 @sched_yield()
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_trylock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
{pause_declaration}

; A worker that wakes up on the core of the thread that wakes it cannot begin while that one spins
; in the barrier at the region's end, and the region lasts a whole time slice. So each thread lets
; others run until all are done, within reason.
define private void @work_of_team(ptr %record) {
entry:
  %number_of_at = getelementptr %Record, ptr %record, i64 0, i32 4
  %number_of = load ptr, ptr %number_of_at
  %narrow = call i32 %number_of()
  %number = zext i32 %narrow to i64
  call void @tw_work(ptr %record, i64 %number)
  %finished_at = getelementptr %Record, ptr %record, i64 0, i32 3
  %threads_at = getelementptr %Record, ptr %record, i64 0, i32 14
  %threads = load i64, ptr %threads_at
  %before = atomicrmw add ptr %finished_at, i64 1 monotonic
  br label %look
look:
  %count = phi i64 [ 0, %entry ], [ %count_next, %give_way ]
  %finished = load atomic i64, ptr %finished_at monotonic, align 8
  %all = icmp uge i64 %finished, %threads
  %tired = icmp uge i64 %count, 1000
  %stop = or i1 %all, %tired
  br i1 %stop, label %done, label %give_way
give_way:
  %ignored = call i32 @sched_yield()
  %count_next = add i64 %count, 1
  br label %look
done:
  ret void
}

; A team is two addresses: GOMP_parallel(function, data, threads, flags), the entry of libgomp that
; compilers emit calls to, and omp_get_thread_num(); the OpenMP runtimes of LLVM and Intel export
; both, too.
define i32 @tw_run_openmp(ptr %record, ptr %team) {
  call void @tw_reset(ptr %record)
  %finished_at = getelementptr %Record, ptr %record, i64 0, i32 3
  %number_of_at = getelementptr %Record, ptr %record, i64 0, i32 4
  %threads_at = getelementptr %Record, ptr %record, i64 0, i32 14
  %parallel = load ptr, ptr %team
  %own_number_at = getelementptr ptr, ptr %team, i64 1
  %number_of = load ptr, ptr %own_number_at
  store i64 0, ptr %finished_at
  store ptr %number_of, ptr %number_of_at
  %wide = load i64, ptr %threads_at
  %threads = trunc i64 %wide to i32
  call void %parallel(ptr @work_of_team, ptr %record, i32 %threads, i32 0)
  %code_at = getelementptr %Record, ptr %record, i64 0, i32 2
  %code = load atomic i32, ptr %code_at acquire, align 4
  ret i32 %code
}

; Runs the records of a sequence in order; `runner` and `team` are for those of several threads.
; Returns 0, or the number of the step that failed, from 1, in the upper half and its code.
define i64 @tw_run_sequence(ptr %sequence, ptr %runner, ptr %team) {
entry:
  %steps_at = getelementptr i64, ptr %sequence, i64 1
  %moves_count_at = getelementptr i64, ptr %sequence, i64 2
  %moves_at = getelementptr i64, ptr %sequence, i64 3
  %bases_at = getelementptr i64, ptr %sequence, i64 4
  %step_count = load i64, ptr %sequence
  %steps = load ptr, ptr %steps_at
  %move_count = load i64, ptr %moves_count_at
  %moves = load ptr, ptr %moves_at
  %bases = load ptr, ptr %bases_at
  br label %look
look:
  %m = phi i64 [ 0, %entry ], [ %m_next, %move ]
  %moved = icmp uge i64 %m, %move_count
  br i1 %moved, label %next, label %move
move:
  %triple = mul i64 %m, 3
  %word_at = getelementptr i64, ptr %moves, i64 %triple
  %base_at = getelementptr i64, ptr %word_at, i64 1
  %offset_at = getelementptr i64, ptr %word_at, i64 2
  %word = load ptr, ptr %word_at
  %base_number = load i64, ptr %base_at
  %offset = load i64, ptr %offset_at
  %own_at = getelementptr i64, ptr %bases, i64 %base_number
  %own = load i64, ptr %own_at
  %address = add i64 %own, %offset
  store i64 %address, ptr %word
  %m_next = add i64 %m, 1
  br label %look
next:
  %s = phi i64 [ 0, %look ], [ %s_next, %ran ]
  %ended = icmp uge i64 %s, %step_count
  br i1 %ended, label %good, label %step
step:
  %record_at = getelementptr i64, ptr %steps, i64 %s
  %record = load ptr, ptr %record_at
  %threads_at = getelementptr %Record, ptr %record, i64 0, i32 14
  %threads = load i64, ptr %threads_at
  %is_one = icmp ule i64 %threads, 1
  br i1 %is_one, label %serial, label %several
serial:
  %code_serial = call i32 @tw_run_serial(ptr %record)
  br label %ran
several:
  %code_several = call i32 %runner(ptr %record, ptr %team)
  br label %ran
ran:
  %code = phi i32 [ %code_serial, %serial ], [ %code_several, %several ]
  %s_next = add i64 %s, 1
  %is_good = icmp eq i32 %code, 0
  br i1 %is_good, label %next, label %bad
bad:
  %upper = shl i64 %s_next, 32
  %lower = zext i32 %code to i64
  %both = or i64 %upper, %lower
  ret i64 %both
good:
  ret i64 0
}

; The handler of SIGINT (2) during a launch of the main thread. It passes the signal on to the
; handler it replaced, so that Python notes it as always. The extra arguments are for handlers
; installed with SA_SIGINFO.
define private void @on_interrupt(i32 %signal, ptr %information, ptr %context) {
  store atomic i32 1, ptr @tw_interrupt_flag seq_cst, align 4
  %handler = load atomic ptr, ptr @old_handler monotonic, align 8
  call void %handler(i32 %signal, ptr %information, ptr %context)
  ret void
}

; The first word of struct sigaction is the handler on every system with one; the rest is copied as
; it is.
define void @tw_guard_enter() {
  store atomic i32 0, ptr @tw_interrupt_flag seq_cst, align 4
  %failed = call i32 @sigaction(i32 2, ptr null, ptr @new_action)
  %handler = load ptr, ptr @new_action
  %word = ptrtoint ptr %handler to i64
  ; SIG_DFL is 0, SIG_IGN 1: the process is to die of the signal, or not to notice it
  %is_special = icmp ule i64 %word, 1
  %is_ours = icmp eq ptr %handler, @on_interrupt
  %is_failed = icmp ne i32 %failed, 0
  %skip_a = or i1 %is_special, %is_ours
  %skip = or i1 %skip_a, %is_failed
  br i1 %skip, label %done, label %install
install:
  call void @llvm.memcpy.p0.p0.i64(ptr @old_action, ptr @new_action, i64 256, i1 false)
  store atomic ptr %handler, ptr @old_handler seq_cst, align 8
  store ptr @on_interrupt, ptr @new_action
  store i32 1, ptr @installed
  %ignored = call i32 @sigaction(i32 2, ptr @new_action, ptr null)
  br label %done
done:
  ret void
}

define void @tw_guard_leave() {
  %installed = load i32, ptr @installed
  %is_installed = icmp ne i32 %installed, 0
  br i1 %is_installed, label %restore, label %done
restore:
  %ignored = call i32 @sigaction(i32 2, ptr @old_action, ptr null)
  store i32 0, ptr @installed
  br label %done
done:
  ret void
}

define void @tw_pool_init(ptr %pool, i64 %spins) {
  %wake = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %idle = getelementptr %Pool, ptr %pool, i64 0, i32 2
  %spins_at = getelementptr %Pool, ptr %pool, i64 0, i32 8
  %a = call i32 @pthread_mutex_init(ptr %pool, ptr null)
  %b = call i32 @pthread_cond_init(ptr %wake, ptr null)
  %c = call i32 @pthread_cond_init(ptr %idle, ptr null)
  store i64 %spins, ptr %spins_at
  ret void
}

; The mutex is held for some 100 ns at a time, but a thread that sleeps for it takes 50 us to wake:
; try first.
define private void @acquire(ptr %pool) {
entry:
  br label %try
try:
  %count = phi i64 [ 0, %entry ], [ %count_next, %pause ]
  %status = call i32 @pthread_mutex_trylock(ptr %pool)
  %taken = icmp eq i32 %status, 0
  br i1 %taken, label %done, label %retry
retry:
  %tired = icmp uge i64 %count, 1000
  br i1 %tired, label %sleep, label %pause
pause:
  {pause}
  %count_next = add i64 %count, 1
  br label %try
sleep:
  %status_ignored = call i32 @pthread_mutex_lock(ptr %pool)
  br label %done
done:
  ret void
}

; Ends the pool's threads, each when it has nothing to do.
define void @tw_pool_close(ptr %pool) {
  %wake = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %closed_at = getelementptr %Pool, ptr %pool, i64 0, i32 7
  %generation_at = getelementptr %Pool, ptr %pool, i64 0, i32 3
  call void @acquire(ptr %pool)
  store i64 1, ptr %closed_at
  %b = atomicrmw add ptr %generation_at, i64 1 seq_cst
  %c = call i32 @pthread_cond_broadcast(ptr %wake)
  %d = call i32 @pthread_mutex_unlock(ptr %pool)
  ret void
}

; A worker's life; who submits a job is its number 0. `seen` is the generation of the job that it
; has done already.
define ptr @tw_pool_thread(ptr %pool) {
entry:
  %wake = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %idle = getelementptr %Pool, ptr %pool, i64 0, i32 2
  %generation_at = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %job_at = getelementptr %Pool, ptr %pool, i64 0, i32 4
  %inside_at = getelementptr %Pool, ptr %pool, i64 0, i32 5
  %closed_at = getelementptr %Pool, ptr %pool, i64 0, i32 7
  %spins_at = getelementptr %Pool, ptr %pool, i64 0, i32 8
  %spins = load i64, ptr %spins_at
  %started_at = getelementptr %Pool, ptr %pool, i64 0, i32 9
  %earlier = atomicrmw add ptr %started_at, i64 1 monotonic
  %number = add i64 %earlier, 1
  br label %rest
rest:
  %seen = phi i64 [ 0, %entry ], [ %generation, %finished ], [ %generation, %missed ]
  br label %spin
spin:
  %count = phi i64 [ 0, %rest ], [ %count_next, %pause ]
  %now = load atomic i64, ptr %generation_at monotonic, align 8
  %changed = icmp ne i64 %now, %seen
  %tired = icmp uge i64 %count, %spins
  %stop = or i1 %changed, %tired
  br i1 %stop, label %lock, label %pause
pause:
  {pause}
  %count_next = add i64 %count, 1
  br label %spin
lock:
  call void @acquire(ptr %pool)
  br label %look
look:
  %closed = load i64, ptr %closed_at
  %is_closed = icmp ne i64 %closed, 0
  br i1 %is_closed, label %leave, label %compare
compare:
  %generation = load atomic i64, ptr %generation_at monotonic, align 8
  %job = load ptr, ptr %job_at
  %is_new = icmp ne i64 %generation, %seen
  %is_open = icmp ne ptr %job, null
  %take = and i1 %is_new, %is_open
  br i1 %take, label %work, label %idle_or_missed
idle_or_missed:
  br i1 %is_new, label %missed, label %sleep
missed:
  ; too late for this job; the next one may follow at once
  %z = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %rest
sleep:
  %b = call i32 @pthread_cond_wait(ptr %wake, ptr %pool)
  br label %look
work:
  %inside = load i64, ptr %inside_at
  %inside_more = add i64 %inside, 1
  store atomic i64 %inside_more, ptr %inside_at monotonic, align 8
  %c = call i32 @pthread_mutex_unlock(ptr %pool)
  call void @tw_work(ptr %job, i64 %number)
  call void @acquire(ptr %pool)
  %still = load i64, ptr %inside_at
  %inside_less = sub i64 %still, 1
  store atomic i64 %inside_less, ptr %inside_at monotonic, align 8
  %is_last = icmp eq i64 %inside_less, 0
  br i1 %is_last, label %notify, label %finished
notify:
  %e = call i32 @pthread_cond_signal(ptr %idle)
  br label %finished
finished:
  %f = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %rest
leave:
  %g = call i32 @pthread_mutex_unlock(ptr %pool)
  ret ptr null
}

; A pool that is busy with another thread's launch leaves this one to its caller alone.
define i32 @tw_run_pool(ptr %record, ptr %pool) {
entry:
  %wake = getelementptr %Pool, ptr %pool, i64 0, i32 1
  %idle = getelementptr %Pool, ptr %pool, i64 0, i32 2
  %generation_at = getelementptr %Pool, ptr %pool, i64 0, i32 3
  %job_at = getelementptr %Pool, ptr %pool, i64 0, i32 4
  %inside_at = getelementptr %Pool, ptr %pool, i64 0, i32 5
  %busy_at = getelementptr %Pool, ptr %pool, i64 0, i32 6
  %spins_at = getelementptr %Pool, ptr %pool, i64 0, i32 8
  %spins = load i64, ptr %spins_at
  %code_at = getelementptr %Record, ptr %record, i64 0, i32 2
  call void @tw_reset(ptr %record)
  call void @acquire(ptr %pool)
  %busy = load i64, ptr %busy_at
  %is_free = icmp eq i64 %busy, 0
  br i1 %is_free, label %post, label %alone
alone:
  %b = call i32 @pthread_mutex_unlock(ptr %pool)
  call void @tw_work(ptr %record, i64 0)
  br label %result
post:
  store i64 1, ptr %busy_at
  store ptr %record, ptr %job_at
  %old = atomicrmw add ptr %generation_at, i64 1 seq_cst
  %c = call i32 @pthread_mutex_unlock(ptr %pool)
  %d = call i32 @pthread_cond_broadcast(ptr %wake)
  call void @tw_work(ptr %record, i64 0)
  call void @acquire(ptr %pool)
  store ptr null, ptr %job_at
  %f = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %spin
spin:
  %count = phi i64 [ 0, %post ], [ %count_next, %pause ]
  %inside = load atomic i64, ptr %inside_at monotonic, align 8
  %is_empty = icmp eq i64 %inside, 0
  %tired = icmp uge i64 %count, %spins
  %stop = or i1 %is_empty, %tired
  br i1 %stop, label %lock, label %pause
pause:
  {pause}
  %count_next = add i64 %count, 1
  br label %spin
lock:
  call void @acquire(ptr %pool)
  br label %look
look:
  %left = load i64, ptr %inside_at
  %all_left = icmp eq i64 %left, 0
  br i1 %all_left, label %close, label %sleep
sleep:
  %h = call i32 @pthread_cond_wait(ptr %idle, ptr %pool)
  br label %look
close:
  store i64 0, ptr %busy_at
  %i = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %result
result:
  %code = load atomic i32, ptr %code_at acquire, align 4
  ret i32 %code
}
"""

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

PORTABLE_SYMBOLS = (
    *("tw_run_serial", "tw_reset", "tw_work", "tw_interrupt_flag", "tw_never_flag"),
)
POSIX_SYMBOLS = (
    *("tw_guard_enter", "tw_guard_leave", "tw_pool_init", "tw_pool_close", "tw_pool_thread"),
    *("tw_run_openmp", "tw_run_pool", "tw_run_sequence"),
)


def dispatch_ir(architecture: str, posix: bool) -> str:
    """The module's text for `architecture` (x86_64, aarch64, other); the pool and the handler only
    if `posix`."""
    if not posix:
        return _LAUNCH
    declaration, pause = _PAUSES.get(architecture, ("", ""))
    return _LAUNCH + _POSIX.replace("{pause_declaration}", declaration).replace("{pause}", pause)
