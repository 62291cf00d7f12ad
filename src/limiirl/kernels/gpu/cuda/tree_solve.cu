// Legs on a device: walks that climb from a state to each of its ancestors, or come down from there (`kernels.goals`).
//
// A block works on one leg at a time, from its state upwards, or back. Moves up are multiplied by 1 / (1 - W) of the
// state that they leave, and so are moves down, so that the sum over the meeting points of two legs is a plain product.
// Derivatives by a move are gathered from all legs over it, which stand together: nothing is added by two threads.

#define LEG_THREADS 256

// Values of moves before elimination: those of edges, summed where several join the same two states.
extern "C" __global__ void goal_load(i64 n_slots, int n_columns, const int *slot, const int *slot_ptr,
                                     const int *edge, const double *log_w, double *value) {
    const i64 size = n_slots * n_columns;
    for (i64 x = (i64)blockIdx.x * blockDim.x + threadIdx.x; x < size; x += (i64)gridDim.x * blockDim.x) {
        const i64 i = x / n_columns;
        const int k = (int)(x - i * n_columns);
        LogSum found = {minus_infinity(), 0.0};
        for (int e = slot_ptr[i]; e < slot_ptr[i + 1]; ++e) log_add(found, log_w[(i64)edge[e] * n_columns + k]);
        value[(i64)slot[i] * n_columns + k] = log_of(found);
    }
}

// leg (., K): 1 at its state, or `loops` (S, K) of it where these are given; then what has climbed to each ancestor.
extern "C" __global__ void goal_climb(i64 n_legs, int n_columns, const int *up_ptr, const int *level, const int *path,
                                      const i64 *node, const i64 *leg_ptr, const double *weight, const double *loops,
                                      double *leg) {
    const Seat s = seat_of(n_columns, 1, (int)(blockDim.x / n_columns));
    for (i64 l = blockIdx.x; l < n_legs; l += gridDim.x) {
        const i64 base = leg_ptr[l], size = leg_ptr[l + 1] - base;
        double *mine = leg + base * n_columns + s.k;
        for (i64 o = s.lane; s.on && o < size; o += s.lanes)
            mine[o * n_columns] = o > 0 ? 0.0 : (loops ? loops[node[l] * n_columns + s.k] : 1.0);
        __syncthreads();
        for (i64 o = 0; o < size - 1; ++o) {
            const int v = path[base + o], top = (int)size - 1;
            const double here = mine[o * n_columns];
            for (int p = up_ptr[v] + s.lane; s.on && p < up_ptr[v + 1]; p += s.lanes)
                mine[(i64)(top - level[p]) * n_columns] += here * weight[(i64)p * n_columns + s.k];
            __syncthreads();
        }
    }
}

// total (m, K) of pairs: one leg times another over all common ancestors, from the first, of depth `meet`, to the root.
// `one` and `other` say where the root would stand in the legs.
extern "C" __global__ void goal_join(i64 n_pairs, int n_columns, const i64 *one, const i64 *other, const int *meet,
                                     const double *leg_up, const double *leg_down, double *total) {
    const Seat s = seat_of(n_columns, 1, (int)(blockDim.x / n_columns));
    SHARED(double, part, 2 * LEG_THREADS);
    for (i64 i = blockIdx.x; i < n_pairs; i += gridDim.x) {
        double found = 0.0, none = 0.0;
        for (int d = s.lane; s.on && d <= meet[i]; d += s.lanes)
            found += leg_up[(one[i] - d) * n_columns + s.k] * leg_down[(other[i] - d) * n_columns + s.k];
        fold_sums(found, none, s, part);
        if (s.on && s.lane == 0) total[i * n_columns + s.k] = found;
    }
}

// Derivatives by legs: of the pairs of each (`pair_ptr`, `pair`), given those by their sums and the other leg of each;
// then from the last ancestor down to the state.
extern "C" __global__ void goal_legs_back(i64 n_legs, int n_columns, const int *up_ptr, const int *level,
                                          const int *path, const i64 *leg_ptr, const double *weight,
                                          const i64 *pair_ptr, const i64 *pair, const i64 *other, const int *meet,
                                          const double *by_sum, const double *other_leg, double *pull_leg) {
    const Seat s = seat_of(n_columns, 1, (int)(blockDim.x / n_columns));
    SHARED(double, part, 2 * LEG_THREADS);
    for (i64 l = blockIdx.x; l < n_legs; l += gridDim.x) {
        const i64 base = leg_ptr[l], size = leg_ptr[l + 1] - base;
        const int top = (int)size - 1;
        double *mine = pull_leg + base * n_columns + s.k;
        for (int o = s.lane; s.on && o < size; o += s.lanes) {
            double found = 0.0;
            for (i64 j = pair_ptr[l]; j < pair_ptr[l + 1]; ++j) {
                const i64 i = pair[j];
                if (top - o > meet[i]) continue;
                const double by = by_sum[i * n_columns + s.k];
                if (by != 0.0) found += by * other_leg[(other[i] - (top - o)) * n_columns + s.k];
            }
            mine[(i64)o * n_columns] = found;
        }
        __syncthreads();
        for (int o = top - 1; o >= 0; --o) {
            const int v = path[base + o];
            double found = 0.0, none = 0.0;
            for (int p = up_ptr[v] + s.lane; s.on && p < up_ptr[v + 1]; p += s.lanes)
                found += mine[(i64)(top - level[p]) * n_columns] * weight[(i64)p * n_columns + s.k];
            fold_sums(found, none, s, part);
            if (s.on && s.lane == 0) mine[(i64)o * n_columns] += found;
            __syncthreads();
        }
    }
}

// Add derivatives by the logarithms of moves, pull (n, K), and of 1 / (1 - W), pull_star (S, K), of all legs over each
// state: a block a state, whose legs stand at first, ..., last - 1. Moves down carry the factor of the state that they
// leave, which is the upper one: with `from_above`, it is that of the whole leg at a state.
extern "C" __global__ void goal_moves_back(i64 n_touched, int n_columns, const int *up_ptr, const int *level,
                                           const int *depth, const int *touched, const int *first, const int *last,
                                           const i64 *leg_ptr, const double *weight, const double *leg,
                                           const double *pull_leg, int wide, int from_above, double *pull,
                                           double *pull_star) {
    const Seat s = seat_of(n_columns, wide, (int)(blockDim.x / n_columns) / wide);
    SHARED(double, part, 2 * LEG_THREADS);
    for (i64 x = blockIdx.x; x < n_touched; x += gridDim.x) {
        const int v = touched[x], a = up_ptr[v], w = up_ptr[v + 1] - a;
        double by_star = 0.0;
        for (int c0 = 0; c0 < w + from_above; c0 += wide) {
            const int c = c0 + s.column, to = c < w ? level[a + c] : depth[v];
            const bool on = s.on && c < w + from_above;
            double found = 0.0, none = 0.0;
            for (int l = first[x] + s.lane; on && l < last[x]; l += s.lanes) {
                const i64 root = leg_ptr[l + 1] - 1;
                const double here = leg[(root - depth[v]) * n_columns + s.k];
                if (here != 0.0) found += here * pull_leg[(root - to) * n_columns + s.k];
            }
            fold_sums(found, none, s, part);
            if (!on || s.lane > 0) continue;
            if (c < w) {
                const i64 at = (i64)(a + c) * n_columns + s.k;
                found *= weight[at];
                pull[at] += found;
            }
            if (c == w || !from_above) by_star += found;
        }
        __syncthreads();
        if (s.on && s.lane == 0) part[threadIdx.x] = by_star;
        __syncthreads();
        if (s.on && s.lane == 0 && s.column == 0)
            for (int c = 0; c < wide; ++c) pull_star[(i64)v * n_columns + s.k] += part[c * n_columns + s.k];
        __syncthreads();
    }
}
