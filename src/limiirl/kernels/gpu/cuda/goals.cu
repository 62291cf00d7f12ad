// Sums over walks by elimination on a device (`kernels.goals`), K intents side by side.
//
// States of a level of the tree are completed together. A tile is a state and some of its columns; a group of threads
// works on it, several for a column where it has many terms. What a column adds up it gathers, and what the adjoint adds
// to it comes from one state a level, so that nothing is added in an order that is left to chance.

struct Moves {
    i64 n;
    const int *up_ptr, *up, *low_ptr, *low, *place;
};

// Where j stands in up[first], ..., up[last - 1], which ascend; -1 if it does not.
__device__ static inline int place_in(const int *up, int j, int first, int last) {
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

// One term of a column of state i, by way of the state v below it that stands at m. With w states above i, the columns
// are the w moves up, the w moves down, the move to itself, and all walks that have not yet climbed to i.
__device__ static inline double term(const Moves &g, const double *value, const double *star, const double *reach,
                                     int i, int column, int m, int k, int n_columns) {
    const int a = g.up_ptr[i], w = g.up_ptr[i + 1] - a, v = g.low[m], q0 = g.place[m];
    const double loop = star[(i64)v * n_columns + k];
    const double into = value[(g.n + q0) * n_columns + k] + loop, out = value[(i64)q0 * n_columns + k] + loop;
    if (column == 2 * w) return into + value[(i64)q0 * n_columns + k];
    if (column == 2 * w + 1) return into + reach[(i64)v * n_columns + k];
    const int c = column < w ? column : column - w;
    // All that is above v beyond i is above i too: it stands at c, or before by at most those that v lacks.
    const int first = q0 + 1, last = g.up_ptr[v + 1], lacks = w - (last - first);
    const int q = place_in(g.up, g.up[a + c], first + max(0, c - lacks), min(last, first + c + 1));
    if (q < 0) return minus_infinity();
    return column < w ? into + value[(i64)q * n_columns + k] : out + value[(g.n + q) * n_columns + k];
}

__device__ static inline void complete(const Moves &g, i64 n_states, int i, int column, int k, int n_columns,
                                       double found, double margin, double *value, double *star, double *reach,
                                       u64 *stuck) {
    const int a = g.up_ptr[i], w = g.up_ptr[i + 1] - a;
    const i64 at = (i64)i * n_columns + k;
    if (column < w) {
        value[(i64)(a + column) * n_columns + k] = found;
    } else if (column < 2 * w) {
        value[(g.n + a + column - w) * n_columns + k] = found;
    } else if (column == 2 * w + 1) {
        reach[at] = found;
    } else {
        value[(2 * g.n + i) * n_columns + k] = found;
        const bool fine = found < -margin;
        star[at] = fine ? -log(-expm1(found)) : 0.0;
        if (!fine) atomicMax(stuck + k, (u64)(n_states - i));  // the first of all: those above it come later
    }
}

// Complete the values of all moves. `stuck` (K), 0 before, is S less the first state whose loops weigh too much.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
goal_eliminate(i64 n_states, int n_columns, i64 n_moves, const int *up_ptr, const int *up, const int *low_ptr,
               const int *low, const int *place, int n_levels, const i64 *tile_ptr, const int *tile_state,
               const int *tile_first, const int *wide, const int *lanes, double margin, double *value, double *star,
               double *reach, u64 *stuck, u32 *arrived) {
    const Moves g = {n_moves, up_ptr, up, low_ptr, low, place};
    SHARED(double, part, 2 * MAX_THREADS);
    for (int level = 0; level < n_levels; ++level) {
        const Seat s = seat_of(n_columns, wide[level], lanes[level]);
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
            mine = fold_logs(mine, s, part);
            if (on && s.lane == 0)
                complete(g, n_states, i, column, s.k, n_columns, log_of(mine), margin, value, star, reach, stuck);
        }
        grid_barrier(arrived);
    }
}

// Turn `reach` of the walks that climb to each state into that of all walks from there: down from the last level.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
goal_reach(int n_columns, const int *up_ptr, const int *up, int n_levels, const i64 *tile_ptr, const int *tile_state,
           const int *wide, const int *lanes, const double *value, const double *star, double *reach, u32 *arrived) {
    SHARED(double, part, 2 * MAX_THREADS);
    for (int level = n_levels - 1; level >= 0; --level) {
        const Seat s = seat_of(n_columns, wide[level], lanes[level]);
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
            mine = fold_logs(mine, s, part);
            if (on && s.lane == 0) reach[at] = log_of(mine) + star[at];
        }
        grid_barrier(arrived);
    }
}

__device__ static inline double share_of(double pull, double term, double value) {
    return pull != 0.0 && term > minus_infinity() ? pull * exp(term - value) : 0.0;
}

// Derivatives by completed values and by star become those by the values before, but for a state's move to itself,
// where what comes by its star is still missing. Columns of a state are those below it.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
goal_pull_back(int n_columns, i64 n_moves, const int *up_ptr, const int *up, const int *low_ptr, const int *low,
               const int *place, int n_levels, const i64 *tile_ptr, const int *tile_state, const int *tile_first,
               const int *wide, const int *lanes, const double *value, const double *star, double *pull,
               double *pull_star, u32 *arrived) {
    const i64 n = n_moves;
    SHARED(double, part, 2 * MAX_THREADS);
    for (int level = n_levels - 1; level > 0; --level) {
        const Seat s = seat_of(n_columns, wide[level], lanes[level]);
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
                const int a = up_ptr[i], end = up_ptr[v + 1], lacks = up_ptr[i + 1] - a - (end - q0 - 1);
                for (int q = q0 + 1 + s.lane; q < end; q += s.lanes) {
                    const int first = a + q - q0 - 1, p = place_in(up, up[q], first, first + lacks + 1);
                    const i64 to = (i64)p * n_columns + s.k, at = (i64)q * n_columns + s.k, down = n * n_columns;
                    const double up_share = share_of(pull[to], into + value[at], value[to]);
                    const double down_share = share_of(pull[down + to], out + value[down + at], value[down + to]);
                    pull[at] += up_share;
                    pull[down + at] += down_share;
                    by_into += up_share;
                    by_out += down_share;
                }
                if (s.lane == 0) {
                    const i64 loop_i = (2 * n + i) * n_columns + s.k, at = (i64)i * n_columns + s.k;
                    const double all = pull[loop_i] + share_of(pull_star[at], value[loop_i] + star[at], 0.0);
                    own = share_of(all, into + value[(i64)q0 * n_columns + s.k], value[loop_i]);
                }
            }
            fold_sums(by_into, by_out, s, part);
            if (on && s.lane == 0) {
                pull[(n + q0) * n_columns + s.k] += by_into + own;
                pull[(i64)q0 * n_columns + s.k] += by_out + own;
                pull_star[(i64)v * n_columns + s.k] += by_into + by_out + own;
            }
        }
        grid_barrier(arrived);
    }
}
