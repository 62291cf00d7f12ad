// What every sweep needs: who works on which states, and how the whole grid waits for a step to end.
//
// A thread works on one column k throughout, and on every lanes-th state of its block's share. One launch runs all
// steps: the grid has no more blocks than fit on the device at once, so that they can wait for each other.
//
// The source is compiled by NVRTC for a device, and by a C++ compiler for the emulator, which defines EMULATED.

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

// The number of columns, unless it is 0, and the width of the neighbours' table are known when compiling for a device.
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
// Whether edges weigh 1, steps are steady, the table holds all and states alone are counted: most of a sweep falls
// away.
#ifdef FIXED_PLAIN
#define PLAIN FIXED_PLAIN
#else
#define PLAIN plain
#endif

struct Near {
    const u32 *ptr, *idx, *table;
    int width, overflows;
};

// Where the edges' weights come from: x as it stands, or the discounted product of prob and exp(reward).
struct Edges {
    const double *x, *prob, *reward;
};

struct Place {
    int lane, lanes, k;
    i64 first, last;  // the states of this block
};

__device__ static inline Place place_of(i64 n_states, int n_columns) {
    Place p;
    p.lanes = blockDim.x / COLUMNS;
    p.lane = threadIdx.x / COLUMNS;
    p.k = threadIdx.x % COLUMNS;
    i64 share = (n_states + gridDim.x - 1) / gridDim.x;
    p.first = min((i64)n_states, share * blockIdx.x);
    p.last = min((i64)n_states, p.first + share);
    return p;
}

__device__ static inline double minus_infinity() { return -1.0 / 0.0; }

__device__ static inline bool is_finite(double value) { return value - value == 0.0; }

// 2^power; powers beyond every double's are as good as the last that matters.
__device__ static inline double power_of_two(i64 power) {
    if (power > -1022 && power < 1024) return __longlong_as_double((power + 1023) << 52);
    return ldexp(1.0, (int)max((i64)-5000, min((i64)5000, power)));
}

// Doubles as whole numbers in the same order; 0 comes before all of them.
__device__ static inline u64 ordered(double value) {
    u64 bits = (u64)__double_as_longlong(value);
    return (bits >> 63) ? ~bits : bits | (1ull << 63);
}

__device__ static inline double from_ordered(u64 bits) {
    return __longlong_as_double((i64)((bits >> 63) ? bits & ~(1ull << 63) : ~bits));
}

// Wait until every thread of the grid is here; what they wrote is then seen by all. `arrived` starts at 0.
__device__ static inline void grid_barrier(u32 *arrived) {
#ifdef EMULATED
    emulated_grid_barrier();
#else
    __syncthreads();
    if (gridDim.x == 1) return;
    if (threadIdx.x == 0) {
        __threadfence();
        u32 ticket = atomicAdd(arrived, 1u);
        u32 goal = (ticket / gridDim.x + 1u) * gridDim.x;
        while ((int)(*(volatile u32 *)arrived - goal) < 0) {
        }
        __threadfence();
    }
    __syncthreads();
#endif
}

// The largest value, or the sum, of each column over the block, in an order that depends on its size alone.
__device__ static inline double block_fold(double mine, const Place &p, int n_columns, int largest) {
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

// The largest value of each column over the whole grid, which waits meanwhile; `top` (K) starts at 0.
__device__ static inline double grid_max(double mine, const Place &p, int n_columns, u64 *top, u32 *arrived) {
    const double found = block_fold(mine, p, n_columns, 1);
    if (p.lane == 0) atomicMax(top + p.k, ordered(found));
    grid_barrier(arrived);
    return from_ordered(*(volatile u64 *)(top + p.k));
}

__device__ static inline double edge_weight(const Edges &edges, double scale, i64 e, int k, int n_columns) {
    if (edges.x) return edges.x[e * COLUMNS + k];
    double weight = edges.prob ? edges.prob[e] : 1.0;
    return edges.reward ? weight * exp(scale * edges.reward[e * COLUMNS + k]) : weight;
}

__device__ static inline bool weighted(const Edges &edges) { return edges.x || edges.prob || edges.reward; }
