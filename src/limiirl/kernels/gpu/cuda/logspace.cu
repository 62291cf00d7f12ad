// Passes of `forward_backward.logspace` on a device: messages are logarithms, shifted by an integer at every step.

__device__ static inline double edge_log_weight(const Edges &edges, double scale, i64 e, int k, int n_columns) {
    double weight = edges.prob ? edges.prob[e] : 0.0;
    return edges.reward ? weight + scale * edges.reward[e * COLUMNS + k] : weight;
}

// log(exp(floor) + sum over the neighbours of s of x(edge) exp(from(neighbour) - drop)).
__device__ static inline double log_sum(const Near &near, const Edges &edges, double scale, const double *from, i64 s,
                                        int k, int n_columns, double floor, double drop) {
    double top = floor;
    const i64 first = near.ptr[s], last = near.ptr[s + 1];
    for (i64 e = first; e < last; ++e)
        top = fmax(top, edge_log_weight(edges, scale, e, k, n_columns) + from[(i64)near.idx[e] * COLUMNS + k] - drop);
    if (!is_finite(top)) return top;
    double total = exp(floor - top);
    for (i64 e = first; e < last; ++e)
        total += exp(edge_log_weight(edges, scale, e, k, n_columns) + from[(i64)near.idx[e] * COLUMNS + k] - drop -
                     top);
    return top + log(total);
}

__device__ static inline i64 log_shift_of(double top) { return top > -1e15 && top < 1e15 ? (i64)rint(top) : 0; }

__device__ static inline double largest_of(const double *message, const StateRange &p, int n_columns) {
    double top = minus_infinity();
    for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) top = fmax(top, message[s * COLUMNS + p.k]);
    return top;
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
log_backward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, const double *node, const double *prob,
             const double *reward, const double *discount, const double *end, double *messages, i64 *exponents,
             i64 t_first, i64 n, u64 *maxima, u32 *arrived) {
    const Near near = {ptr, idx, 0, 0, 0};
    const Edges edges = {0, prob, reward};
    const StateRange p = state_range(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    i64 exponent = exponents[n * COLUMNS + k];
    double top = largest_of(messages + n * row, p, n_columns);
    for (i64 i = n - 1; i >= 0; --i) {
        const double *prev = messages + (i + 1) * row;
        double *out = messages + i * row;
        const i64 shift = log_shift_of(grid_max(top, p, n_columns, maxima + i * COLUMNS, arrived));
        exponent += shift;
        if (blockIdx.x == 0 && p.lane == 0) exponents[i * COLUMNS + k] = exponent;
        const double scale = discount[t_first + i], own = t_first + i > 0 ? scale : 0.0;
        top = minus_infinity();
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            double floor = (!end || end[s] > 0.0 ? 0.0 : minus_infinity()) - (double)exponent;
            double message = log_sum(near, edges, scale, prev, s, k, n_columns, floor, (double)shift);
            message += own * node[s * COLUMNS + k];
            out[s * COLUMNS + k] = message;
            top = fmax(top, message);
        }
    }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
log_forward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, const double *node, const double *prob,
            const double *reward, const double *discount, const double *messages, const i64 *exponents, double *alpha,
            i64 *alpha_exponent, const double *log_norm, const double *step_weight, double *node_counts,
            double *edge_counts, double *marginals, double *edge_prob, i64 n_edges, i64 t_first, i64 n, u64 *maxima,
            u32 *arrived) {
    const Near near = {ptr, idx, 0, 0, 0};
    const Edges edges = {0, prob, reward};
    const StateRange p = state_range(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    i64 exponent = alpha_exponent[k];
    double top = largest_of(alpha + (t_first % 2) * row, p, n_columns);
    for (i64 i = 0; i < n; ++i) {
        const i64 t = t_first + i + 1;
        const double *cur = alpha + ((t - 1) % 2) * row, *u = messages + (i + 1) * row;
        double *nxt = alpha + (t % 2) * row;
        const double offset = (double)(exponent + exponents[(i + 1) * COLUMNS + k]) - log_norm[k];
        const i64 shift = log_shift_of(grid_max(top, p, n_columns, maxima + i * COLUMNS, arrived));
        exponent += shift;
        double *step_marginals = marginals ? marginals + i * n_states * COLUMNS : 0;
        double *step_edge_prob = edge_prob ? edge_prob + i * n_edges * COLUMNS : 0;
        top = minus_infinity();
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + k;
            const double incoming = log_sum(near, edges, discount[t - 1], cur, s, k, n_columns, minus_infinity(), 0.0);
            const double continuation = u[o] + offset;
            if (edge_counts || step_edge_prob)
                for (i64 e = near.ptr[s]; e < near.ptr[s + 1]; ++e) {
                    const double flow =
                        edge_log_weight(edges, discount[t - 1], e, k, n_columns) + cur[(i64)near.idx[e] * COLUMNS + k];
                    if (edge_counts) edge_counts[e * COLUMNS + k] += step_weight[t - 1] * exp(flow + continuation);
                    if (step_edge_prob)
                        step_edge_prob[e * COLUMNS + k] = incoming > minus_infinity() ? exp(flow - incoming) : 0.0;
                }
            const double marginal = exp(incoming + continuation);
            if (node_counts) node_counts[o] += step_weight[t] * marginal;
            if (step_marginals) step_marginals[o] = marginal;
            const double message = incoming - (double)shift + discount[t] * node[o];
            nxt[o] = message;
            top = fmax(top, message);
        }
    }
    grid_barrier(arrived);
    if (blockIdx.x == 0 && p.lane == 0) alpha_exponent[k] = exponent;
}
