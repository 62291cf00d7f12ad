// Values of choices on a device (`kernels.choices`): step by step, and by sweeps until they settle.

#define CHECK_EVERY 16

// How a state's value comes from those of its choices: log sum_a exp(beta Q) / beta, the same with one more choice that
// is worth 0, the largest, or the average over the policy. `gpu_choices.RULES` names them in this order.
enum Rule { SOFT, SOFT_OR_STOP, BEST, AVERAGE };

struct Choice {
    const i64 *pair_ptr, *edge_ptr;
    const int *dst;
    const double *prob, *reward;
    double gamma, beta;
    int rule;
};

__device__ static inline double choice_value(const Choice &c, const double *V, i64 p, int k, int n_columns) {
    double found = c.reward[p * COLUMNS + k];
    for (i64 e = c.edge_ptr[p]; e < c.edge_ptr[p + 1]; ++e)
        found += c.gamma * c.prob[e] * V[(i64)c.dst[e] * COLUMNS + k];
    return found;
}

// Whatever the rule, the policy of a state is in proportion to exp(beta Q). V is that of the next step.
struct Policy {
    double top, total, below;  // the largest Q; the sums of exp(beta (Q - top)), and of these times Q - top
};

__device__ static inline double best_choice(const Choice &c, const double *V, i64 s, int k, int n_columns) {
    double top = c.rule == SOFT_OR_STOP ? 0.0 : minus_infinity();
    for (i64 p = c.pair_ptr[s]; p < c.pair_ptr[s + 1]; ++p) top = fmax(top, choice_value(c, V, p, k, n_columns));
    return top;
}

__device__ static inline Policy policy_of(const Choice &c, const double *V, i64 s, int k, int n_columns) {
    const double top = best_choice(c, V, s, k, n_columns);
    Policy found = {top, c.rule == SOFT_OR_STOP ? exp(-c.beta * top) : 0.0, 0.0};
    for (i64 p = c.pair_ptr[s]; p < c.pair_ptr[s + 1]; ++p) {
        const double far = choice_value(c, V, p, k, n_columns) - top, share = exp(c.beta * far);
        found.total += share;
        found.below += share * far;
    }
    return found;
}

__device__ static inline double soft_norm(const Choice &c, const Policy &pi) { return pi.top + log(pi.total) / c.beta; }

// By `top` and `total`: those of large values would not sum to 1 by their norm, which is rounded.
__device__ static inline double chance(const Choice &c, const Policy &pi, double Q) {
    return exp(c.beta * (Q - pi.top)) / pi.total;
}

__device__ static inline double average_of(const Policy &pi) { return pi.top + pi.below / pi.total; }

// What the choices of a state are worth; 0 where there are none.
__device__ static inline double worth(const Choice &c, const double *V, i64 s, int k, int n_columns) {
    if (c.pair_ptr[s] == c.pair_ptr[s + 1]) return 0.0;
    if (c.rule == BEST) return best_choice(c, V, s, k, n_columns);
    const Policy pi = policy_of(c, V, s, k, n_columns);
    return c.rule == AVERAGE ? average_of(pi) : soft_norm(c, pi);
}

// V (n, S K) from its last row back.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
choice_plan(i64 n_states, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr, const int *dst, const double *prob,
            const double *reward, double gamma, double beta, int rule, const double *r_state, double *V, i64 n,
            u32 *arrived) {
    const Choice c = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    const Place p = place_of(n_states, n_columns);
    const i64 row = n_states * COLUMNS;
    for (i64 t = n - 2; t >= 0; --t) {
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            V[t * row + o] = r_state[o] + worth(c, V + (t + 1) * row, s, p.k, n_columns);
        }
        grid_barrier(arrived);
    }
}

// The log-probability of each move: `step` is its step, whose next values stand in the following row of V; -1 is row 0.
extern "C" __global__ void choice_moves(i64 size, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr,
                                        const int *dst, const double *prob, const double *reward, double gamma,
                                        double beta, int rule, const double *V, i64 n_states, const i64 *step,
                                        const i64 *state, const i64 *pair, double *log_choice) {
    const Choice c = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 m = i / COLUMNS;
        const int k = (int)(i - m * COLUMNS);
        const double *next = V + (step[m] + 1) * n_states * COLUMNS;
        const double Q = pair[m] < 0 ? 0.0 : choice_value(c, next, pair[m], k, n_columns);
        log_choice[i] = beta * (Q - soft_norm(c, policy_of(c, next, state[m], k, n_columns)));
    }
}

// mu (S K) <- gamma sum over the pairs that lead here of P(s | pair) pull(pair).
__device__ static inline double came_from(const i64 *in_ptr, const i64 *in_pair, const double *in_prob, double gamma,
                                          const double *pull, i64 s, int k, int n_columns) {
    double found = 0.0;
    for (i64 e = in_ptr[s]; e < in_ptr[s + 1]; ++e) found += gamma * in_prob[e] * pull[in_pair[e] * COLUMNS + k];
    return found;
}

// Derivatives of weighted log-probabilities by the rewards of states and pairs, step by step from the first; V (n, S K)
// holds the values after each of n steps. Of the moves, `at_state` and `at_pair` list once each state and pair of a
// step, with the weights of all its moves. The last values are what states earn, but 0 where averages begin.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
choice_plan_back(i64 n_states, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr, const int *dst,
                 const double *prob, const double *reward, double gamma, double beta, int rule, const i64 *in_ptr,
                 const i64 *in_pair, const double *in_prob, const double *V, i64 n, const i64 *state_ptr,
                 const i64 *at_state, const double *of_state, const i64 *chosen_ptr, const i64 *at_pair,
                 const double *of_pair, double *mu, double *seen, double *given, double *pull, double *node,
                 double *pair, u32 *arrived) {
    const Choice c = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    const Place p = place_of(n_states, n_columns);
    const i64 row = n_states * COLUMNS, all = (i64)gridDim.x * p.lanes, first = (i64)blockIdx.x * p.lanes + p.lane;
    for (i64 t = 0; t < n; ++t) {
        for (i64 i = state_ptr[t] + first; i < state_ptr[t + 1]; i += all)
            seen[at_state[i] * COLUMNS + p.k] = beta * of_state[i * COLUMNS + p.k];
        for (i64 i = chosen_ptr[t] + first; i < chosen_ptr[t + 1]; i += all)
            given[at_pair[i] * COLUMNS + p.k] = beta * of_pair[i * COLUMNS + p.k];
        grid_barrier(arrived);
        const double *next = V + t * row;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            node[o] += mu[o];
            const Policy pi = policy_of(c, next, s, p.k, n_columns);
            const double mean = rule == AVERAGE ? average_of(pi) : 0.0, mine = mu[o], made = seen[o];
            seen[o] = 0.0;
            for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) {
                const i64 at = q * COLUMNS + p.k;
                const double Q = choice_value(c, next, q, p.k, n_columns);
                // A larger Q also makes its choice more likely, of which averages take notice.
                const double rise = rule == AVERAGE ? 1.0 + beta * (Q - mean) : 1.0;
                pull[at] = (mine * rise - made) * chance(c, pi, Q) + given[at];
                given[at] = 0.0;
                pair[at] += pull[at];
            }
        }
        grid_barrier(arrived);
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes)
            mu[s * COLUMNS + p.k] = came_from(in_ptr, in_pair, in_prob, gamma, pull, s, p.k, n_columns);
    }
    if (rule == AVERAGE) return;
    for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) node[s * COLUMNS + p.k] += mu[s * COLUMNS + p.k];
}

// Whether every column has moved by no more than tol of its largest value: 1; -1 where one is beyond float64.
__device__ static inline int settled(double moved, double top, double tol, const Place &p, int n_columns, u64 *tops,
                                     u32 *arrived) {
    grid_max(moved, p, n_columns, tops, arrived);
    grid_max(top, p, n_columns, tops + COLUMNS, arrived);
    int done = 1;
    for (int k = 0; k < COLUMNS; ++k) {
        const double far = from_ordered(*(volatile u64 *)(tops + k));
        const double large = from_ordered(*(volatile u64 *)(tops + COLUMNS + k));
        if (!is_finite(far) || !is_finite(large)) return -1;
        if (far > tol * large) done = 0;
    }
    return done;
}

__device__ static inline double distance(double a, double b) {
    const double found = fabs(a - b);
    return is_finite(found) ? found : -minus_infinity();
}

// Sweep V (2, S K) until it settles; `used` is the number of sweeps, negative where it did not settle. The last values
// stand in row used % 2.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
choice_settle(i64 n_states, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr, const int *dst,
              const double *prob, const double *reward, double gamma, double beta, int rule, const double *r_state,
              double *V, i64 most, double tol, u64 *tops, u32 *arrived, i64 *used) {
    const Choice c = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    const Place p = place_of(n_states, n_columns);
    const i64 row = n_states * COLUMNS;
    for (i64 i = 0; i < most; ++i) {
        const double *cur = V + (i % 2) * row;
        double *nxt = V + ((i + 1) % 2) * row, moved = 0.0, top = 0.0;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            const double found = r_state[o] + worth(c, cur, s, p.k, n_columns);
            moved = fmax(moved, distance(found, cur[o]));
            top = fmax(top, fabs(found));
            nxt[o] = found;
        }
        if ((i + 1) % CHECK_EVERY) {
            grid_barrier(arrived);
            continue;
        }
        const int done = settled(moved, top, tol, p, n_columns, tops + i / CHECK_EVERY * 2 * COLUMNS, arrived);
        if (blockIdx.x == 0 && threadIdx.x == 0) *used = done == 1 ? i + 1 : -(i + 1);
        if (done) return;
    }
}

// mu = right + gamma P' mu, where P = sum_a omega P(. | s, a): the adjoint of `choice_settle`. mu and both rows of term
// (2, S K) begin with `right`. Terms (gamma P')^i right are added until they fade: swept as it stands, mu would not
// settle where a cycle is certain, since rounding differs from place to place and goes around with it.
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
choice_adjoint(i64 n_states, int n_columns, const i64 *in_ptr, const i64 *in_pair, const double *in_prob,
               const i64 *pair_state, double gamma, const double *omega, double *mu, double *term, i64 most,
               double tol, u64 *tops, u32 *arrived, i64 *used) {
    const Place p = place_of(n_states, n_columns);
    const i64 row = n_states * COLUMNS;
    for (i64 i = 0; i < most; ++i) {
        const double *cur = term + (i % 2) * row;
        double *nxt = term + ((i + 1) % 2) * row, moved = 0.0, top = 0.0;
        for (i64 s = p.first + p.lane; s < p.last; s += p.lanes) {
            const i64 o = s * COLUMNS + p.k;
            double found = 0.0;
            for (i64 e = in_ptr[s]; e < in_ptr[s + 1]; ++e) {
                const i64 q = in_pair[e];
                found += gamma * in_prob[e] * omega[q * COLUMNS + p.k] * cur[pair_state[q] * COLUMNS + p.k];
            }
            nxt[o] = found;
            mu[o] += found;
            moved = fmax(moved, distance(found, 0.0));
            top = fmax(top, fabs(mu[o]));
        }
        if ((i + 1) % CHECK_EVERY) {
            grid_barrier(arrived);
            continue;
        }
        const int done = settled(moved, top, tol, p, n_columns, tops + i / CHECK_EVERY * 2 * COLUMNS, arrived);
        if (blockIdx.x == 0 && threadIdx.x == 0) *used = done == 1 ? i + 1 : -(i + 1);
        if (done) return;
    }
}

// pi (P K) from the values of the next step; pull (P K) holds beta times the weights of the moves by pair, and loses pi
// times their sum in the state.
extern "C" __global__ void choice_pull(i64 size, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr,
                                       const int *dst, const double *prob, const double *reward, double gamma,
                                       double beta, int rule, const double *V, double *pi, double *pull) {
    const Choice c = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        const int k = (int)(i - s * COLUMNS);
        const Policy policy = policy_of(c, V, s, k, n_columns);
        double total = 0.0;
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) total += pull[q * COLUMNS + k];
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) {
            const i64 at = q * COLUMNS + k;
            pi[at] = chance(c, policy, choice_value(c, V, q, k, n_columns));
            pull[at] -= total * pi[at];
        }
    }
}

// omega (P K), the derivative of the best choice's Q by each Q: shared by those within `slack` of it, relative to the
// largest value, `scale` (K).
extern "C" __global__ void choice_ties(i64 size, int n_columns, const i64 *pair_ptr, const i64 *edge_ptr,
                                       const int *dst, const double *prob, const double *reward, double gamma,
                                       double beta, int rule, const double *V, const double *scale, double slack,
                                       double *omega) {
    const Choice c = {pair_ptr, edge_ptr, dst, prob, reward, gamma, beta, rule};
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        const int k = (int)(i - s * COLUMNS);
        const double top = best_choice(c, V, s, k, n_columns), room = slack * scale[k];
        double ties = 0.0;
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) {
            const double tied = top - choice_value(c, V, q, k, n_columns) <= room ? 1.0 : 0.0;
            omega[q * COLUMNS + k] = tied;
            ties += tied;
        }
        for (i64 q = pair_ptr[s]; q < pair_ptr[s + 1]; ++q) omega[q * COLUMNS + k] /= ties;
    }
}

extern "C" __global__ void choice_back(i64 size, int n_columns, const i64 *in_ptr, const i64 *in_pair,
                                       const double *in_prob, double gamma, const double *pull, double *mu) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += (i64)gridDim.x * blockDim.x) {
        const i64 s = i / COLUMNS;
        mu[i] = came_from(in_ptr, in_pair, in_prob, gamma, pull, s, (int)(i - s * COLUMNS), n_columns);
    }
}
