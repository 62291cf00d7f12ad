// The sweeps of `kernels.logspace` on a device: messages are logarithms, shifted by whole numbers at every step.

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

__device__ static inline double largest_of(const double *message, const Place &p, int n_columns) {
    double top = minus_infinity();
    for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) top = fmax(top, message[s * COLUMNS + p.k]);
    return top;
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
log_backward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, const double *node, const double *prob,
             const double *reward, const double *discount, const double *end, double *messages, i64 *exponents,
             i64 t_first, i64 n, u64 *tops, u32 *arrived) {
    const Near near = {ptr, idx, 0, 0, 0};
    const Edges edges = {0, prob, reward};
    const Place p = place_of(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    i64 exponent = exponents[n * COLUMNS + k];
    double top = largest_of(messages + n * row, p, n_columns);
    for (i64 i = n - 1; i >= 0; --i) {
        const double *prev = messages + (i + 1) * row;
        double *out = messages + i * row;
        const i64 shift = log_shift_of(grid_max(top, p, n_columns, tops + i * COLUMNS, arrived));
        exponent += shift;
        if (blockIdx.x == 0 && p.lane == 0) exponents[i * COLUMNS + k] = exponent;
        const double scale = discount[t_first + i], own = t_first + i > 0 ? scale : 0.0;
        top = minus_infinity();
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            double floor = (!end || end[s] > 0.0 ? 0.0 : minus_infinity()) - (double)exponent;
            double found = log_sum(near, edges, scale, prev, s, k, n_columns, floor, (double)shift);
            found += own * node[s * COLUMNS + k];
            out[s * COLUMNS + k] = found;
            top = fmax(top, found);
        }
    }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
log_forward(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, const double *node, const double *prob,
            const double *reward, const double *discount, const double *messages, const i64 *exponents, double *alpha,
            i64 *alpha_exponent, const double *log_norm, const double *gain, double *node_tally, double *edge_tally,
            double *visits, double *share, i64 n_edges, i64 t_first, i64 n, u64 *tops, u32 *arrived) {
    const Near near = {ptr, idx, 0, 0, 0};
    const Edges edges = {0, prob, reward};
    const Place p = place_of(n_states, n_columns);
    const int k = p.k;
    const i64 row = (n_states + 1) * COLUMNS;
    i64 exponent = alpha_exponent[k];
    double top = largest_of(alpha + (t_first % 2) * row, p, n_columns);
    for (i64 i = 0; i < n; ++i) {
        const i64 t = t_first + i + 1;
        const double *cur = alpha + ((t - 1) % 2) * row, *u = messages + (i + 1) * row;
        double *nxt = alpha + (t % 2) * row;
        const double offset = (double)(exponent + exponents[(i + 1) * COLUMNS + k]) - log_norm[k];
        const i64 shift = log_shift_of(grid_max(top, p, n_columns, tops + i * COLUMNS, arrived));
        exponent += shift;
        double *seen = visits ? visits + i * n_states * COLUMNS : 0;
        double *part = share ? share + i * n_edges * COLUMNS : 0;
        top = minus_infinity();
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + k;
            const double came = log_sum(near, edges, discount[t - 1], cur, s, k, n_columns, minus_infinity(), 0.0);
            const double onward = u[o] + offset;
            if (edge_tally || part)
                for (i64 e = near.ptr[s]; e < near.ptr[s + 1]; ++e) {
                    const double flow =
                        edge_log_weight(edges, discount[t - 1], e, k, n_columns) + cur[(i64)near.idx[e] * COLUMNS + k];
                    if (edge_tally) edge_tally[e * COLUMNS + k] += gain[t - 1] * exp(flow + onward);
                    if (part) part[e * COLUMNS + k] = came > minus_infinity() ? exp(flow - came) : 0.0;
                }
            const double probability = exp(came + onward);
            if (node_tally) node_tally[o] += gain[t] * probability;
            if (seen) seen[o] = probability;
            const double found = came - (double)shift + discount[t] * node[o];
            nxt[o] = found;
            top = fmax(top, found);
        }
    }
    grid_barrier(arrived);
    if (blockIdx.x == 0 && p.lane == 0) alpha_exponent[k] = exponent;
}
