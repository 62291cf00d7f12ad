// Sums over the rows of sparse matrices, in an order that depends only on the lengths of the rows.

// result[i] (n, K) is the sum of weight[j] x[at[j]] over j = first[i], first[i] + step[i], ... below last[i]. If `last`
// and `step` are null, last[i] = first[i + 1] and step[i] = 1; if `at` and `weight` are null, the terms are x[j].
extern "C" __global__ void sparse_sums(i64 n_rows, i64 n_columns, const i64 *first, const i64 *last, const i64 *step,
                                       const int *at, const double *weight, const double *x, double *result) {
    const i64 size = n_rows * n_columns;
    for (i64 o = (i64)blockIdx.x * blockDim.x + threadIdx.x; o < size; o += (i64)gridDim.x * blockDim.x) {
        const i64 i = o / n_columns, k = o - i * n_columns;
        const i64 end = last ? last[i] : first[i + 1], stride = step ? step[i] : 1;
        double total = 0.0;
        for (i64 j = first[i]; j < end; j += stride)
            total += (weight ? weight[j] : 1.0) * x[(at ? (i64)at[j] : j) * n_columns + k];
        result[o] = total;
    }
}
