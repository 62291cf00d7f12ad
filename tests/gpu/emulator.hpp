// Runs the kernels on a CPU, exactly as they stand: every thread of the grid is a fibre that runs until its next
// barrier.
//
// Fibres run one after the other, so that a barrier that is missing shows: the first fibre reads what the others have
// not written yet, and the last one what they have written too early. Which is the first is a choice, since what the
// lower threads take from the higher ones shows in one order, and the other way round in the other. A barrier that only
// some threads of a block reach is an error, as it is on a device.

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#define EMULATED
#define STACK (1 << 16)
// Shared memory of fixed size, of which a kernel may have one array: two numbers for each of 1024 threads.
#define FIXED_BYTES (2 * 1024 * 8)
#define __global__
#define __device__
#define __launch_bounds__(...)
#define SHARED(type, name, size)                                                           \
    static_assert(sizeof(type) * (size) <= FIXED_BYTES, "too little memory is emulated"); \
    type *name = (type *)emulated_block().fixed.data()
#define DYNAMIC_SHARED(name) char *name = emulated_block().dynamic.data()

using std::max;
using std::min;

struct EmulatedIndex {
    unsigned x;
};

enum Waiting { RUNS, AT_BLOCK, AT_GRID, DONE };

struct EmulatedBlock {
    std::vector<char> fixed, dynamic;
};

struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack;  // not filled with zeros, which would take longer than most kernels
    Waiting state = RUNS;
};

static EmulatedIndex blockIdx, threadIdx, blockDim, gridDim;
static std::vector<EmulatedBlock> emulated_blocks;
static ucontext_t emulated_scheduler;
static Fibre *emulated_fibre;
static const std::function<void()> *emulated_kernel;

static inline EmulatedBlock &emulated_block() { return emulated_blocks[blockIdx.x]; }

static inline void emulated_wait(Waiting where) {
    emulated_fibre->state = where;
    swapcontext(&emulated_fibre->context, &emulated_scheduler);
}

static inline void __syncthreads() { emulated_wait(AT_BLOCK); }
static inline void emulated_grid_barrier() { emulated_wait(AT_GRID); }
static inline double __ldcs(const double *at) { return *at; }

static inline long long __double_as_longlong(double value) {
    long long bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double __longlong_as_double(long long bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline unsigned long long atomicMax(unsigned long long *at, unsigned long long value) {
    unsigned long long old = *at;
    *at = max(old, value);
    return old;
}

static void emulated_body() {
    (*emulated_kernel)();
    emulated_fibre->state = DONE;
    swapcontext(&emulated_fibre->context, &emulated_scheduler);
}

// 0, or 1 where the threads of a block waited at different barriers. With `reverse` the last block and the last thread
// of each run first.
static int emulate(unsigned blocks, unsigned threads, size_t shared, int reverse,
                   const std::function<void()> &kernel) {
    gridDim.x = blocks;
    blockDim.x = threads;
    emulated_kernel = &kernel;
    emulated_blocks.assign(blocks, EmulatedBlock{std::vector<char>(FIXED_BYTES), std::vector<char>(shared)});
    std::vector<Fibre> fibres(blocks * threads);
    for (Fibre &fibre : fibres) {
        fibre.stack.reset(new char[STACK]);
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.get();
        fibre.context.uc_stack.ss_size = STACK;
        fibre.context.uc_link = &emulated_scheduler;
        makecontext(&fibre.context, emulated_body, 0);
    }
    for (;;) {
        unsigned done = 0, at_grid = 0;
        for (unsigned turn = 0; turn < blocks; ++turn) {
            const unsigned b = reverse ? blocks - 1 - turn : turn;
            Waiting state = AT_BLOCK;
            while (state == AT_BLOCK) {
                for (unsigned j = 0; j < threads; ++j) {
                    const unsigned i = reverse ? threads - 1 - j : j;
                    emulated_fibre = &fibres[b * threads + i];
                    blockIdx.x = b;
                    threadIdx.x = i;
                    swapcontext(&emulated_scheduler, &emulated_fibre->context);
                    if (j == 0) state = emulated_fibre->state;
                    if (state != emulated_fibre->state) return 1;
                }
            }
            done += state == DONE;
            at_grid += state == AT_GRID;
        }
        if (done == blocks) return 0;
        if (at_grid != blocks) return 1;
    }
}
