// Triangular solves along ancestor paths on a device (`kernels.elimination.numeric`).
//
// A block processes one ancestor path at a time. Upward and downward transitions are multiplied by the Kleene star of
// their source, so that the sum over common ancestors is an inner product. The adjoint of a transition is gathered from
// the paths through it, which are consecutive, so that no two threads add to the same entry.

#define PATH_THREADS 256

// Initial values of elimination: log-weights of edges, parallel edges summed.
extern "C" __global__ void elimination_load(i64 n_slots, int n_columns, const int *slot, const int *slot_ptr,
                                     const int *edge, const double *log_w, double *value) {
    const i64 size = n_slots * n_columns;
    for (i64 x = (i64)blockIdx.x * blockDim.x + threadIdx.x; x < size; x += (i64)gridDim.x * blockDim.x) {
        const i64 i = x / n_columns;
        const int k = (int)(x - i * n_columns);
        LogSum sum = {minus_infinity(), 0.0};
        for (int e = slot_ptr[i]; e < slot_ptr[i + 1]; ++e) log_add(sum, log_w[(i64)edge[e] * n_columns + k]);
        value[(i64)slot[i] * n_columns + k] = log_of(sum);
    }
}

// Set path_sum (size, K) to the sums over upward paths from the first state of each path to the states on the path. The
// sum at the first state is 1, or its Kleene star if `stars` (S, K) is not null.
extern "C" __global__ void elimination_solve(i64 n_paths, int n_columns, const int *up_ptr, const int *level, const int *path,
                                      const i64 *node, const i64 *path_ptr, const double *weight, const double *stars,
                                      double *path_sum) {
    const ThreadTile s = thread_tile(n_columns, 1, (int)(blockDim.x / n_columns));
    for (i64 l = blockIdx.x; l < n_paths; l += gridDim.x) {
        const i64 base = path_ptr[l], size = path_ptr[l + 1] - base;
        double *mine = path_sum + base * n_columns + s.k;
        for (i64 o = s.lane; s.on && o < size; o += s.lanes)
            mine[o * n_columns] = o > 0 ? 0.0 : (stars ? stars[node[l] * n_columns + s.k] : 1.0);
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

// Set total[i] (m, K) to the sum, over the common ancestors of pair i, of the products of its two path sums. The common
// ancestors have the depths 0, ..., lca_depth[i]; one[i] and other[i] are the positions of the root in the two paths.
extern "C" __global__ void elimination_combine(i64 n_pairs, int n_columns, const i64 *one, const i64 *other, const int *lca_depth,
                                     const double *up_sum, const double *down_sum, double *total) {
    const ThreadTile s = thread_tile(n_columns, 1, (int)(blockDim.x / n_columns));
    SHARED(double, part, 2 * PATH_THREADS);
    for (i64 i = blockIdx.x; i < n_pairs; i += gridDim.x) {
        double sum = 0.0, unused = 0.0;
        for (int d = s.lane; s.on && d <= lca_depth[i]; d += s.lanes)
            sum += up_sum[(one[i] - d) * n_columns + s.k] * down_sum[(other[i] - d) * n_columns + s.k];
        reduce_sums(sum, unused, s, part);
        if (s.on && s.lane == 0) total[i * n_columns + s.k] = sum;
    }
}

// Set the adjoints of path sums: first add the contributions of the pairs that use each path (pair_ptr, pair), given the
// adjoints by_sum of `elimination_combine` and the sums of the other path; then apply the transposed triangular solve.
extern "C" __global__ void elimination_path_adjoints(i64 n_paths, int n_columns, const int *up_ptr, const int *level,
                                          const int *path, const i64 *path_ptr, const double *weight,
                                          const i64 *pair_ptr, const i64 *pair, const i64 *other, const int *lca_depth,
                                          const double *by_sum, const double *other_sum, double *path_adjoint) {
    const ThreadTile s = thread_tile(n_columns, 1, (int)(blockDim.x / n_columns));
    SHARED(double, part, 2 * PATH_THREADS);
    for (i64 l = blockIdx.x; l < n_paths; l += gridDim.x) {
        const i64 base = path_ptr[l], size = path_ptr[l + 1] - base;
        const int top = (int)size - 1;
        double *mine = path_adjoint + base * n_columns + s.k;
        for (int o = s.lane; s.on && o < size; o += s.lanes) {
            double sum = 0.0;
            for (i64 j = pair_ptr[l]; j < pair_ptr[l + 1]; ++j) {
                const i64 i = pair[j];
                if (top - o > lca_depth[i]) continue;
                const double by = by_sum[i * n_columns + s.k];
                if (by != 0.0) sum += by * other_sum[(other[i] - (top - o)) * n_columns + s.k];
            }
            mine[(i64)o * n_columns] = sum;
        }
        __syncthreads();
        for (int o = top - 1; o >= 0; --o) {
            const int v = path[base + o];
            double sum = 0.0, unused = 0.0;
            for (int p = up_ptr[v] + s.lane; s.on && p < up_ptr[v + 1]; p += s.lanes)
                sum += mine[(i64)(top - level[p]) * n_columns] * weight[(i64)p * n_columns + s.k];
            reduce_sums(sum, unused, s, part);
            if (s.on && s.lane == 0) mine[(i64)o * n_columns] += sum;
            __syncthreads();
        }
    }
}

// Add the adjoints of log transitions (n, K) and log stars (S, K) over the paths first, ..., last - 1 of each state, one
// block per state. Downward transitions include the star of their source, the ancestor. With `from_above`, the adjoint
// of the log star of a state is therefore that of its complete path sum.
extern "C" __global__ void elimination_transition_adjoints(i64 n_on_paths, int n_columns, const int *up_ptr, const int *level,
                                           const int *depth, const int *on_paths, const int *first, const int *last,
                                           const i64 *path_ptr, const double *weight, const double *path_sum,
                                           const double *path_adjoint, int wide, int from_above, double *adjoint,
                                           double *star_adjoint) {
    const ThreadTile s = thread_tile(n_columns, wide, (int)(blockDim.x / n_columns) / wide);
    SHARED(double, part, 2 * PATH_THREADS);
    for (i64 x = blockIdx.x; x < n_on_paths; x += gridDim.x) {
        const int v = on_paths[x], a = up_ptr[v], w = up_ptr[v + 1] - a;
        double by_star = 0.0;
        for (int c0 = 0; c0 < w + from_above; c0 += wide) {
            const int c = c0 + s.column, to = c < w ? level[a + c] : depth[v];
            const bool on = s.on && c < w + from_above;
            double sum = 0.0, unused = 0.0;
            for (int l = first[x] + s.lane; on && l < last[x]; l += s.lanes) {
                const i64 root = path_ptr[l + 1] - 1;
                const double here = path_sum[(root - depth[v]) * n_columns + s.k];
                if (here != 0.0) sum += here * path_adjoint[(root - to) * n_columns + s.k];
            }
            reduce_sums(sum, unused, s, part);
            if (!on || s.lane > 0) continue;
            if (c < w) {
                const i64 at = (i64)(a + c) * n_columns + s.k;
                sum *= weight[at];
                adjoint[at] += sum;
            }
            if (c == w || !from_above) by_star += sum;
        }
        __syncthreads();
        if (s.on && s.lane == 0) part[threadIdx.x] = by_star;
        __syncthreads();
        if (s.on && s.lane == 0 && s.column == 0)
            for (int c = 0; c < wide; ++c) star_adjoint[(i64)v * n_columns + s.k] += part[c * n_columns + s.k];
        __syncthreads();
    }
}
