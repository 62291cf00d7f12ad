// Passes of `forward_backward.linear` on a device: the same recursions and scales, with one launch per pass.

#define RESCALE_EVERY 16
// Number of states that a thread processes together: the loads of a batch are issued before its first store.
#define BATCH 4
#define LN2 0.693147180559945309417

// Flags of the arrays that are cached in shared memory, where each block stores the rows of its states.
#define CACHE_WEIGHTS 1
#define CACHE_COUNTS 2
#define CACHE_TABLE 4

__device__ static inline double gather(const Near &near, const Edges &edges, double scale, const double *from,
                                       const u32 *slots, i64 s, int k, i64 n_states, int n_columns) {
    double total = 0.0;
    if (!has_weights(edges)) {
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

// Return the rows of an (S, width) array that belong to this block; if `cache`, copy them to shared memory at `*memory`.
template <class T>
__device__ static inline T *own_rows(T *whole, bool cache, const StateRange &p, int width, char **memory) {
    if (!whole || !cache) return whole ? whole + p.first * width : whole;
    T *copy = (T *)*memory;
    i64 size = (p.last - p.first) * width;
    for (i64 i = threadIdx.x; i < size; i += blockDim.x) copy[i] = whole[p.first * width + i];
    *memory += (size * sizeof(T) + 7) / 8 * 8;
    return copy;
}

__device__ static inline double node_weight(const double *w, const double *node, double scale, i64 o, int plain) {
    return PLAIN || w ? w[o] : exp(scale * node[o]);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
linear_backward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, u32 *table, int width, int overflows,
                double *w, const double *x, double *node, const double *prob, const double *reward,
                const double *discount, const double *end, double *messages, i64 *exponents, i64 t_first, i64 n,
                u64 *maxima, u32 *arrived, int cached, int plain) {
    if (PLAIN) x = prob = reward = end = 0, node = 0, overflows = 0;
    const Near near = {ptr, idx, table, width, overflows};
    const Edges edges = {x, prob, reward};
    const StateRange p = state_range(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    DYNAMIC_SHARED(memory);
    const double *own_w = own_rows(w, cached & CACHE_WEIGHTS, p, COLUMNS, &memory);
    const double *own_node = PLAIN || w ? 0 : own_rows(node, cached & CACHE_WEIGHTS, p, COLUMNS, &memory);
    const u32 *own_table = own_rows(table, cached & CACHE_TABLE, p, WIDTH, &memory);
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
            i64 shift = shift_of(grid_max(top, p, n_columns, maxima + i * COLUMNS, arrived));
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
        for (i64 start = p.first + p.lane; start < p.last; start += BATCH * p.lanes) {
            double total[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const i64 s = start + b * p.lanes;
                if (s < p.last)
                    total[b] =
                        gather(near, edges, scale, prev, own_table + (s - p.first) * WIDTH, s, k, n_states, n_columns);
            }
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const i64 s = start + b * p.lanes;
                if (s >= p.last) break;
                double message = (end ? stop * end[s] : stop) + factor * total[b];
                if (t > 0) message *= node_weight(own_w, own_node, scale, (s - p.first) * COLUMNS + k, plain);
                out[s * COLUMNS + k] = message;
                top = fmax(top, message);
            }
        }
    }
}

__device__ static inline void count_edges(const Near &near, const Edges &edges, double scale, const double *cur,
                                          double *counts, double *prob, double weight, double incoming, i64 s, int k,
                                          int n_columns) {
    for (i64 e = near.ptr[s]; e < near.ptr[s + 1]; ++e) {
        const double flow = edge_weight(edges, scale, e, k, n_columns) * cur[(i64)near.idx[e] * COLUMNS + k];
        if (counts) counts[e * COLUMNS + k] += weight * flow;
        if (prob) prob[e * COLUMNS + k] = incoming > 0.0 ? flow / incoming : 0.0;
    }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
linear_forward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, u32 *table, int width, int overflows,
               double *w, const double *x, double *node, const double *prob, const double *reward,
               const double *discount, const double *messages, const i64 *exponents, double *alpha,
               i64 *alpha_exponent, const double *log_norm, const double *step_weight, double *node_counts,
               double *edge_counts, double *marginals, double *edge_prob, i64 n_edges, i64 t_first, i64 n, u64 *maxima,
               u32 *arrived, int cached, int plain) {
    if (PLAIN) x = prob = reward = 0, node = edge_counts = marginals = edge_prob = 0, overflows = 0;
    const Near near = {ptr, idx, table, width, overflows};
    const Edges edges = {x, prob, reward};
    const StateRange p = state_range(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    DYNAMIC_SHARED(memory);
    const double *own_w = own_rows(w, cached & CACHE_WEIGHTS, p, COLUMNS, &memory);
    const double *own_node = PLAIN || w ? 0 : own_rows(node, cached & CACHE_WEIGHTS, p, COLUMNS, &memory);
    double *own_counts = own_rows(node_counts, cached & CACHE_COUNTS, p, COLUMNS, &memory);
    const u32 *own_table = own_rows(table, cached & CACHE_TABLE, p, WIDTH, &memory);
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
        const double norm = exp((exponent + exponents[(i + 1) * COLUMNS + k]) * LN2 - log_norm[k]);
        double factor = 1.0;
        if (t % RESCALE_EVERY == 0) {
            i64 shift = shift_of(grid_max(top, p, n_columns, maxima + i * COLUMNS, arrived));
            factor = power_of_two(-shift);
            exponent += shift;
        } else if (i > 0) {
            grid_barrier(arrived);
        }
        const double node_factor = step_weight[t] * norm, edge_factor = step_weight[t - 1] * norm;
        const double scale = discount[t], edge_scale = discount[t - 1];
        double *step_marginals = marginals ? marginals + i * n_states * COLUMNS : 0;
        double *step_edge_prob = edge_prob ? edge_prob + i * n_edges * COLUMNS : 0;
        top = 0.0;
        for (i64 start = p.first + p.lane; start < p.last; start += BATCH * p.lanes) {
            double incoming[BATCH], continuation[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const i64 s = start + b * p.lanes;
                if (s < p.last) {
                    continuation[b] = __ldcs(u + s * COLUMNS + k);  // streaming load: it is read only once
                    incoming[b] = gather(near, edges, edge_scale, cur, own_table + (s - p.first) * WIDTH, s, k,
                                         n_states, n_columns);
                }
            }
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                const i64 s = start + b * p.lanes, o = (s - p.first) * COLUMNS + k;
                if (s >= p.last) break;
                const double joint = incoming[b] * continuation[b];
                if (own_counts) own_counts[o] += node_factor * joint;
                if (step_marginals) step_marginals[s * COLUMNS + k] = norm * joint;
                if (edge_counts || step_edge_prob)
                    count_edges(near, edges, edge_scale, cur, edge_counts, step_edge_prob, edge_factor * continuation[b],
                                incoming[b], s, k, n_columns);
                const double message = incoming[b] * (factor * node_weight(own_w, own_node, scale, o, plain));
                nxt[s * COLUMNS + k] = message;
                top = fmax(top, message);
            }
        }
    }
    if (own_counts && (cached & CACHE_COUNTS))
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes)
            node_counts[s * COLUMNS + k] = own_counts[(s - p.first) * COLUMNS + k];
    grid_barrier(arrived);
    if (blockIdx.x == 0 && p.lane == 0) alpha_exponent[k] = exponent;
}

extern "C" __global__ void linear_fill(i64 size, int n_columns, const double *prob, const double *reward,
                                       double *weight) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x)
        weight[i] = (prob ? prob[i / COLUMNS] : 1.0) * (reward ? exp(reward[i]) : 1.0);
}
