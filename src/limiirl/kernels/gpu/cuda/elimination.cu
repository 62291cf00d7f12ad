// State elimination on a device (`kernels.elimination.numeric`) for K intents.
//
// The states of one level of the elimination tree are processed together. A tile consists of a state and some of its
// columns; a group of threads processes it, with several threads per column if columns have many terms. Every sum has a
// fixed order: a column gathers its terms, and an adjoint receives contributions from one state per level.

struct Graph {
    i64 n;
    const int *up_ptr, *up, *low_ptr, *low, *place;
};

// Position of j in the ascending range up[first], ..., up[last - 1], or -1.
__device__ static inline int position_in(const int *up, int j, int first, int last) {
    while (first < last) {
        const int middle = first + (last - first) / 2;
        if (up[middle] == j) return middle;
        if (up[middle] < j)
            first = middle + 1;
        else
            last = middle;
    }
    return -1;
}

// One term of a column of state i: the paths through its descendant v at position m. With w ancestors in `up`, the
// columns are w upward transitions, w downward transitions, the self-loop, and the paths from i to its descendants.
__device__ static inline double term(const Graph &g, const double *value, const double *star, const double *reach,
                                     int i, int column, int m, int k, int n_columns) {
    const int a = g.up_ptr[i], w = g.up_ptr[i + 1] - a, v = g.low[m], q0 = g.place[m];
    const double loop = star[(i64)v * n_columns + k];
    const double into = value[(g.n + q0) * n_columns + k] + loop, out = value[(i64)q0 * n_columns + k] + loop;
    if (column == 2 * w) return into + value[(i64)q0 * n_columns + k];
    if (column == 2 * w + 1) return into + reach[(i64)v * n_columns + k];
    const int c = column < w ? column : column - w;
    // The entries of v after i are a subset of the entries of i, at most `missing` positions earlier.
    const int first = q0 + 1, last = g.up_ptr[v + 1], missing = w - (last - first);
    const int q = position_in(g.up, g.up[a + c], first + max(0, c - missing), min(last, first + c + 1));
    if (q < 0) return minus_infinity();
    return column < w ? into + value[(i64)q * n_columns + k] : out + value[(g.n + q) * n_columns + k];
}

__device__ static inline void complete(const Graph &g, i64 n_states, int i, int column, int k, int n_columns,
                                       double sum, double margin, double *value, double *star, double *reach,
                                       u64 *divergent) {
    const int a = g.up_ptr[i], w = g.up_ptr[i + 1] - a;
    const i64 at = (i64)i * n_columns + k;
    if (column < w) {
        value[(i64)(a + column) * n_columns + k] = sum;
    } else if (column < 2 * w) {
        value[(g.n + a + column - w) * n_columns + k] = sum;
    } else if (column == 2 * w + 1) {
        reach[at] = sum;
    } else {
        value[(2 * g.n + i) * n_columns + k] = sum;
        const bool fine = sum < -margin;
        star[at] = fine ? -log(-expm1(sum)) : 0.0;
        if (!fine) atomicMax(divergent + k, (u64)(n_states - i));  // keeps the first state
    }
}

// Factorise. `divergent` (K), initially 0, is set to S - i, where i is the first state at which the sum diverges.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
elimination_factorise(i64 n_states, int n_columns, i64 n_transitions, const int *up_ptr, const int *up, const int *low_ptr,
               const int *low, const int *place, int n_levels, const i64 *tile_ptr, const int *tile_state,
               const int *tile_first, const int *wide, const int *lanes, double margin, double *value, double *star,
               double *reach, u64 *divergent, u32 *arrived) {
    const Graph g = {n_transitions, up_ptr, up, low_ptr, low, place};
    SHARED(double, part, 2 * MAX_THREADS);
    for (int level = 0; level < n_levels; ++level) {
        const ThreadTile s = thread_tile(n_columns, wide[level], lanes[level]);
        const i64 last = tile_ptr[level + 1], step = (i64)gridDim.x * s.groups;
        for (i64 t0 = tile_ptr[level] + (i64)blockIdx.x * s.groups; t0 < last; t0 += step) {
            const i64 t = t0 + s.group;
            bool on = s.on && t < last;
            const int i = on ? tile_state[t] : 0, column = on ? tile_first[t] + s.column : 0;
            const int w = g.up_ptr[i + 1] - g.up_ptr[i];
            on = on && column < 2 * w + 2;
            LogSum mine = {minus_infinity(), 0.0};
            if (on) {
                if (s.lane == 0) {
                    i64 at = column < w ? g.up_ptr[i] + column : g.n + g.up_ptr[i] + column - w;
                    if (column == 2 * w) at = 2 * g.n + i;
                    log_add(mine, column == 2 * w + 1 ? 0.0 : value[at * n_columns + s.k]);
                }
                for (int m = g.low_ptr[i] + s.lane; m < g.low_ptr[i + 1]; m += s.lanes)
                    log_add(mine, term(g, value, star, reach, i, column, m, s.k, n_columns));
            }
            mine = reduce_logs(mine, s, part);
            if (on && s.lane == 0)
                complete(g, n_states, i, column, s.k, n_columns, log_of(mine), margin, value, star, reach, divergent);
        }
        grid_barrier(arrived);
    }
}

// Extend `reach` from paths to descendants to all paths from each state, beginning with the roots.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
elimination_reach(int n_columns, const int *up_ptr, const int *up, int n_levels, const i64 *tile_ptr, const int *tile_state,
           const int *wide, const int *lanes, const double *value, const double *star, double *reach, u32 *arrived) {
    SHARED(double, part, 2 * MAX_THREADS);
    for (int level = n_levels - 1; level >= 0; --level) {
        const ThreadTile s = thread_tile(n_columns, wide[level], lanes[level]);
        const i64 last = tile_ptr[level + 1], step = (i64)gridDim.x * s.groups;
        for (i64 t0 = tile_ptr[level] + (i64)blockIdx.x * s.groups; t0 < last; t0 += step) {
            const i64 t = t0 + s.group;
            const bool on = s.on && t < last;
            const int v = on ? tile_state[t] : 0;
            const i64 at = (i64)v * n_columns + s.k;
            LogSum mine = {minus_infinity(), 0.0};
            if (on) {
                if (s.lane == 0) log_add(mine, reach[at]);
                for (int p = up_ptr[v] + s.lane; p < up_ptr[v + 1]; p += s.lanes)
                    log_add(mine, value[(i64)p * n_columns + s.k] + reach[(i64)up[p] * n_columns + s.k]);
            }
            mine = reduce_logs(mine, s, part);
            if (on && s.lane == 0) reach[at] = log_of(mine) + star[at];
        }
        grid_barrier(arrived);
    }
}

__device__ static inline double contribution(double adjoint, double term, double value) {
    return adjoint != 0.0 && term > minus_infinity() ? adjoint * exp(term - value) : 0.0;
}

// Propagate the adjoints of the factors and stars back to the initial values, except the adjoint of a self-loop through
// its star, which the caller adds. The columns of a state are its descendants.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
elimination_adjoint(int n_columns, i64 n_transitions, const int *up_ptr, const int *up, const int *low_ptr, const int *low,
               const int *place, int n_levels, const i64 *tile_ptr, const int *tile_state, const int *tile_first,
               const int *wide, const int *lanes, const double *value, const double *star, double *adjoint,
               double *star_adjoint, u32 *arrived) {
    const i64 n = n_transitions;
    SHARED(double, part, 2 * MAX_THREADS);
    for (int level = n_levels - 1; level > 0; --level) {
        const ThreadTile s = thread_tile(n_columns, wide[level], lanes[level]);
        const i64 last = tile_ptr[level + 1], step = (i64)gridDim.x * s.groups;
        for (i64 t0 = tile_ptr[level] + (i64)blockIdx.x * s.groups; t0 < last; t0 += step) {
            const i64 t = t0 + s.group;
            bool on = s.on && t < last;
            const int i = on ? tile_state[t] : 0, m = low_ptr[i] + (on ? tile_first[t] + s.column : 0);
            on = on && m < low_ptr[i + 1];
            double by_into = 0.0, by_out = 0.0, own = 0.0;
            int v = 0, q0 = 0;
            if (on) {
                v = low[m];
                q0 = place[m];
                const double loop = star[(i64)v * n_columns + s.k];
                const double into = value[(n + q0) * n_columns + s.k] + loop;
                const double out = value[(i64)q0 * n_columns + s.k] + loop;
                const int a = up_ptr[i], end = up_ptr[v + 1], missing = up_ptr[i + 1] - a - (end - q0 - 1);
                for (int q = q0 + 1 + s.lane; q < end; q += s.lanes) {
                    const int first = a + q - q0 - 1, p = position_in(up, up[q], first, first + missing + 1);
                    const i64 to = (i64)p * n_columns + s.k, at = (i64)q * n_columns + s.k, down = n * n_columns;
                    const double up_part = contribution(adjoint[to], into + value[at], value[to]);
                    const double down_part = contribution(adjoint[down + to], out + value[down + at], value[down + to]);
                    adjoint[at] += up_part;
                    adjoint[down + at] += down_part;
                    by_into += up_part;
                    by_out += down_part;
                }
                if (s.lane == 0) {
                    const i64 loop_i = (2 * n + i) * n_columns + s.k, at = (i64)i * n_columns + s.k;
                    const double all = adjoint[loop_i] + contribution(star_adjoint[at], value[loop_i] + star[at], 0.0);
                    own = contribution(all, into + value[(i64)q0 * n_columns + s.k], value[loop_i]);
                }
            }
            reduce_sums(by_into, by_out, s, part);
            if (on && s.lane == 0) {
                adjoint[(n + q0) * n_columns + s.k] += by_into + own;
                adjoint[(i64)q0 * n_columns + s.k] += by_out + own;
                star_adjoint[(i64)v * n_columns + s.k] += by_into + by_out + own;
            }
        }
        grid_barrier(arrived);
    }
}
