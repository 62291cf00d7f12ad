// One thread an entry, without waiting for others: mean features a step further (`kernels.means`), and the growth of a
// step (`kernels.growth`).

extern "C" __global__ void means_carry(i64 n_states, i64 n_features, const u32 *ptr, const u32 *idx,
                                       const double *share, const double *visits, const double *phi,
                                       const double *edge_phi, const double *mean, double *out, double *node_total,
                                       double *edge_total, double node_gain, double edge_gain) {
    const i64 size = n_states * n_features;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / n_features, j = i - s * n_features;
        double found = node_gain * phi[i];
        for (i64 e = ptr[s]; e < ptr[s + 1]; ++e) {
            if (!(share[e] > 0.0)) continue;
            double came = mean[(i64)idx[e] * n_features + j];
            if (edge_phi) came += edge_gain * edge_phi[e * n_features + j];
            const double carried = share[e] * came;
            found += carried;
            if (edge_total) edge_total[e * n_features + j] += edge_gain * visits[s] * carried;
        }
        out[i] = found;
        if (node_total) node_total[i] += node_gain * visits[s] * found;
    }
}

extern "C" __global__ void step_growth(i64 n_states, int n_columns, const u32 *ptr, const u32 *idx, const double *node,
                                       const double *prob, const double *reward, double onward, double last,
                                       double *growth) {
    const i64 size = n_states * COLUMNS;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        const int k = (int)(i - s * COLUMNS);
        double total = 0.0;
        for (i64 e = ptr[s]; e < ptr[s + 1]; ++e) {
            double c = (reward ? reward[e * COLUMNS + k] : 0.0) + onward * node[(i64)idx[e] * COLUMNS + k];
            total += (prob ? prob[e] : 1.0) * exp(c > 0.0 ? c : last * c);
        }
        growth[i] = total;
    }
}

// Sums or maxima of the columns of (n, K), one row for each block; a second launch on these rows ends it.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
column_reduce(i64 n_rows, int n_columns, const double *values, int largest, double *partial) {
    const Place p = place_of(n_rows, n_columns);
    double found = largest ? minus_infinity() : 0.0;
    for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
        const double value = values[s * COLUMNS + p.k];
        found = largest ? fmax(found, value) : found + value;
    }
    found = block_fold(found, p, n_columns, largest);
    if (p.lane == 0) partial[blockIdx.x * COLUMNS + p.k] = found;
}
