// Assignment of states to threads, grid-wide barriers and reductions.
//
// A thread processes one column k, and every lanes-th state of its block. One launch computes all steps: all blocks of
// the grid run concurrently, so that they can synchronise between steps.
//
// The source is compiled with NVRTC for a device, and with a C++ compiler for the emulator, which defines EMULATED.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define MAX_THREADS 1024

#ifndef EMULATED
#define SHARED(type, name, size) __shared__ type name[size]
#define DYNAMIC_SHARED(name)                \
    extern __shared__ double dynamic_shared[]; \
    char *name = (char *)dynamic_shared
#endif

// On a device, the number of columns (unless it is 0) and the width of the neighbour table are compile-time constants.
#if FIXED_COLUMNS
#define COLUMNS FIXED_COLUMNS
#else
#define COLUMNS n_columns
#endif
#ifdef FIXED_WIDTH
#define WIDTH FIXED_WIDTH
#else
#define WIDTH near.width
#endif
// PLAIN: edge weights are 1, steps are time-homogeneous, the table contains all edges, and only state counts are needed.
#ifdef FIXED_PLAIN
#define PLAIN FIXED_PLAIN
#else
#define PLAIN plain
#endif

struct Near {
    const u32 *ptr, *idx, *table;
    int width, overflows;
};

// Edge weights: x if it is not null, otherwise prob * exp(discount * reward).
struct Edges {
    const double *x, *prob, *reward;
};

// The column of a thread, and the states first, ..., last - 1 of its block.
struct StateRange {
    int lane, lanes, k;
    i64 first, last;
};

__device__ static inline StateRange state_range(i64 n_states, int n_columns) {
    StateRange p;
    p.lanes = blockDim.x / COLUMNS;
    p.lane = threadIdx.x / COLUMNS;
    p.k = threadIdx.x % COLUMNS;
    i64 size = (n_states + gridDim.x - 1) / gridDim.x;
    p.first = min((i64)n_states, size * blockIdx.x);
    p.last = min((i64)n_states, p.first + size);
    return p;
}

__device__ static inline double minus_infinity() { return -1.0 / 0.0; }

__device__ static inline bool is_finite(double value) { return value - value == 0.0; }

// 2^power; powers outside the range of doubles give 0 or infinity.
__device__ static inline double power_of_two(i64 power) {
    if (power > -1022 && power < 1024) return __longlong_as_double((power + 1023) << 52);
    return ldexp(1.0, (int)max((i64)-5000, min((i64)5000, power)));
}

// Map doubles to positive integers in the same order.
__device__ static inline u64 ordered(double value) {
    u64 bits = (u64)__double_as_longlong(value);
    return (bits >> 63) ? ~bits : bits | (1ull << 63);
}

__device__ static inline double from_ordered(u64 bits) {
    return __longlong_as_double((i64)((bits >> 63) ? bits & ~(1ull << 63) : ~bits));
}

// Synchronise all threads of the grid and make their writes visible. `arrived` must be initialised to 0.
__device__ static inline void grid_barrier(u32 *arrived) {
#ifdef EMULATED
    emulated_grid_barrier();
#else
    __syncthreads();
    if (gridDim.x == 1) return;
    if (threadIdx.x == 0) {
        u32 ticket, seen;
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(ticket) : "l"(arrived) : "memory");
        const u32 goal = (ticket / gridDim.x + 1u) * gridDim.x;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        } while ((int)(seen - goal) < 0);
    }
    __syncthreads();
#endif
}

// Maximum or sum of each column over the block, in an order that depends only on the block size.
__device__ static inline double block_reduce(double mine, const StateRange &p, int n_columns, int largest) {
    SHARED(double, part, MAX_THREADS);
    part[threadIdx.x] = mine;
    __syncthreads();
    int half = 1;
    while (2 * half < p.lanes) half *= 2;
    for (; half > 0; half /= 2) {
        if (p.lane < half && p.lane + half < p.lanes) {
            const double other = part[threadIdx.x + half * COLUMNS];
            part[threadIdx.x] = largest ? fmax(part[threadIdx.x], other) : part[threadIdx.x] + other;
        }
        __syncthreads();
    }
    return part[p.k];
}

// Maximum of each column over the grid, with a barrier; `top` (K) must be initialised to 0.
__device__ static inline double grid_max(double mine, const StateRange &p, int n_columns, u64 *top, u32 *arrived) {
    const double block_top = block_reduce(mine, p, n_columns, 1);
    if (p.lane == 0) atomicMax(top + p.k, ordered(block_top));
    grid_barrier(arrived);
    return from_ordered(*(volatile u64 *)(top + p.k));
}

__device__ static inline double edge_weight(const Edges &edges, double scale, i64 e, int k, int n_columns) {
    if (edges.x) return edges.x[e * COLUMNS + k];
    double weight = edges.prob ? edges.prob[e] : 1.0;
    return edges.reward ? weight * exp(scale * edges.reward[e * COLUMNS + k]) : weight;
}

__device__ static inline bool has_weights(const Edges &edges) { return edges.x || edges.prob || edges.reward; }
