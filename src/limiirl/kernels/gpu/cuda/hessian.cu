// Propagation of mean features and the bound on the growth per step (`forward_backward.hessian`), with one thread per
// entry, and reductions over columns.

extern "C" __global__ void propagate_means(i64 n_states, i64 n_features, const u32 *ptr, const u32 *idx,
                                           const double *edge_prob, const double *marginals, const double *phi,
                                           const double *edge_phi, const double *mean, double *out,
                                           double *node_total, double *edge_total, double node_discount,
                                           double edge_discount) {
    const i64 size = n_states * n_features;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / n_features, j = i - s * n_features;
        double total = node_discount * phi[i];
        for (i64 e = ptr[s]; e < ptr[s + 1]; ++e) {
            if (!(edge_prob[e] > 0.0)) continue;
            double feature = mean[(i64)idx[e] * n_features + j];
            if (edge_phi) feature += edge_discount * edge_phi[e * n_features + j];
            const double contribution = edge_prob[e] * feature;
            total += contribution;
            if (edge_total) edge_total[e * n_features + j] += edge_discount * marginals[s] * contribution;
        }
        out[i] = total;
        if (node_total) node_total[i] += node_discount * marginals[s] * total;
    }
}

extern "C" __global__ void step_growth(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, const double *node,
                                       const double *prob, const double *reward, double node_discount, double last,
                                       double *growth) {
    const i64 size = n_states * COLUMNS;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        const int k = (int)(i - s * COLUMNS);
        double total = 0.0;
        for (i64 e = ptr[s]; e < ptr[s + 1]; ++e) {
            double c = (reward ? reward[e * COLUMNS + k] : 0.0) + node_discount * node[(i64)idx[e] * COLUMNS + k];
            total += (prob ? prob[e] : 1.0) * exp(c > 0.0 ? c : last * c);
        }
        growth[i] = total;
    }
}

// Column sums or maxima of values (n, K), one row per block; a second launch reduces these rows.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
column_reduce(i64 n_rows, int n_columns, const double *values, int largest, double *partial) {
    const StateRange p = state_range(n_rows, n_columns);
    double result = largest ? minus_infinity() : 0.0;
    for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
        const double value = values[s * COLUMNS + p.k];
        result = largest ? fmax(result, value) : result + value;
    }
    result = block_reduce(result, p, n_columns, largest);
    if (p.lane == 0) partial[blockIdx.x * COLUMNS + p.k] = result;
}
