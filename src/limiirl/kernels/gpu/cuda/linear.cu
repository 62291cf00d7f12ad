// The sweeps of `kernels.linear` on a device: the same recursions, the same scales, one launch a sweep.

#define RESCALE_EVERY 16
#define LN2 0.693147180559945309417

// What of its own states a block keeps in shared memory from one step to the next.
#define KEEP_NODE 1
#define KEEP_TALLY 2
#define KEEP_TABLE 4

__device__ static inline double gather(const Near &near, const Edges &edges, double scale, const double *from,
                                       const u32 *slots, i64 s, int k, i64 n_states, int n_columns) {
    double total = 0.0;
    if (!weighted(edges)) {
#pragma unroll
        for (int q = 0; q < WIDTH; ++q) total += from[(i64)slots[q] * COLUMNS + k];
    } else {
        i64 first = near.ptr[s];
#pragma unroll
        for (int q = 0; q < WIDTH; ++q)
            if (slots[q] < n_states)
                total += edge_weight(edges, scale, first + q, k, n_columns) * from[(i64)slots[q] * COLUMNS + k];
    }
    if (near.overflows)
        for (i64 e = (i64)near.ptr[s] + WIDTH; e < near.ptr[s + 1]; ++e)
            total += edge_weight(edges, scale, e, k, n_columns) * from[(i64)near.idx[e] * COLUMNS + k];
    return total;
}

__device__ static inline i64 shift_of(double top) {
    int shift = 0;
    if (top > 0.0 && is_finite(top)) frexp(top, &shift);
    return shift;
}

// This block's part of a (S, width) array: where it stands, or copied to shared memory, of which `*room` is the rest.
template <class T>
__device__ static inline T *own(T *whole, bool keep, const Place &p, int width, char **room) {
    if (!whole || !keep) return whole ? whole + p.first * width : whole;
    T *kept = (T *)*room;
    i64 size = (p.last - p.first) * width;
    for (i64 i = threadIdx.x; i < size; i += blockDim.x) kept[i] = whole[p.first * width + i];
    *room += (size * sizeof(T) + 7) / 8 * 8;
    return kept;
}

__device__ static inline double node_weight(const double *w, const double *node, double scale, i64 o, int plain) {
    return PLAIN || w ? w[o] : exp(scale * node[o]);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
linear_backward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, u32 *table, int width, int overflows,
                double *w, const double *x, double *node, const double *prob, const double *reward,
                const double *discount, const double *end, double *messages, i64 *exponents, i64 t_first, i64 n,
                u64 *tops, u32 *arrived, int keep, int plain) {
    if (PLAIN) x = prob = reward = end = 0, node = 0, overflows = 0;
    const Near near = {ptr, idx, table, width, overflows};
    const Edges edges = {x, prob, reward};
    const Place p = place_of(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    DYNAMIC_SHARED(room);
    const double *own_w = own(w, keep & KEEP_NODE, p, COLUMNS, &room);
    const double *own_node = PLAIN || w ? 0 : own(node, keep & KEEP_NODE, p, COLUMNS, &room);
    const u32 *own_table = own(table, keep & KEEP_TABLE, p, WIDTH, &room);
    __syncthreads();
    i64 exponent = exponents[n * COLUMNS + k];
    double top = 0.0;
    if ((t_first + n - 1) % RESCALE_EVERY == 0)
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) top = fmax(top, messages[n * row + s * COLUMNS + k]);
    for (i64 i = n - 1; i >= 0; --i) {
        const i64 t = t_first + i;
        const double *prev = messages + (i + 1) * row;
        double *out = messages + i * row;
        double factor = 1.0;
        if (t % RESCALE_EVERY == 0) {
            i64 shift = shift_of(grid_max(top, p, n_columns, tops + i * COLUMNS, arrived));
            factor = power_of_two(-shift);
            exponent += shift;
        } else if (i < n - 1) {
            grid_barrier(arrived);
        }
        const double stop = power_of_two(-exponent), scale = discount[t];
        if (blockIdx.x == 0 && p.lane == 0) {
            exponents[i * COLUMNS + k] = exponent;
            out[n_states * COLUMNS + k] = 0.0;
        }
        top = 0.0;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const double total =
                gather(near, edges, scale, prev, own_table + (s - p.first) * WIDTH, s, k, n_states, n_columns);
            double found = (end ? stop * end[s] : stop) + factor * total;
            if (t > 0) found *= node_weight(own_w, own_node, scale, (s - p.first) * COLUMNS + k, plain);
            out[s * COLUMNS + k] = found;
            top = fmax(top, found);
        }
    }
}

__device__ static inline void tally_edges(const Near &near, const Edges &edges, double scale, const double *cur,
                                          double *tally, double *part, double gained, double came, i64 s, int k,
                                          int n_columns) {
    for (i64 e = near.ptr[s]; e < near.ptr[s + 1]; ++e) {
        const double flow = edge_weight(edges, scale, e, k, n_columns) * cur[(i64)near.idx[e] * COLUMNS + k];
        if (tally) tally[e * COLUMNS + k] += gained * flow;
        if (part) part[e * COLUMNS + k] = came > 0.0 ? flow / came : 0.0;
    }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
linear_forward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, u32 *table, int width, int overflows,
               double *w, const double *x, double *node, const double *prob, const double *reward,
               const double *discount, const double *messages, const i64 *exponents, double *alpha,
               i64 *alpha_exponent, const double *log_norm, const double *gain, double *node_tally,
               double *edge_tally, double *visits, double *share, i64 n_edges, i64 t_first, i64 n, u64 *tops,
               u32 *arrived, int keep, int plain) {
    if (PLAIN) x = prob = reward = 0, node = edge_tally = visits = share = 0, overflows = 0;
    const Near near = {ptr, idx, table, width, overflows};
    const Edges edges = {x, prob, reward};
    const Place p = place_of(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    DYNAMIC_SHARED(room);
    const double *own_w = own(w, keep & KEEP_NODE, p, COLUMNS, &room);
    const double *own_node = PLAIN || w ? 0 : own(node, keep & KEEP_NODE, p, COLUMNS, &room);
    double *own_tally = own(node_tally, keep & KEEP_TALLY, p, COLUMNS, &room);
    const u32 *own_table = own(table, keep & KEEP_TABLE, p, WIDTH, &room);
    __syncthreads();
    i64 exponent = alpha_exponent[k];
    double top = 0.0;
    if ((t_first + 1) % RESCALE_EVERY == 0)
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes)
            top = fmax(top, alpha[(t_first % 2) * row + s * COLUMNS + k]);
    for (i64 i = 0; i < n; ++i) {
        const i64 t = t_first + i + 1;
        const double *cur = alpha + ((t - 1) % 2) * row, *u = messages + (i + 1) * row;
        double *nxt = alpha + (t % 2) * row;
        const double once = exp((exponent + exponents[(i + 1) * COLUMNS + k]) * LN2 - log_norm[k]);
        double factor = 1.0;
        if (t % RESCALE_EVERY == 0) {
            i64 shift = shift_of(grid_max(top, p, n_columns, tops + i * COLUMNS, arrived));
            factor = power_of_two(-shift);
            exponent += shift;
        } else if (i > 0) {
            grid_barrier(arrived);
        }
        const double node_gain = gain[t] * once, edge_gain = gain[t - 1] * once;
        const double scale = discount[t], edge_scale = discount[t - 1];
        double *seen = visits ? visits + i * n_states * COLUMNS : 0;
        double *part = share ? share + i * n_edges * COLUMNS : 0;
        top = 0.0;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = (s - p.first) * COLUMNS + k;
            const double onward = __ldcs(u + s * COLUMNS + k);  // read once: it need not push others out of the cache
            const double came =
                gather(near, edges, edge_scale, cur, own_table + (s - p.first) * WIDTH, s, k, n_states, n_columns);
            const double joint = came * onward;
            if (own_tally) own_tally[o] += node_gain * joint;
            if (seen) seen[s * COLUMNS + k] = once * joint;
            if (edge_tally || part)
                tally_edges(near, edges, edge_scale, cur, edge_tally, part, edge_gain * onward, came, s, k, n_columns);
            const double found = came * (factor * node_weight(own_w, own_node, scale, o, plain));
            nxt[s * COLUMNS + k] = found;
            top = fmax(top, found);
        }
    }
    if (own_tally && (keep & KEEP_TALLY))
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes)
            node_tally[s * COLUMNS + k] = own_tally[(s - p.first) * COLUMNS + k];
    grid_barrier(arrived);
    if (blockIdx.x == 0 && p.lane == 0) alpha_exponent[k] = exponent;
}

extern "C" __global__ void linear_fill(i64 size, int n_columns, const double *prob, const double *reward,
                                       double *weight) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x)
        weight[i] = (prob ? prob[i / COLUMNS] : 1.0) * (reward ? exp(reward[i]) : 1.0);
}
