// Assignment of threads to columns, and reductions over the threads of a column.

// Position of a thread in its block: the intent varies fastest, then the column, then the lane.
struct ThreadTile {
    int k, group, groups, column, lane, lanes, stride;
    bool on;
};

__device__ static inline ThreadTile thread_tile(int n_columns, int wide, int lanes) {
    ThreadTile s;
    const int size = wide * lanes, row = threadIdx.x / n_columns;
    s.k = threadIdx.x % n_columns;
    s.groups = (int)(blockDim.x / n_columns) / size;
    s.group = row / size;
    s.lane = row % size / wide;
    s.column = row % wide;
    s.lanes = lanes;
    s.stride = wide * n_columns;
    s.on = s.group < s.groups;
    return s;
}

// Accumulator of a logarithm of a sum: top + log(total).
struct LogSum {
    double top, total;
};

__device__ static inline void log_add(LogSum &s, double x) {
    if (x == minus_infinity()) return;
    const double high = x > s.top ? x : s.top, ratio = exp((x > s.top ? s.top : x) - high);
    s.total = x > s.top ? s.total * ratio + 1.0 : s.total + ratio;
    s.top = high;
}

__device__ static inline double log_of(const LogSum &s) {
    return s.top == minus_infinity() ? s.top : s.top + log(s.total);
}

// Reduce over the lanes of each column; lane 0 returns the result. All threads of the block must call it.
// `part` is shared memory for two doubles per thread.
__device__ static inline LogSum reduce_logs(LogSum mine, const ThreadTile &s, double *part) {
    if (s.lanes == 1) return mine;
    double *at = part + 2 * threadIdx.x;
    at[0] = mine.top;
    at[1] = mine.total;
    __syncthreads();
    for (int half = s.lanes / 2; half > 0; half /= 2) {
        if (s.on && s.lane < half) {
            const double *other = at + 2 * half * s.stride, high = fmax(at[0], other[0]);
            if (high > minus_infinity()) {
                at[1] = at[1] * exp(at[0] - high) + other[1] * exp(other[0] - high);
                at[0] = high;
            }
        }
        __syncthreads();
    }
    return {at[0], at[1]};
}

// Reduce two sums in linear arithmetic over the lanes of each column; see reduce_logs.
__device__ static inline void reduce_sums(double &one, double &other, const ThreadTile &s, double *part) {
    if (s.lanes == 1) return;
    double *at = part + 2 * threadIdx.x;
    at[0] = one;
    at[1] = other;
    __syncthreads();
    for (int half = s.lanes / 2; half > 0; half /= 2) {
        if (s.on && s.lane < half) {
            at[0] += at[2 * half * s.stride];
            at[1] += at[2 * half * s.stride + 1];
        }
        __syncthreads();
    }
    one = at[0];
    other = at[1];
}
