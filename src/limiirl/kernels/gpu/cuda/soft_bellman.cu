// Bellman backups on a device (`kernels.soft_bellman`): step by step, and until convergence.

#define CHECK_EVERY 16

// Backup operator of a state: log sum_a exp(beta Q) / beta; the same with a further action of value 0 (stop); max_a Q;
// sum_a pi Q. `gpu.soft_bellman.RULES` has the same order.
enum Rule { SOFT, SOFT_OR_STOP, BEST, AVERAGE };

struct Bellman {
    const i64 *pair_ptr, *edge_ptr;
    const int *dst;
    const double *prob, *reward;
    double gamma, beta;
    int rule;
};

__device__ static inline double pair_value(const Bellman &b, const double *V, i64 p, int k, int n_columns) {
    double Q = b.reward[p * COLUMNS + k];
    for (i64 e = b.edge_ptr[p]; e < b.edge_ptr[p + 1]; ++e)
        Q += b.gamma * b.prob[e] * V[(i64)b.dst[e] * COLUMNS + k];
    return Q;
}

// Normaliser of the policy pi(a | s) proportional to exp(beta Q), which is the same for all rules; V is the value
// function of the next step.
struct Policy {
    double top, total, below;  // max Q; sum of exp(beta (Q - top)); sum of exp(beta (Q - top)) (Q - top)
};

__device__ static inline double best_value(const Bellman &b, const double *V, i64 s, int k, int n_columns) {
    double top = b.rule == SOFT_OR_STOP ? 0.0 : minus_infinity();
    for (i64 p = b.pair_ptr[s]; p < b.pair_ptr[s + 1]; ++p) top = fmax(top, pair_value(b, V, p, k, n_columns));
    return top;
}

__device__ static inline Policy policy_of(const Bellman &b, const double *V, i64 s, int k, int n_columns) {
    const double top = best_value(b, V, s, k, n_columns);
    Policy pi = {top, b.rule == SOFT_OR_STOP ? exp(-b.beta * top) : 0.0, 0.0};
    for (i64 p = b.pair_ptr[s]; p < b.pair_ptr[s + 1]; ++p) {
        const double difference = pair_value(b, V, p, k, n_columns) - top, weight = exp(b.beta * difference);
        pi.total += weight;
        pi.below += weight * difference;
    }
    return pi;
}

__device__ static inline double soft_norm(const Bellman &b, const Policy &pi) {
    return pi.top + log(pi.total) / b.beta;
}

// exp(beta (Q - norm)) is not used: for large values, the rounding error of the norm would change the sum of the
// probabilities.
__device__ static inline double probability(const Bellman &b, const Policy &pi, double Q) {
    return exp(b.beta * (Q - pi.top)) / pi.total;
}

__device__ static inline double average_of(const Policy &pi) { return pi.top + pi.below / pi.total; }

// Value of a state without its own reward; 0 if it has no actions.
__device__ static inline double backup(const Bellman &b, const double *V, i64 s, int k, int n_columns) {
    if (b.pair_ptr[s] == b.pair_ptr[s + 1]) return 0.0;
    if (b.rule == BEST) return best_value(b, V, s, k, n_columns);
    const Policy pi = policy_of(b, V, s, k, n_columns);
    return b.rule == AVERAGE ? average_of(pi) : soft_norm(b, pi);
}

// Compute V (n, S K) backwards from the last row.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
bellman_plan(i64 n_states, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr, const int *dst, const double *prob,
             const double *reward, double gamma, double beta, int rule, const double *r_state, double *V, i64 n,
             u32 *arrived) {
    const Bellman b = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    const StateRange p = state_range(n_states, n_columns);
    const i64 row = n_states * COLUMNS;
    for (i64 t = n - 2; t >= 0; --t) {
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            V[t * row + o] = r_state[o] + backup(b, V + (t + 1) * row, s, p.k, n_columns);
        }
        grid_barrier(arrived);
    }
}

// Log-probability of each observed pair; row step + 1 of V contains the values of the next step.
extern "C" __global__ void bellman_log_policy(i64 size, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr,
                                              const int *dst, const double *prob, const double *reward, double gamma,
                                              double beta, int rule, const double *V, i64 n_states, const i64 *step,
                                              const i64 *state, const i64 *pair, double *log_pi) {
    const Bellman b = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 m = i / COLUMNS;
        const int k = (int)(i - m * COLUMNS);
        const double *next = V + (step[m] + 1) * n_states * COLUMNS;
        const double Q = pair[m] < 0 ? 0.0 : pair_value(b, next, pair[m], k, n_columns);
        log_pi[i] = beta * (Q - soft_norm(b, policy_of(b, next, state[m], k, n_columns)));
    }
}

// gamma sum over incoming pairs of P(s | pair) adjoint(pair).
__device__ static inline double value_adjoint(const i64 *in_ptr, const i64 *in_pair, const double *in_prob,
                                              double gamma, const double *adjoint, i64 s, int k, int n_columns) {
    double total = 0.0;
    for (i64 e = in_ptr[s]; e < in_ptr[s + 1]; ++e) total += gamma * in_prob[e] * adjoint[in_pair[e] * COLUMNS + k];
    return total;
}

// Derivatives of weighted log-probabilities with respect to the rewards of states and pairs, from the first step on.
// V (n, S K) are the values after each of n steps; the last values are r_state, or 0 for AVERAGE. `at_state` and
// `at_pair` list each observed state and pair of a step once, with their total weights.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
bellman_plan_adjoint(i64 n_states, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr, const int *dst,
                     const double *prob, const double *reward, double gamma, double beta, int rule, const i64 *in_ptr,
                     const i64 *in_pair, const double *in_prob, const double *V, i64 n, const i64 *state_ptr,
                     const i64 *at_state, const double *state_weight, const i64 *observed_ptr, const i64 *at_pair,
                     const double *pair_weight, double *mu, double *state_total, double *pair_total, double *adjoint,
                     double *node, double *pair, u32 *arrived) {
    const Bellman b = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    const StateRange p = state_range(n_states, n_columns);
    const i64 row = n_states * COLUMNS, all = (i64)gridDim.x * p.lanes, first = (i64)blockIdx.x * p.lanes + p.lane;
    for (i64 t = 0; t < n; ++t) {
        for (i64 i = state_ptr[t] + first; i < state_ptr[t + 1]; i += all)
            state_total[at_state[i] * COLUMNS + p.k] = beta * state_weight[i * COLUMNS + p.k];
        for (i64 i = observed_ptr[t] + first; i < observed_ptr[t + 1]; i += all)
            pair_total[at_pair[i] * COLUMNS + p.k] = beta * pair_weight[i * COLUMNS + p.k];
        grid_barrier(arrived);
        const double *next = V + t * row;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            node[o] += mu[o];
            const Policy pi = policy_of(b, next, s, p.k, n_columns);
            const double mean = rule == AVERAGE ? average_of(pi) : 0.0, total = state_total[o];
            state_total[o] = 0.0;
            for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) {
                const i64 at = q * COLUMNS + p.k;
                const double Q = pair_value(b, next, q, p.k, n_columns);
                // d(sum_a pi Q) / dQ = pi (1 + beta (Q - mean)), because pi depends on Q.
                const double factor = rule == AVERAGE ? 1.0 + beta * (Q - mean) : 1.0;
                adjoint[at] = (mu[o] * factor - total) * probability(b, pi, Q) + pair_total[at];
                pair_total[at] = 0.0;
                pair[at] += adjoint[at];
            }
        }
        grid_barrier(arrived);
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes)
            mu[s * COLUMNS + p.k] = value_adjoint(in_ptr, in_pair, in_prob, gamma, adjoint, s, p.k, n_columns);
    }
    if (rule == AVERAGE) return;
    for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) node[s * COLUMNS + p.k] += mu[s * COLUMNS + p.k];
}

// 1 if the change of every column is at most tol times its largest value; 0 if not; -1 if a value is not finite.
__device__ static inline int convergence(double change, double top, double tol, const StateRange &p, int n_columns,
                                         u64 *maxima, u32 *arrived) {
    grid_max(change, p, n_columns, maxima, arrived);
    grid_max(top, p, n_columns, maxima + COLUMNS, arrived);
    int converged = 1;
    for (int k = 0; k < COLUMNS; ++k) {
        const double largest_change = from_ordered(*(volatile u64 *)(maxima + k));
        const double largest = from_ordered(*(volatile u64 *)(maxima + COLUMNS + k));
        if (!is_finite(largest_change) || !is_finite(largest)) return -1;
        if (largest_change > tol * largest) converged = 0;
    }
    return converged;
}

__device__ static inline double distance(double a, double b) {
    const double difference = fabs(a - b);
    return is_finite(difference) ? difference : -minus_infinity();
}

// Iterate backups of V (2, S K) until convergence. `n_backups` is the number of backups, negated if they did not
// converge; the last values are in row n_backups % 2.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
bellman_iterate(i64 n_states, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr, const int *dst,
                const double *prob, const double *reward, double gamma, double beta, int rule, const double *r_state,
                double *V, i64 max_backups, double tol, u64 *maxima, u32 *arrived, i64 *n_backups) {
    const Bellman b = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    const StateRange p = state_range(n_states, n_columns);
    const i64 row = n_states * COLUMNS;
    for (i64 i = 0; i < max_backups; ++i) {
        const double *cur = V + (i % 2) * row;
        double *nxt = V + ((i + 1) % 2) * row, change = 0.0, top = 0.0;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            const double value = r_state[o] + backup(b, cur, s, p.k, n_columns);
            change = fmax(change, distance(value, cur[o]));
            top = fmax(top, fabs(value));
            nxt[o] = value;
        }
        if ((i + 1) % CHECK_EVERY) {
            grid_barrier(arrived);
            continue;
        }
        const int done = convergence(change, top, tol, p, n_columns, maxima + i / CHECK_EVERY * 2 * COLUMNS, arrived);
        if (blockIdx.x == 0 && threadIdx.x == 0) *n_backups = done == 1 ? i + 1 : -(i + 1);
        if (done) return;
    }
}

// Solve mu = right + gamma P' mu, where P = sum_a omega P(. | s, a): the adjoint of `bellman_iterate`. mu and both rows
// of term (2, S K) are initialised to `right`. The Neumann series sum_i (gamma P')^i right is summed until its terms
// vanish. The fixed-point iteration of mu might not converge around a deterministic cycle, because rounding errors
// circulate.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
bellman_adjoint(i64 n_states, int n_columns, const i64 *in_ptr, const i64 *in_pair, const double *in_prob,
                const i64 *pair_state, double gamma, const double *omega, double *mu, double *term, i64 max_backups,
                double tol, u64 *maxima, u32 *arrived, i64 *n_backups) {
    const StateRange p = state_range(n_states, n_columns);
    const i64 row = n_states * COLUMNS;
    for (i64 i = 0; i < max_backups; ++i) {
        const double *cur = term + (i % 2) * row;
        double *nxt = term + ((i + 1) % 2) * row, change = 0.0, top = 0.0;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            double total = 0.0;
            for (i64 e = in_ptr[s]; e < in_ptr[s + 1]; ++e) {
                const i64 q = in_pair[e];
                total += gamma * in_prob[e] * omega[q * COLUMNS + p.k] * cur[pair_state[q] * COLUMNS + p.k];
            }
            nxt[o] = total;
            mu[o] += total;
            change = fmax(change, distance(total, 0.0));
            top = fmax(top, fabs(mu[o]));
        }
        if ((i + 1) % CHECK_EVERY) {
            grid_barrier(arrived);
            continue;
        }
        const int done = convergence(change, top, tol, p, n_columns, maxima + i / CHECK_EVERY * 2 * COLUMNS, arrived);
        if (blockIdx.x == 0 && threadIdx.x == 0) *n_backups = done == 1 ? i + 1 : -(i + 1);
        if (done) return;
    }
}

// pi (P K) from the values of the next step. adjoint (P K) contains beta times the weights c of the pairs, and is set
// to beta (c(s, a) - pi(a | s) sum_a' c(s, a')).
extern "C" __global__ void bellman_policy_adjoint(i64 size, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr,
                                                  const int *dst, const double *prob, const double *reward,
                                                  double gamma, double beta, int rule, const double *V, double *pi,
                                                  double *adjoint) {
    const Bellman b = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        const int k = (int)(i - s * COLUMNS);
        const Policy policy = policy_of(b, V, s, k, n_columns);
        double total = 0.0;
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) total += adjoint[q * COLUMNS + k];
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) {
            const i64 at = q * COLUMNS + k;
            pi[at] = probability(b, policy, pair_value(b, V, q, k, n_columns));
            adjoint[at] -= total * pi[at];
        }
    }
}

// omega (P K), the derivative of max_a Q with respect to Q, averaged over ties: actions whose Q differs from the maximum
// by at most slack * scale, where `scale` (K) is the largest value.
extern "C" __global__ void bellman_ties(i64 size, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr,
                                        const int *dst, const double *prob, const double *reward, double gamma,
                                        double beta, int rule, const double *V, const double *scale, double slack,
                                        double *omega) {
    const Bellman b = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        const int k = (int)(i - s * COLUMNS);
        const double top = best_value(b, V, s, k, n_columns), tol = slack * scale[k];
        double n_ties = 0.0;
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) {
            const double tie = top - pair_value(b, V, q, k, n_columns) <= tol ? 1.0 : 0.0;
            omega[q * COLUMNS + k] = tie;
            n_ties += tie;
        }
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) omega[q * COLUMNS + k] /= n_ties;
    }
}

extern "C" __global__ void bellman_q_adjoint(i64 size, int n_columns, const i64 *in_ptr, const i64 *in_pair,
                                             const double *in_prob, double gamma, const double *adjoint, double *mu) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        mu[i] = value_adjoint(in_ptr, in_pair, in_prob, gamma, adjoint, s, (int)(i - s * COLUMNS), n_columns);
    }
}
